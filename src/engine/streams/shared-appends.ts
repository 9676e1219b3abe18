/**
 * Appends of different streams, made at the same time, in one statement. Best-effort ones commit without waiting for
 * the disk, so they share statements only with each other. What the shared statement leaves out, because its lease is
 * locked, or it is refused or repeated, is sent alone; no other append waits for it.
 */
import { isPassingTrouble } from '../../contract/errors.ts';
import { isOfRerun } from '../../model/frames.ts';
import { Batch } from '../kit/batch.ts';
import { isLockTimeout } from '../database/database.ts';
import { announce, announcedInside } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { writingOf } from './carried.ts';
import { bytesIn, keepsAlike } from './frames.ts';
import { appendFrames, type AppendAnswer, type AppendCall } from './append.sql.ts';
import { appendToStreams } from './append-together.sql.ts';

/** How long appends that others may wait for wait for a lock. */
const PATIENCE_MS = 50;
/** What a frame sends besides its payload, about. */
const FRAME_SIZE = 200;

/** Appends in one statement. */
const MOST = 200;
/** If more are waiting, half of them leave in one statement and half in another. */
const WHOLE = 32;

const BATCH = {
  keyOf: ({ lease }: AppendCall) => `${lease.uuid}/${lease.attemptIndex}`,
  sizeOf: ({ frames }: AppendCall) => bytesIn(frames) + FRAME_SIZE * frames.length,
  isItemFault: (error: unknown) => !isPassingTrouble(error),
};

type Appending = Pick<Batch<AppendCall, AppendAnswer>, 'add'>;

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
    this.#durable = inTwoFlights((calls) => this.#run(calls));
    this.#bestEffort = inTwoFlights((calls) => this.#run(calls));
    this.#alone = new Batch({
      ...BATCH,
      maxItems: 1,
      maxFlights: 5,
      run: (calls) => this.#wait(calls[0]!),
    });
  }

  add(call: AppendCall): Promise<AppendAnswer> {
    // The statement for many knows nothing of handlers that run again: they are few.
    if (call.frames.some(isOfRerun)) return this.#alone.add({ ...call, isOfRerun: true });
    const isLive = call.frames.every(({ mode }) => mode === 'best_effort');
    return (isLive ? this.#bestEffort : this.#durable).add(call);
  }

  async #run(calls: AppendCall[]): Promise<(AppendAnswer | Promise<AppendAnswer>)[]> {
    // A statement has one set of best-effort options.
    const alike = calls.filter((call) => keepsAlike(call, calls[0]!));
    const answers = await this.#sent(alike);
    let place = 0;
    return calls.map((call) => {
      const answer = call === alike[place] ? answers[place++] : undefined;
      return answer ?? this.#alone.add(call);
    });
  }

  /** Undefined for what has to be sent alone. */
  async #sent(calls: readonly AppendCall[]): Promise<readonly (AppendAnswer | undefined)[]> {
    try {
      return await (calls.length > 1 ? this.#sendMany(calls) : this.#sendOne(calls[0]!));
    } catch (error) {
      if (!isLockTimeout(error)) throw error;
      return [];
    }
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
    const { lease, frames, mayCarry = false } = call;
    const inside = announcedInside(this.#context, lease.uuid, () =>
      mayCarry ? writingOf(lease, frames) : undefined,
    );
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

/**
 * Callers that await each answer are in step with each other: all would leave in one statement, and the database would
 * wait while this process prepares the next, and this process while the database writes. Halves take turns.
 */
function inTwoFlights(
  run: (calls: AppendCall[]) => Promise<(AppendAnswer | Promise<AppendAnswer>)[]>,
): Appending {
  let waiting = 0;
  const batch = new Batch<AppendCall, AppendAnswer>({
    ...BATCH,
    get maxItems() {
      return waiting > WHOLE ? Math.min(MOST, Math.ceil(waiting / 2)) : WHOLE;
    },
    maxFlights: 2,
    run(calls) {
      // Some are sent again after an error, and were counted before.
      waiting = Math.max(0, waiting - calls.length);
      return run(calls);
    },
  });
  return {
    add(call) {
      waiting += 1;
      return batch.add(call);
    },
  };
}
