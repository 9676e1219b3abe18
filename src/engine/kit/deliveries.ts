/**
 * Things sent to executions at the same time, in one statement, in order for each execution. One to an execution that
 * another transaction has locked is left out by that statement, and waits alone; no other waits for it.
 */
import { isPassingTrouble } from '../../contract/errors.ts';
import { isLockTimeout } from '../database/database.ts';
import { Batch } from './batch.ts';

/** How calls of one kind are delivered. */
export interface Delivery<Call, Answer> {
  /** In order. Undefined for one that needs a statement of its own: nothing was done. */
  together(calls: readonly Call[]): Promise<(Answer | undefined)[]>;
  /** Waits for its row as long as a person would. */
  alone(call: Call): Promise<Answer>;
  keyOf(call: Call): string;
}

export class Deliveries<Call extends { uuid: string; payload: string }, Answer> {
  readonly #delivery: Delivery<Call, Answer>;
  readonly #together: Batch<Call, Answer>;
  readonly #alone: Batch<Call, Answer>;
  readonly #open = new Set<Promise<unknown>>();

  constructor(delivery: Delivery<Call, Answer>) {
    this.#delivery = delivery;
    const options = {
      maxItems: 100,
      isItemFault: (error: unknown) => !isPassingTrouble(error),
      sizeOf: ({ payload }: Call) => payload.length,
      keyOf: (call: Call) => delivery.keyOf(call),
      lineOf: ({ uuid }: Call) => uuid,
    };
    this.#together = new Batch({ ...options, maxFlights: 2, run: (calls) => this.#deliver(calls) });
    this.#alone = new Batch({
      ...options,
      maxItems: 1,
      maxFlights: 5,
      run: async ([call]) => [await delivery.alone(call!)],
    });
  }

  deliver(call: Call): Promise<Answer> {
    const delivering = this.#together.add(call);
    const settled = delivering.catch(() => undefined).finally(() => this.#open.delete(settled));
    this.#open.add(settled);
    return delivering;
  }

  /** Resolves when every call made so far has its answer. */
  async settled(): Promise<void> {
    await Promise.all(this.#open);
  }

  async #deliver(calls: Call[]): Promise<(Answer | Promise<Answer>)[]> {
    const answers = await this.#delivery.together(calls).catch((error: unknown): undefined[] => {
      if (!isLockTimeout(error)) throw error;
      return calls.map(() => undefined);
    });
    return calls.map((call, place) => answers[place] ?? this.#alone.add(call));
  }
}
