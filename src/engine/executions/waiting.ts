/**
 * Waiting for executions to finish. Whoever ends one sends a hint; a waiter that receives it reads the outcome. A
 * process with waiters asks the others for these hints, so that nobody sends them needlessly. Every waiter also polls
 * at growing intervals: a lost hint only costs time.
 */
import { EngineError, isOutage } from '../../contract/errors.ts';
import type { ExecutionEnd, WaitOptions } from '../../contract/executions.ts';
import type { Hint } from '../../contract/protocol.ts';
import { parseExecutionId, type ParsedExecutionId } from '../../contract/ids.ts';
import { abortSignal } from '../../contract/shape/kinds.ts';
import { shape } from '../../contract/shape/shape.ts';
import type { Doorbell } from '../kit/doorbell.ts';
import { readOutcomes, type StoredOutcome } from './reads.sql.ts';
import type { Database } from '../database/database.ts';
import { toResult } from './reads.ts';
import { whenAborted } from '../../model/aborting.ts';

const waitOptions = shape<WaitOptions>({ signal: abortSignal.optional() });

/** Outcomes read in one statement. */
const READ_BATCH = 1_000;
/** Waiters of one process. Beyond this, waiting is refused: they are probably leaking. */
const MAX_WAITERS = 100_000;
const POLL_MS = { first: 1_000, longest: 5_000 };
/** How often the others are asked again for hints, which they send for twice as long. */
const ASK_EVERY_MS = 5_000;

interface Waiter {
  key: ParsedExecutionId;
  pollAt: number;
  polls: number;
  resolve(end: ExecutionEnd): void;
  reject(error: unknown): void;
}

export class EndWatch {
  readonly #database: Database;
  readonly #doorbell: Doorbell;
  readonly #waiters = new Map<string, Set<Waiter>>();
  readonly #unwatch: () => void;
  #count = 0;
  #timer: NodeJS.Timeout | undefined;
  #askedAt = Number.NEGATIVE_INFINITY;
  #reading = false;
  readonly #toRead = new Set<string>();

  constructor(database: Database, doorbell: Doorbell) {
    this.#database = database;
    this.#doorbell = doorbell;
    this.#unwatch = doorbell.watch((hint) => this.#onHint(hint));
  }

  wait(executionId: string, options: WaitOptions): Promise<ExecutionEnd> {
    const key = parseExecutionId(executionId);
    const { signal } = waitOptions.check(options, 'options');
    if (signal?.aborted) return Promise.reject(signal.reason as Error);
    if (this.#count >= MAX_WAITERS) {
      return Promise.reject(
        new EngineError('too_many', `This process is already waiting for ${MAX_WAITERS} executions.`),
      );
    }
    return new Promise((resolve, reject) => {
      const waiter: Waiter = { key, pollAt: 0, polls: 0, resolve, reject };
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

  #add(waiter: Waiter): void {
    const known = this.#waiters.get(waiter.key.uuid);
    if (known === undefined) this.#waiters.set(waiter.key.uuid, new Set([waiter]));
    else known.add(waiter);
    this.#count += 1;
    this.#ask();
    this.#read([waiter.key.uuid]);
    this.#timer ??= setTimeout(() => this.#poll(), POLL_MS.first);
  }

  #remove(waiter: Waiter): void {
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

  /** Reads the outcomes that are due to be polled, less and less often for each waiter. */
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
      const uuids = [...this.#toRead].slice(0, READ_BATCH);
      for (const uuid of uuids) this.#toRead.delete(uuid);
      try {
        const rows = await readOutcomes(this.#database, uuids);
        const found = new Map(rows.map((row) => [row.uuid, row]));
        for (const uuid of uuids) this.#settle(uuid, found.get(uuid));
      } catch (error) {
        // During an outage the next poll tries again; any other error rejects the waiters.
        if (error instanceof EngineError && !isOutage(error)) {
          for (const uuid of uuids) this.#fail(uuid, error);
        }
      }
    }
  }

  #settle(uuid: string, row: StoredOutcome | undefined): void {
    for (const waiter of this.#waiters.get(uuid) ?? []) {
      if (row === undefined || row.partition !== waiter.key.partition) {
        this.#remove(waiter);
        waiter.reject(new EngineError('not_found', 'There is no such execution.', { field: 'executionId' }));
        continue;
      }
      const result = toResult(row);
      if (result.outcome === 'pending') this.#pollLater(waiter);
      else {
        this.#remove(waiter);
        waiter.resolve(result as ExecutionEnd);
      }
    }
  }

  #fail(uuid: string, error: unknown): void {
    for (const waiter of this.#waiters.get(uuid) ?? []) {
      this.#remove(waiter);
      waiter.reject(error);
    }
  }

  #pollLater(waiter: Waiter): void {
    waiter.polls += 1;
    waiter.pollAt =
      performance.now() + Math.min(POLL_MS.first * waiter.polls, POLL_MS.longest) - POLL_MS.first / 2;
  }
}
