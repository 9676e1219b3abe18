/**
 * Signals made at the same time, in one statement, in order for each execution. One to an execution that another
 * transaction has locked is left out by that statement, and waits alone; no other signal waits for it.
 */
import { isPassingTrouble } from '../../contract/errors.ts';
import { isLockTimeout, type Database } from '../database/database.ts';
import { Batch } from '../kit/batch.ts';
import { deliverSignal, deliverSignals, type SignalAnswer, type SignalCall } from './signals.sql.ts';

const BATCH = {
  maxItems: 100,
  isItemFault: (error: unknown) => !isPassingTrouble(error),
  sizeOf: ({ payload }: SignalCall) => payload.length,
  keyOf: ({ signalId }: SignalCall) => signalId,
  lineOf: ({ uuid }: SignalCall) => uuid,
};

export class Deliveries {
  readonly #database: Database;
  readonly #together: Batch<SignalCall, SignalAnswer>;
  /** Each waits for its row as long as a person would. */
  readonly #alone: Batch<SignalCall, SignalAnswer>;
  readonly #open = new Set<Promise<unknown>>();

  constructor(database: Database) {
    this.#database = database;
    this.#together = new Batch({ ...BATCH, maxFlights: 2, run: (calls) => this.#deliver(calls) });
    this.#alone = new Batch({
      ...BATCH,
      maxItems: 1,
      maxFlights: 5,
      run: async ([call]) => [await deliverSignal(database, call!)],
    });
  }

  deliver(call: SignalCall): Promise<SignalAnswer> {
    const delivering = this.#together.add(call);
    const settled = delivering.catch(() => undefined).finally(() => this.#open.delete(settled));
    this.#open.add(settled);
    return delivering;
  }

  /** Resolves when every call made so far has its answer. */
  async settled(): Promise<void> {
    await Promise.all(this.#open);
  }

  async #deliver(calls: SignalCall[]): Promise<(SignalAnswer | Promise<SignalAnswer>)[]> {
    const answers = await deliverSignals(this.#database, calls).catch((error: unknown): undefined[] => {
      if (!isLockTimeout(error)) throw error;
      return calls.map(() => undefined);
    });
    return calls.map((call, place) => answers[place] ?? this.#alone.add(call));
  }
}
