/**
 * Submits with a key or an id of the caller, which a long transaction may be using. They share statements like others.
 * One that is held is set apart and tried again at intervals, without a connection in between, until the transaction
 * has ended or the time limit is reached. No other submit waits for it.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { EngineError } from '../../../contract/errors.ts';
import { LIMITS } from '../../../contract/limits.ts';
import type { SubmitResult } from '../../../contract/executions.ts';
import { spread } from '../../../model/retry.ts';
import type { SubmitAnswer, SubmitCall } from './submits.sql.ts';
import { Batch, type BatchOptions } from '../../kit/batch.ts';
import type { CheckedRequest } from './submit-call.ts';

/** Another transaction, which has not ended, is using its key or id. */
export type Held = 'held';

/** How long a statement waits for held keys and ids: in total when shared, for each submit when set apart. */
export const HELD_PATIENCE_MS = { together: 50, apart: 1 } as const;
/**
 * The most submits set apart in one statement. While it waits, others wait for its keys, so it must not wait longer in
 * total than a shared one.
 */
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

  /** Resolves when every call made so far has its answer. */
  async settled(): Promise<void> {
    await Promise.all(this.#open);
  }

  async #submit(entry: CheckedRequest): Promise<SubmitResult> {
    const until = performance.now() + LIMITS.heldWaitMs;
    let answer = await this.#together.add(entry);
    // Perhaps only one of the submits in the shared statement was held: the others must not wait for it.
    if (answer === 'held') answer = await this.#apart.add(entry);
    for (let tries = 1; answer === 'held'; tries += 1) {
      if (performance.now() >= until) throw heldError(heldField(entry));
      await delay(spread(AGAIN_MS, tries, Math.random()));
      answer = await this.#apart.add(entry);
    }
    return answer;
  }
}

/** The answers for a statement that waited too long: which of its submits is held is unknown. */
export function allHeld({ rows }: SubmitCall): SubmitAnswer[] {
  return rows.map(({ uuid }) => ({
    uuid,
    outcome: 'held',
    routeId: 0,
    dueInMs: null,
    existingId: null,
    workerInstanceId: null,
  }));
}

/** Which of the two keys it is that another transaction uses is unknown. */
function heldField({ own, idempotency }: CheckedRequest): string {
  if (own !== null) return 'request.key';
  return idempotency === null ? 'request.executionId' : 'request.idempotencyKey';
}

export function heldError(field: string, cause?: unknown): EngineError {
  const what = field === 'requests' ? 'requests contain a key or an id that' : `${field} is one that`;
  return new EngineError(
    'contention',
    `${what} another transaction has just submitted, and that transaction has not ended within ${LIMITS.heldWaitMs / 1_000} seconds. Submit again when it has committed or rolled back.`,
    { field, cause },
  );
}
