/**
 * Children end with their parent, and are replayed with it. Whoever ends or replays a parent leaves a timer in the same
 * commit. Its work is done in parts of a few hundred children, each a transaction of its own, by any process: the one
 * that comes across the timer first begins, and when it dies another continues.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { EngineError } from '../../contract/errors.ts';
import { parseExecutionId, formatExecutionId, type ExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import { listKeptChildren, settleChildren, settleFamily } from './families.sql.ts';
import { announce, type Answer } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';

/** How long closing an engine waits for a part. */
const CLOSE_MS = 1_000;

type Context = Pick<EngineContext, 'database' | 'doorbell' | 'flowWork'>;

export class FamilyWork {
  readonly #context: () => Context;
  readonly #due = new Set<number>();
  #running: Promise<void> | undefined;
  #isClosed = false;

  /** The context contains this object, so it is asked for when it is needed. */
  constructor(context: () => Context) {
    this.#context = context;
  }

  /** Does the work of these timers without waiting for it. */
  begin(timerIds: readonly number[]): void {
    for (const timerId of timerIds) this.#due.add(timerId);
    if (this.#due.size > 0) this.#running ??= this.#run();
  }

  /** Waits until the work that was begun is done, or left to others. */
  async finish(): Promise<void> {
    while (this.#running !== undefined) await this.#running;
  }

  /** Does all parts of one timer's work, until it is done or somebody holds what it needs. */
  async settle(timerId: number): Promise<void> {
    for (;;) {
      const { outcome, children } = await settleFamily(this.#context().database, timerId);
      announce(this.#context(), children);
      if (outcome !== 'more' || this.#isClosed) return;
    }
  }

  /** Replays children that a parent spawns again and that had ended with it. */
  async revive(parent: ExecutionKey, children: readonly string[]): Promise<void> {
    let left = children;
    for (let waitedMs = 0; left.length > 0; waitedMs += LIMITS.heldPollMs) {
      const rows = await settleChildren(this.#context().database, parent, left);
      announce(this.#context(), rows as Answer[]);
      left = rows.filter((row) => row.outcome === 'held').map(({ uuid }) => uuid);
      if (left.length === 0) return;
      if (waitedMs >= LIMITS.heldWaitMs)
        throw new EngineError('contention', 'A child is held by another transaction.');
      await delay(LIMITS.heldPollMs);
    }
  }

  async #run(): Promise<void> {
    for (const timerId of this.#due) {
      // What fails here is due again, and reported by the reconciler of timers.
      if (!this.#isClosed) await this.settle(timerId).catch(() => undefined);
      this.#due.delete(timerId);
    }
    this.#running = undefined;
  }

  /** Stops after the part in progress; the rest is left to others. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.race([this.#running, delay(CLOSE_MS, undefined, { ref: false })]);
  }
}

/** The children that an execution begun anew has kept: spawning them again names the same executions. */
export async function readKeptChildren(context: EngineContext, executionId: string): Promise<ExecutionId[]> {
  const parent = parseExecutionId(executionId);
  const uuids = await listKeptChildren(context.database, parent);
  return uuids.map((uuid) => formatExecutionId(parent.partition, uuid));
}
