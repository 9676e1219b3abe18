/**
 * Waiting for news of streams, for any number of readers: those at the same place of a stream wait together, are served by one
 * read, and hold no connection meanwhile. Hints say where to look; every stream that is waited at is also looked at each second,
 * many in one statement: a lost hint costs time, nothing else.
 */
import { EngineError, isPassingTrouble } from '../../contract/errors.ts';
import type { Hint } from '../../contract/protocol.ts';
import { LIMITS } from '../../contract/limits.ts';
import { whenAborted } from '../../model/aborting.ts';
import { isNews, placeAfter, type ReaderPlace } from './reader-place.ts';
import type { Head, StreamRead, StreamSource } from './source.ts';

/** Frames in one read. */
const PAGE = 500;
const LOOK_MS = 1_000;
/** Between looks that hints ask for. */
const LOOK_APART_MS = 100;
/** Readers that are handed something before others of the process get their turn. */
const SLICE = 500;
/** Streams looked at in one statement. */
const LOOK_BATCH = 1_000;
/** Reads at once: the rest of the pool is for others. */
const READERS = 3;
/** How often the other processes are asked to tell; they do for twice as long. */
const ASK_EVERY_MS = 5_000;

interface Waiter {
  resolve(read: StreamRead | undefined): void;
  reject(error: unknown): void;
}

/** Readers at one place. */
interface Group {
  name: string;
  place: ReaderPlace;
  waiters: Set<Waiter>;
  /** It is to be read: something happened since its last read began, or nobody has read it. */
  stirred: boolean;
  reading: boolean;
  /** What is there while nothing is news. */
  latest: StreamRead | undefined;
  /** The read of those whose time was over before there was one. */
  late: Promise<StreamRead | undefined> | undefined;
}

/** What a reader got that does not wait longer than so long. */
export interface TimedRead {
  /** Undefined when the execution is gone. */
  read: StreamRead | undefined;
  isLate: boolean;
}

export interface HubBells {
  watch(watcher: (hint: Hint) => boolean): () => void;
  askForStreams(forMs: number): void;
}

export class StreamHub {
  readonly #source: StreamSource;
  readonly #bells: HubBells;
  readonly #unwatch: () => void;
  readonly #groups = new Map<string, Group>();
  readonly #byExecution = new Map<string, Set<Group>>();
  readonly #toRead = new Set<Group>();
  #readers = 0;
  #tails = 0;
  #timer: NodeJS.Timeout | undefined;
  #looking = false;
  #lookAgain = false;
  #lookedAt = Number.NEGATIVE_INFINITY;
  #askedAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(source: StreamSource, bells: HubBells) {
    this.#source = source;
    this.#bells = bells;
    this.#unwatch = bells.watch((hint) => this.#onHint(hint));
  }

  /** Takes a place among the tails, until it is given back: who was let in is not put out for somebody who came later. */
  admit(): () => void {
    if (this.#tails >= LIMITS.tails)
      throw new EngineError('too_many', `This process already follows ${LIMITS.tails} streams.`);
    this.#tails += 1;
    return () => {
      this.#tails -= 1;
    };
  }

  /** What is new since the place, as soon as something is; undefined when the execution is gone. */
  async next(place: ReaderPlace, signal?: AbortSignal): Promise<StreamRead | undefined> {
    signal?.throwIfAborted();
    return this.#wait(this.#groupAt(place), signal);
  }

  /** The same; when nothing is new in time, what was last seen there. */
  async nextWithin(place: ReaderPlace, ms: number): Promise<TimedRead> {
    const group = this.#groupAt(place);
    const leave = this.admit();
    const timeout = new AbortController();
    const timer = setTimeout(() => timeout.abort(), ms);
    try {
      return { read: await this.#wait(group, timeout.signal), isLate: false };
    } catch (error) {
      if (!timeout.signal.aborted) throw error;
      return { read: group.latest ?? (await this.#readLate(group)), isLate: true };
    } finally {
      leave();
      clearTimeout(timer);
    }
  }

  #readLate(group: Group): Promise<StreamRead | undefined> {
    group.late ??= this.#source.after(group.place, group.place, PAGE).finally(() => {
      group.late = undefined;
    });
    return group.late;
  }

  async #wait(group: Group, signal: AbortSignal | undefined): Promise<StreamRead | undefined> {
    let stop = (): void => undefined;
    let waiter!: Waiter;
    try {
      return await new Promise<StreamRead | undefined>((resolve, reject) => {
        waiter = { resolve, reject };
        group.waiters.add(waiter);
        stop = whenAborted(signal, () => reject(signal!.reason as Error));
        if (group.stirred) this.#read(group);
      });
    } finally {
      stop();
      group.waiters.delete(waiter);
      if (group.waiters.size === 0 && !group.reading) this.#remove(group);
    }
  }

  close(): void {
    this.#closed = true;
    this.#unwatch();
    clearTimeout(this.#timer);
    for (const group of this.#groups.values())
      for (const waiter of group.waiters) waiter.reject(new EngineError('closed', 'The engine was closed.'));
  }

  /** Who joins others knows as much as they do; a place nobody is at is read at once, after it was entered. */
  #groupAt(place: ReaderPlace): Group {
    if (this.#closed) throw new EngineError('closed', 'The engine was closed.');
    const name = nameOf(place);
    return this.#groups.get(name) ?? this.#enter(place, name);
  }

  #enter(place: ReaderPlace, name: string): Group {
    const group: Group = {
      name,
      place,
      waiters: new Set(),
      stirred: true,
      reading: false,
      latest: undefined,
      late: undefined,
    };
    this.#groups.set(name, group);
    const beside = this.#byExecution.get(place.uuid);
    if (beside === undefined) this.#byExecution.set(place.uuid, new Set([group]));
    else beside.add(group);
    this.#ask();
    if (!this.#looking && this.#timer === undefined) this.#lookIn(LOOK_MS);
    return group;
  }

  /**
   * Where those who are served will wait next is entered before they are: what is written from now on is heard of there, and what was
   * written since the read was heard of while it went on. So the place need not be read again; and not before all of them had time to
   * come, or it would be read for each part of them.
   */
  #enterNext({ place, stirred }: Group, read: StreamRead): Group | undefined {
    const { head } = read;
    const isOver = head.currentAttempt > place.attemptIndex || head.phase === 'terminal';
    if (!read.isComplete || isOver) return undefined;
    const next = placeAfter(place, read);
    const name = nameOf(next);
    if (this.#groups.has(name)) return undefined;
    const group = this.#enter(next, name);
    group.stirred = stirred;
    group.reading = true;
    group.latest = { ...read, frames: [] };
    return group;
  }

  #remove(group: Group): void {
    if (this.#groups.get(group.name) === group) this.#groups.delete(group.name);
    this.#toRead.delete(group);
    const beside = this.#byExecution.get(group.place.uuid);
    beside?.delete(group);
    if (beside?.size === 0) this.#byExecution.delete(group.place.uuid);
  }

  #onHint(hint: Hint): boolean {
    if (hint.streams === 'all' || hint.ended === 'all') {
      this.#lookSoon();
      return false;
    }
    for (const uuid of [...hint.streams, ...hint.ended])
      for (const group of this.#byExecution.get(uuid) ?? []) this.#read(group);
    return false;
  }

  #ask(): void {
    const now = performance.now();
    if (now - this.#askedAt < ASK_EVERY_MS) return;
    this.#askedAt = now;
    this.#bells.askForStreams(2 * ASK_EVERY_MS);
  }

  /** Where nobody waits, the first who comes has it read. */
  #read(group: Group): void {
    group.stirred = true;
    if (group.reading || group.waiters.size === 0) return;
    this.#toRead.add(group);
    if (this.#readers >= READERS) return;
    this.#readers += 1;
    void this.#readAll().finally(() => {
      this.#readers -= 1;
      // Entered after the last one was done, and before this.
      for (const late of this.#toRead) this.#read(late);
    });
  }

  async #readAll(): Promise<void> {
    for (const group of this.#toRead) {
      this.#toRead.delete(group);
      group.reading = true;
      do {
        group.stirred = false;
        await this.#serve(group);
      } while (group.stirred && group.waiters.size > 0);
      group.reading = false;
      if (group.waiters.size === 0) this.#remove(group);
    }
  }

  /** Hands what is new to all who wait at the place; they leave it then. */
  async #serve(group: Group): Promise<void> {
    const { place } = group;
    try {
      const read = await this.#source.after(place, place, PAGE);
      if (read !== undefined && read.frames.length === 0 && !isNews(place, read.head)) {
        group.latest = read;
        return;
      }
      this.#remove(group);
      const next = read === undefined ? undefined : this.#enterNext(group, read);
      group.stirred = false;
      await release(group, (waiter) => waiter.resolve(read));
      if (next !== undefined) this.#open(next);
    } catch (error) {
      // A database that is away is asked again at the next look.
      if (isPassingTrouble(error)) return;
      this.#remove(group);
      await release(group, (waiter) => waiter.reject(error));
    }
  }

  /** From now on it is read when something happens. */
  #open(group: Group): void {
    group.reading = false;
    if (group.stirred) this.#read(group);
  }

  #lookSoon(): void {
    this.#lookAgain = true;
    if (this.#looking || this.#closed || this.#groups.size === 0) return;
    this.#lookIn(Math.max(0, this.#lookedAt + LOOK_APART_MS - performance.now()));
  }

  #lookIn(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#look(), ms);
  }

  /** One at a time: it reschedules itself. */
  async #look(): Promise<void> {
    this.#timer = undefined;
    if (this.#closed || this.#groups.size === 0) return;
    this.#looking = true;
    this.#lookAgain = false;
    this.#ask();
    // Nobody came to wait there.
    for (const group of this.#groups.values())
      if (group.waiters.size === 0 && !group.reading) this.#remove(group);
    await this.#lookAtAll();
    this.#looking = false;
    this.#lookedAt = performance.now();
    if (this.#closed || this.#groups.size === 0) return;
    if (this.#lookAgain) this.#lookSoon();
    else this.#lookIn(LOOK_MS * (0.8 + Math.random() * 0.4));
  }

  async #lookAtAll(): Promise<void> {
    const groups = [...this.#groups.values()];
    for (let from = 0; from < groups.length; from += LOOK_BATCH) {
      const batch = groups.slice(from, from + LOOK_BATCH);
      const heads = await this.#source.heads(batch.map((group) => group.place)).catch(() => undefined);
      if (heads === undefined || this.#closed) return;
      batch.forEach((group, index) => this.#compare(group, heads.get(index)));
    }
  }

  #compare(group: Group, head: Head | undefined): void {
    if (this.#groups.get(group.name) !== group) return;
    if (head === undefined || isNews(group.place, head)) this.#read(group);
    else group.latest = { attemptIndex: group.place.attemptIndex, frames: [], isComplete: true, head };
  }
}

/** What many are handed takes time: others get their turns in between. */
async function release(group: Group, settle: (waiter: Waiter) => void): Promise<void> {
  let settled = 0;
  for (const waiter of group.waiters) {
    settle(waiter);
    settled += 1;
    if (settled % SLICE === 0) await new Promise((resolve) => setImmediate(resolve));
  }
}

function nameOf({ partition, uuid, attemptIndex, tsMs, seq, told, epoch }: ReaderPlace): string {
  return `${partition}/${uuid}/${attemptIndex}/${tsMs}-${seq}/${told}/${epoch}`;
}
