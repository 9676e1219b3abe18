/**
 * Appends of different streams, made at the same time, in one statement. Best-effort ones commit without waiting for
 * the disk, so they share statements only with each other. What the shared statement leaves out, because its lease is
 * locked, or it is refused or repeated, is sent alone; no other append waits for it.
 */
import { isPassingTrouble } from '../../contract/errors.ts';
import { Batch } from '../kit/batch.ts';
import { isLockTimeout } from '../database/database.ts';
import { announce, announcedInside } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { writingOf } from './carried.ts';
import { bytesIn, keepsAlike } from './frames.ts';
import { appendFrames, appendToStreams, type AppendAnswer, type AppendCall } from './append.sql.ts';

/** How long appends that others may wait for wait for a lock. */
const PATIENCE_MS = 50;
/** What a frame sends besides its payload, about. */
const FRAME_SIZE = 200;

const BATCH = {
  maxItems: 200,
  keyOf: ({ lease }: AppendCall) => `${lease.uuid}/${lease.attemptIndex}`,
  sizeOf: ({ frames }: AppendCall) => bytesIn(frames) + FRAME_SIZE * frames.length,
  isItemFault: (error: unknown) => !isPassingTrouble(error),
};

type Appending = Batch<AppendCall, AppendAnswer>;

/** Where appends are sent and announced. */
type Sending = Pick<EngineContext, 'database' | 'doorbell' | 'flowWork'>;

export class SharedAppends {
  readonly #context: Sending;
  readonly #durable: Appending;
  readonly #bestEffort: Appending;
  /** Waits for locks, in as many connections as it may use. */
  readonly #alone: Appending;

  constructor(context: Sending) {
    this.#context = context;
    const together = { ...BATCH, maxFlights: 2, run: (calls: AppendCall[]) => this.#run(calls) };
    this.#durable = new Batch(together);
    this.#bestEffort = new Batch(together);
    this.#alone = new Batch({
      ...BATCH,
      maxItems: 1,
      maxFlights: 5,
      run: (calls) => this.#wait(calls[0]!),
    });
  }

  add(call: AppendCall): Promise<AppendAnswer> {
    const isLive = call.frames.every((frame) => frame.mode === 'best_effort');
    return (isLive ? this.#bestEffort : this.#durable).add(call);
  }

  async #run(calls: AppendCall[]): Promise<(AppendAnswer | Promise<AppendAnswer>)[]> {
    // A statement has one set of best-effort options.
    const alike = calls.filter((call) => keepsAlike(call, calls[0]!));
    const sent = alike.length > 1 ? this.#sendMany(alike) : this.#sendOne(alike[0]!);
    const answers = await sent.catch((error: unknown): undefined[] => {
      if (!isLockTimeout(error)) throw error;
      return alike.map(() => undefined);
    });
    const byCall = new Map(alike.map((call, place) => [call, answers[place]]));
    return calls.map((call) => byCall.get(call) ?? this.#alone.add(call));
  }

  async #sendMany(calls: readonly AppendCall[]): Promise<(AppendAnswer | undefined)[]> {
    const answers = await appendToStreams(this.#context.database, calls, PATIENCE_MS);
    const given = answers.flatMap((answer, place) =>
      answer === undefined ? [] : [{ ...answer, uuid: calls[place]!.lease.uuid }],
    );
    announce(this.#context, given);
    return answers;
  }

  /** Only an append that shares its statement with no other can notify inside its transaction. */
  async #sendOne(call: AppendCall): Promise<AppendAnswer[]> {
    const { lease, frames } = call;
    const inside = announcedInside(this.#context, lease.uuid, () => writingOf(lease, frames));
    const answer = await appendFrames(
      this.#context.database,
      call,
      PATIENCE_MS,
      inside?.text ?? null,
    ).finally(inside?.done);
    announce(this.#context, [{ ...answer, uuid: lease.uuid }], inside === undefined ? 'everywhere' : 'here');
    return [answer];
  }

  /** Notifies after the commit: a wait for a lock would keep others from notifying inside their transactions. */
  async #wait(call: AppendCall): Promise<AppendAnswer[]> {
    const answer = await appendFrames(this.#context.database, call, null);
    announce(this.#context, [{ ...answer, uuid: call.lease.uuid }]);
    return [answer];
  }
}
