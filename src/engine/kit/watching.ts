/**
 * Waiting for something that the database reports about executions. Whoever causes it sends a hint; a waiter that
 * receives it reads. A process with waiters asks the others for these hints, so that nobody sends them needlessly. Every
 * waiter also polls at growing intervals: a lost hint only costs time.
 */
import { EngineError, isOutage } from '../../contract/errors.ts';
import type { Hint } from '../../contract/protocol.ts';
import { whenAborted } from '../../model/aborting.ts';
import type { Doorbell } from './doorbell.ts';

/** Keys read in one statement. */
const READ_BATCH = 1_000;
/** Waiters of one process. Beyond this, waiting is refused: they are probably leaking. */
const MAX_WAITERS = 100_000;
const POLL_MS = { first: 1_000, longest: 5_000 };
/** How often the others are asked again for hints, which they send for twice as long. */
const ASK_EVERY_MS = 5_000;

/** What is waited for. */
export interface Watched<Key, Row, End> {
  /** Reads what there is about each key, in order; undefined where nothing is known. */
  read(keys: readonly Key[]): Promise<readonly (Row | undefined)[]>;
  /** What the waiter gets; undefined while it must wait. What it throws rejects the waiter. */
  judge(row: Row | undefined, key: Key): End | undefined;
}

interface Waiter<Key, End> {
  key: Key;
  pollAt: number;
  polls: number;
  resolve(end: End): void;
  reject(error: unknown): void;
}

export class Watch<Key extends { uuid: string }, Row, End> {
  readonly #doorbell: Doorbell;
  readonly #watched: Watched<Key, Row, End>;
  readonly #waiters = new Map<string, Set<Waiter<Key, End>>>();
  readonly #unwatch: () => void;
  #count = 0;
  #timer: NodeJS.Timeout | undefined;
  #askedAt = Number.NEGATIVE_INFINITY;
  #reading = false;
  readonly #toRead = new Set<string>();

  constructor(doorbell: Doorbell, watched: Watched<Key, Row, End>) {
    this.#doorbell = doorbell;
    this.#watched = watched;
    this.#unwatch = doorbell.watch((hint) => this.#onHint(hint));
  }

  wait(key: Key, signal: AbortSignal | undefined): Promise<End> {
    if (signal?.aborted) return Promise.reject(signal.reason as Error);
    if (this.#count >= MAX_WAITERS) {
      return Promise.reject(
        new EngineError('too_many', `This process is already waiting for ${MAX_WAITERS} executions.`),
      );
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter<Key, End> = { key, pollAt: 0, polls: 0, resolve, reject };
      const done = whenAborted(signal, () => {
        this.#remove(waiter);
        reject(signal!.reason as Error);
      });
      waiter.resolve = (end) => {
        done();
        resolve(end);
      };
      waiter.reject = (error) => {
        done();
        reject(error as Error);
      };
      this.#add(waiter);
    });
  }

  /** Rejects the remaining waiters. */
  close(): void {
    this.#unwatch();
    clearTimeout(this.#timer);
    const left = [...this.#waiters.values()].flatMap((set) => [...set]);
    this.#waiters.clear();
    for (const waiter of left) waiter.reject(new EngineError('closed', 'The engine was closed.'));
  }

  #add(waiter: Waiter<Key, End>): void {
    const known = this.#waiters.get(waiter.key.uuid);
    if (known === undefined) this.#waiters.set(waiter.key.uuid, new Set([waiter]));
    else known.add(waiter);
    this.#count += 1;
    this.#ask();
    this.#read([waiter.key.uuid]);
    this.#timer ??= setTimeout(() => this.#poll(), POLL_MS.first);
  }

  #remove(waiter: Waiter<Key, End>): void {
    const set = this.#waiters.get(waiter.key.uuid);
    if (set?.delete(waiter) !== true) return;
    this.#count -= 1;
    if (set.size === 0) this.#waiters.delete(waiter.key.uuid);
  }

  #onHint(hint: Hint): boolean {
    if (this.#waiters.size === 0) return false;
    if (hint.ended === 'all') this.#read([...this.#waiters.keys()]);
    else if (hint.ended.length > 0) this.#read(hint.ended.filter((uuid) => this.#waiters.has(uuid)));
    return false;
  }

  #ask(): void {
    const now = performance.now();
    if (now - this.#askedAt < ASK_EVERY_MS) return;
    this.#askedAt = now;
    this.#doorbell.askForEnds(2 * ASK_EVERY_MS);
  }

  /** Reads what is due to be polled, less and less often for each waiter. */
  #poll(): void {
    this.#timer = undefined;
    if (this.#waiters.size === 0) return;
    this.#ask();
    const now = performance.now();
    const due = [...this.#waiters].filter(([, set]) => [...set].some((waiter) => waiter.pollAt <= now));
    this.#read(due.map(([uuid]) => uuid));
    this.#timer = setTimeout(() => this.#poll(), POLL_MS.first * (0.8 + Math.random() * 0.4));
  }

  #read(uuids: readonly string[]): void {
    for (const uuid of uuids) this.#toRead.add(uuid);
    if (this.#reading || this.#toRead.size === 0) return;
    this.#reading = true;
    void this.#readAll().finally(() => {
      this.#reading = false;
      if (this.#toRead.size > 0) this.#read([]);
    });
  }

  async #readAll(): Promise<void> {
    while (this.#toRead.size > 0) {
      const waiters = this.#taken();
      if (waiters.length === 0) continue;
      try {
        const rows = await this.#watched.read(waiters.map(({ key }) => key));
        waiters.forEach((waiter, index) => this.#settle(waiter, rows[index]));
      } catch (error) {
        // During an outage the next poll tries again; any other error rejects the waiters.
        if (error instanceof EngineError && !isOutage(error)) {
          for (const waiter of waiters) this.#fail(waiter, error);
        }
      }
    }
  }

  /** The waiters of the next statement; those of one execution are read together. */
  #taken(): Waiter<Key, End>[] {
    const waiters: Waiter<Key, End>[] = [];
    for (const uuid of this.#toRead) {
      if (waiters.length >= READ_BATCH) break;
      this.#toRead.delete(uuid);
      waiters.push(...(this.#waiters.get(uuid) ?? []));
    }
    return waiters;
  }

  #settle(waiter: Waiter<Key, End>, row: Row | undefined): void {
    try {
      const end = this.#watched.judge(row, waiter.key);
      if (end === undefined) return this.#pollLater(waiter);
      this.#remove(waiter);
      waiter.resolve(end);
    } catch (error) {
      this.#fail(waiter, error);
    }
  }

  #fail(waiter: Waiter<Key, End>, error: unknown): void {
    this.#remove(waiter);
    waiter.reject(error);
  }

  #pollLater(waiter: Waiter<Key, End>): void {
    waiter.polls += 1;
    waiter.pollAt =
      performance.now() + Math.min(POLL_MS.first * waiter.polls, POLL_MS.longest) - POLL_MS.first / 2;
  }
}
