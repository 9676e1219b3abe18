/**
 * Waits for news of streams, for any number of readers: those at the same position wait together, are served by one
 * read, and keep no connection. Hints name the streams to read; every awaited stream is also polled each second, many
 * in one statement, so a lost hint costs only time.
 */
import { EngineError, isPassingTrouble } from '../../contract/errors.ts';
import type { Hint } from '../../contract/protocol.ts';
import { LIMITS } from '../../contract/limits.ts';
import { whenAborted } from '../../model/aborting.ts';
import type { Written } from '../kit/hint-text.ts';
import { carriedOf, type Carried } from './carried.ts';
import { isFollowedBy, nameOf, release, type Group, type Waiter } from './hub-group.ts';
import { calmAfter, isNews, placeAfter, type ReaderPlace } from './reader-place.ts';
import type { Head, StreamRead, StreamSource } from './source.ts';

/** Frames in one read. */
const PAGE = 500;
const POLL_MS = 1_000;
/** Shortest interval between polls that hints cause. */
const HINTED_POLL_MS = 100;
/** Streams polled in one statement. */
const POLL_BATCH = 1_000;
/** Concurrent reads: the rest of the pool is for others. */
const READERS = 3;
/** How often other processes are asked to send hints; they do for twice as long. */
const ASK_EVERY_MS = 5_000;

/** What a reader with a timeout got. */
export interface TimedRead {
  /** Undefined when the execution is gone. */
  read: StreamRead | undefined;
  isLate: boolean;
}

/** The part of the doorbell that the hub uses. */
export interface HubBells {
  watch(watcher: (hint: Hint) => boolean): () => void;
  watchFrames(watcher: (written: Written) => boolean): () => void;
  askForStreams(forMs: number): void;
}

/** Serves all readers of streams in this process. */
export class StreamHub {
  readonly #source: StreamSource;
  readonly #bells: HubBells;
  readonly #unwatch: () => void;
  readonly #groups = new Map<string, Group>();
  readonly #byExecution = new Map<string, Set<Group>>();
  /** Where readers wait that share their place: a thousand of them need not spell its name. */
  readonly #byPlace = new WeakMap<ReaderPlace, Group>();
  readonly #toRead = new Set<Group>();
  #readers = 0;
  #tails = 0;
  #timer: NodeJS.Timeout | undefined;
  #polling = false;
  #pollAgain = false;
  #polledAt = Number.NEGATIVE_INFINITY;
  #askedAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(source: StreamSource, bells: HubBells) {
    this.#source = source;
    this.#bells = bells;
    const unwatch = [
      bells.watch((hint) => this.#onHint(hint)),
      bells.watchFrames(({ uuid, wrote, at }) => this.#onFrames(uuid, carriedOf(uuid, wrote, at))),
    ];
    this.#unwatch = () => unwatch.forEach((stop) => stop());
  }

  /** Admits a tail until the returned function is called: an admitted tail is never evicted for a newer one. */
  admit(): () => void {
    if (this.#tails >= LIMITS.tails)
      throw new EngineError(
        'too_many',
        `This process already follows ${LIMITS.tails} streams; close some first.`,
      );
    this.#tails += 1;
    return () => {
      this.#tails -= 1;
    };
  }

  /** Waits for news after the position; undefined when the execution is gone. */
  next(place: ReaderPlace, signal?: AbortSignal): Promise<StreamRead | undefined> {
    if (signal?.aborted) return Promise.reject(signal.reason as Error);
    if (this.#closed) return Promise.reject(engineClosed());
    return this.#wait(this.#groupAt(place), signal);
  }

  /** The same for a reader that needs no promise. It waits until it is resolved or rejected, or leaves. */
  join(place: ReaderPlace, waiter: Waiter): Group {
    const group = this.#groupAt(place);
    group.waiters.add(waiter);
    if (group.stirred) this.#read(group);
    return group;
  }

  leave(group: Group, waiter: Waiter): void {
    group.waiters.delete(waiter);
    if (group.waiters.size === 0 && !group.reading) this.#remove(group);
  }

  /** The same with a timeout; without news in time it returns what was last seen there. */
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

  #wait(group: Group, signal: AbortSignal | undefined): Promise<StreamRead | undefined> {
    return new Promise((resolve, reject) => {
      let stop = (): void => undefined;
      const leave = (): void => {
        stop();
        this.leave(group, waiter);
      };
      const waiter: Waiter = {
        resolve(read) {
          leave();
          resolve(read);
        },
        reject(error) {
          leave();
          reject(error as Error);
        },
      };
      group.waiters.add(waiter);
      stop = whenAborted(signal, () => waiter.reject(signal!.reason));
      if (group.stirred) this.#read(group);
    });
  }

  close(): void {
    this.#closed = true;
    this.#unwatch();
    clearTimeout(this.#timer);
    for (const group of this.#groups.values()) {
      for (const waiter of group.waiters) waiter.reject(engineClosed());
      group.waiters.clear();
    }
  }

  /** A reader that joins others knows as much as they do; a new position is read at once, after it was entered. */
  #groupAt(place: ReaderPlace): Group {
    if (this.#closed) throw engineClosed();
    const shared = this.#byPlace.get(place);
    if (shared !== undefined && this.#groups.get(shared.name) === shared) return shared;
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
    if (!this.#polling && this.#timer === undefined) this.#pollIn(POLL_MS);
    return group;
  }

  /**
   * Enters the position where the served readers will wait next, before they are served: hints about later writes reach
   * it, and hints about writes during the read have marked the old one. So it need not be read again, and not before
   * all of the readers had time to arrive, or it would be read for each part of them.
   */
  #enterNext({ place, stirred }: Group, read: StreamRead, calm: ReaderPlace | undefined): Group | undefined {
    const { head } = read;
    const isOver = head.currentAttempt > place.attemptIndex || head.phase === 'terminal';
    if (!read.isComplete || isOver) return undefined;
    const next = calm ?? placeAfter(place, read);
    const name = nameOf(next);
    const present = this.#groups.get(name);
    const group = present ?? this.#enter(next, name);
    this.#byPlace.set(next, group);
    if (present !== undefined) return undefined;
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
      this.#pollSoon();
      return false;
    }
    if (this.#byExecution.size === 0) return false;
    for (const uuids of [hint.streams, hint.ended]) for (const uuid of uuids) this.#readOf(uuid);
    return false;
  }

  #readOf(uuid: string): void {
    for (const group of this.#byExecution.get(uuid) ?? []) this.#read(group);
  }

  /** Serves the readers that the frames follow; returns whether that was all of them. */
  #onFrames(uuid: string, carried: Carried | undefined): boolean {
    const groups = [...(this.#byExecution.get(uuid) ?? [])];
    if (carried === undefined) return groups.length === 0;
    const following = groups.filter((group) => isFollowedBy(group, carried));
    for (const group of following) void this.#pass(group, carried.read);
    return following.length === groups.length;
  }

  #ask(): void {
    const now = performance.now();
    if (now - this.#askedAt < ASK_EVERY_MS) return;
    this.#askedAt = now;
    this.#bells.askForStreams(2 * ASK_EVERY_MS);
  }

  /** Without a waiter, the first reader to arrive triggers the read. */
  #read(group: Group): void {
    group.stirred = true;
    if (group.reading || group.waiters.size === 0) return;
    this.#toRead.add(group);
    if (this.#readers >= READERS) return;
    this.#readers += 1;
    void this.#readAll().finally(() => {
      this.#readers -= 1;
      // Added after the last one finished, and before this callback.
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

  /** Passes news to all waiters at the position; they leave it then. */
  async #serve(group: Group): Promise<void> {
    const { place } = group;
    try {
      const read = await this.#source.after(place, place, PAGE);
      if (read !== undefined && read.frames.length === 0 && !isNews(place, read.head)) {
        group.latest = read;
        return;
      }
      await this.#pass(group, read);
    } catch (error) {
      // An unreachable database is asked again at the next poll.
      if (isPassingTrouble(error)) return;
      this.#remove(group);
      await release(group, (waiter) => waiter.reject(error));
    }
  }

  async #pass(group: Group, read: StreamRead | undefined): Promise<void> {
    this.#remove(group);
    const calm = read === undefined ? undefined : calmAfter(group.place, read);
    const next = read === undefined ? undefined : this.#enterNext(group, read, calm);
    group.stirred = false;
    await release(group, (waiter) => waiter.resolve(read, calm));
    if (next !== undefined) this.#open(next);
  }

  /** Opens a position for reads. */
  #open(group: Group): void {
    group.reading = false;
    if (group.stirred) this.#read(group);
  }

  #pollSoon(): void {
    this.#pollAgain = true;
    if (this.#polling || this.#closed || this.#groups.size === 0) return;
    this.#pollIn(Math.max(0, this.#polledAt + HINTED_POLL_MS - performance.now()));
  }

  #pollIn(ms: number): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.#poll(), ms);
  }

  /** Polls all streams. One poll at a time: it reschedules itself. */
  async #poll(): Promise<void> {
    this.#timer = undefined;
    if (this.#closed || this.#groups.size === 0) return;
    this.#polling = true;
    this.#pollAgain = false;
    this.#ask();
    // No reader arrived there.
    for (const group of this.#groups.values())
      if (group.waiters.size === 0 && !group.reading) this.#remove(group);
    await this.#pollAll();
    this.#polling = false;
    this.#polledAt = performance.now();
    if (this.#closed || this.#groups.size === 0) return;
    if (this.#pollAgain) this.#pollSoon();
    else this.#pollIn(POLL_MS * (0.8 + Math.random() * 0.4));
  }

  async #pollAll(): Promise<void> {
    const groups = [...this.#groups.values()];
    for (let from = 0; from < groups.length; from += POLL_BATCH) {
      const batch = groups.slice(from, from + POLL_BATCH);
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

function engineClosed(): EngineError {
  return new EngineError('closed', 'The engine was closed.');
}
