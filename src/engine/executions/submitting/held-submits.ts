/**
 * Submits that bring a key or an id of their own, which a transaction that is open for long may hold. They share statements
 * like others; when one of them is held, it is set apart, and asked for again at intervals, without a connection in between, until
 * the transaction has ended or its time is over. Nothing else waits for it.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { EngineError } from '../../../contract/errors.ts';
import { LIMITS } from '../../../contract/limits.ts';
import type { SubmitResult } from '../../../contract/executions.ts';
import { spread } from '../../../model/retry.ts';
import type { SubmitAnswer, SubmitCall } from '../executions.sql.ts';
import { Batch, type BatchOptions } from '../../kit/batch.ts';
import type { CheckedRequest } from './submit-call.ts';

/** Its key or id is used by another transaction that has not ended. */
export type Held = 'held';

/** How long a statement waits for what is held: one that many share, and for each of those that are set apart. */
export const HELD_PATIENCE_MS = { together: 50, apart: 1 } as const;
/** Set apart in one statement: while it waits, rivals wait for the keys it has taken, so that both kinds wait as long in all. */
const APART_ITEMS = HELD_PATIENCE_MS.together / HELD_PATIENCE_MS.apart;
const AGAIN_MS = { min: 20, max: 200 };

type Options = BatchOptions<CheckedRequest, SubmitResult | Held>;

export class HeldSubmits {
  readonly #together: Batch<CheckedRequest, SubmitResult | Held>;
  readonly #apart: Batch<CheckedRequest, SubmitResult | Held>;
  readonly #open = new Set<Promise<unknown>>();

  constructor(options: { together: Options; apart: Options }) {
    this.#together = new Batch(options.together);
    this.#apart = new Batch({ ...options.apart, maxItems: APART_ITEMS, maxFlights: 1 });
  }

  add(entry: CheckedRequest): Promise<SubmitResult> {
    const submitting = this.#submit(entry);
    const settled = submitting.catch(() => undefined).finally(() => this.#open.delete(settled));
    this.#open.add(settled);
    return submitting;
  }

  /** Until every call made so far has its answer. */
  async settled(): Promise<void> {
    await Promise.all(this.#open);
  }

  async #submit(entry: CheckedRequest): Promise<SubmitResult> {
    const until = performance.now() + LIMITS.heldWaitMs;
    let answer = await this.#together.add(entry);
    // Only one of those it shared a statement with may have been held: the others are not to wait.
    if (answer === 'held') answer = await this.#apart.add(entry);
    for (let tries = 1; answer === 'held'; tries += 1) {
      if (performance.now() >= until)
        throw heldError(entry.idempotency === null ? 'request.executionId' : 'request.idempotencyKey');
      await pause(spread(AGAIN_MS, tries, Math.random()));
      answer = await this.#apart.add(entry);
    }
    return answer;
  }
}

/** What is answered for a statement that waited for too long: for which of them is not known. */
export function allHeld({ rows }: SubmitCall): SubmitAnswer[] {
  return rows.map(({ uuid }) => ({
    uuid,
    outcome: 'held',
    routeId: 0,
    dueInMs: null,
    existingId: null,
  }));
}

export function heldError(field: string, cause?: unknown): EngineError {
  const what = field === 'requests' ? 'requests name a key or an id that' : `${field} names what`;
  return new EngineError(
    'contention',
    `${what} another transaction has just submitted, and that transaction has not ended within ${LIMITS.heldWaitMs / 1_000} seconds. Submit again when it has committed or rolled back.`,
    { field, cause },
  );
}
