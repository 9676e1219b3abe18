/**
 * Follows the output of an execution, frame by frame and attempt by attempt, and reports gaps, restarts and closes.
 * Cursors are in cursor.ts, waiting in hub.ts.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { EngineError, isEngineError, isPassingTrouble } from '../../contract/errors.ts';
import { formatExecutionId } from '../../contract/ids.ts';
import { refuse } from '../../contract/shape/shape.ts';
import type { StreamFrame, StreamItem, StreamVisibility } from '../../contract/streams.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import type { FramePlace } from './streams.sql.ts';
import { unlessAborted, whenAborted } from '../../model/aborting.ts';
import { isAfter, isNews, placeAt, restAt, seqOf, type ReaderPlace } from './reader-place.ts';
import type { StreamHub } from './hub.ts';
import type { Head } from './source.ts';

export interface TailStart extends FramePlace {
  attemptIndex: number;
  /** Whether the previous frame is known: only then can a gap after it be noticed. */
  isExact: boolean;
}

export interface TailOptions {
  start: TailStart;
  /** `attempt`: only this attempt. `execution`: later ones, too. */
  follow: 'attempt' | 'execution';
  visibility: StreamVisibility;
  signal: AbortSignal | undefined;
}

/** What a tail reads besides frames. */
export interface TailHistory {
  /** The lease epoch of the frame at a position, or of the last frame before it. */
  epochAt(key: ExecutionKey, attemptIndex: number, place: FramePlace): Promise<number | null>;
  finishedSteps(key: ExecutionKey, attemptIndex: number, beforeEpoch: number): Promise<FinishedStep[]>;
}

interface FinishedStep {
  name: string;
  key: string;
}

type Fact = StreamItem extends infer Item
  ? Item extends StreamItem
    ? Omit<Item, 'cursor' | 'attemptIndex'>
    : never
  : never;

/** An epoch no lease reaches. */
const ANY_LEASE = Number.MAX_SAFE_INTEGER;
/** Delay before asking an unreachable database again. */
const TROUBLE_WAIT_MS = 1_000;
/** How many results tails share, and for how long: a replay may discard finished steps. */
const KEPT = 1_000;
const KEEP_MS = 10_000;

/** One tail of an execution or an attempt. */
export class StreamTail {
  readonly #hub: StreamHub;
  readonly #history: TailHistory;
  readonly #key: ExecutionKey;
  readonly #options: TailOptions;
  #place: ReaderPlace;
  #isExact: boolean;

  constructor(hub: StreamHub, history: TailHistory, key: ExecutionKey, options: TailOptions) {
    this.#hub = hub;
    this.#history = history;
    this.#key = key;
    this.#options = options;
    const { attemptIndex, tsMs, seq, isExact } = options.start;
    this.#place = { ...key, attemptIndex, tsMs, seq, told: null, epoch: null };
    // Whether the attempt exists must be known now, not when something happens.
    if (this.#isFromCursor()) this.#place.told = 'unread';
    this.#isExact = isExact;
  }

  /** One generator without inner ones for frames: with a thousand tails of a stream, each turn counts a thousand times. */
  async *items(): AsyncGenerator<StreamItem, void, undefined> {
    const { signal } = this.#options;
    const leave = this.#hub.admit();
    // Kept for the whole tail, so that its waits need not listen to the AbortSignal anew.
    const stop = whenAborted(signal, () => undefined);
    try {
      const start = this.#place;
      if (start.seq > 0)
        start.epoch = await this.#surely(() => this.#history.epochAt(this.#key, start.attemptIndex, start));
      let isKnown = false;
      for (;;) {
        const read = await this.#hub.next(this.#place, signal);
        if (read === undefined) {
          if (!isKnown) throw notFound(this.#key);
          yield this.#item({ type: 'forgotten' });
          return;
        }
        if (!isKnown && this.#isFromCursor()) checkReached(start.attemptIndex, read.head);
        isKnown = true;
        for (const frame of read.frames) {
          if (!this.#isNextOf(frame)) yield* this.#before(frame);
          this.#place = placeAt(this.#place, frame);
          this.#isExact = true;
          if (this.#isVisible(frame)) yield this.#item({ type: 'frame', frame });
        }
        if (!read.isComplete || !isNews(this.#place, read.head)) continue;
        yield* this.#rest(read.head);
        const hasMovedOn = this.#place.attemptIndex !== read.attemptIndex;
        if (!hasMovedOn && this.#isOver(read.head)) return;
      }
    } finally {
      stop();
      leave();
    }
  }

  /** A cursor of a later attempt implies that the attempt exists; a request for an attempt does not. */
  #isFromCursor(): boolean {
    const { follow, start } = this.#options;
    return start.attemptIndex > 0 && (follow === 'execution' || start.tsMs > 0 || start.seq > 0);
  }

  /** Whether nothing is to be reported before the frame. */
  #isNextOf(frame: StreamFrame): boolean {
    const { epoch, seq } = this.#place;
    return seqOf(frame) === seq + 1 && (epoch === null || frame.leaseEpoch <= epoch);
  }

  /** What lies between the position and the frame: a gap, a restart. */
  async *#before(frame: StreamFrame): AsyncGenerator<StreamItem, void, undefined> {
    const { epoch, seq } = this.#place;
    const next = placeAt(this.#place, frame);
    const missed = next.seq - seq - 1;
    if (missed > 0 && this.#isExact) {
      // A tail resumed after the gap does not report it again.
      this.#place = { ...this.#place, tsMs: next.tsMs, seq: next.seq - 1 };
      yield* this.#gap(missed);
    }
    if (epoch !== null && next.epoch !== epoch) yield await this.#restarted(next.epoch!);
  }

  /** An attempt that continues under another lease writes again what is not in finished steps. */
  async #restarted(leaseEpoch: number): Promise<StreamItem> {
    const finishedSteps = await this.#finishedSteps(leaseEpoch);
    return this.#item({ type: 'restarted', leaseEpoch, finishedSteps });
  }

  #finishedSteps(beforeEpoch: number): Promise<FinishedStep[]> {
    const { attemptIndex } = this.#place;
    const asked = this.#surely(() => this.#history.finishedSteps(this.#key, attemptIndex, beforeEpoch));
    // Copied, because other tails share the result.
    return asked.then((steps) => steps.map((step) => ({ ...step })));
  }

  /** Without best-effort frames there are no gaps. */
  *#gap(missed: number): Generator<StreamItem, void, undefined> {
    if (this.#options.visibility === 'all') yield this.#item({ type: 'gap', missed });
  }

  /** Yields what remains to be reported when all frames were read. */
  async *#rest(head: Head): AsyncGenerator<StreamItem, void, undefined> {
    const before = this.#place;
    const { told, epoch } = (this.#place = restAt(before, head));
    // Frames were trimmed, and nothing was written since.
    const missed = isAfter(head, before) ? head.lastSeq - before.seq : 0;
    if (missed > 0 && this.#isExact) yield* this.#gap(missed);
    if (epoch !== before.epoch) yield await this.#restarted(epoch!);
    if (told !== before.told) {
      if (head.closed !== null) yield this.#item({ type: 'closed', reason: head.closed.reason });
      else if (told !== null && told === head.pausedBy) yield this.#item({ type: 'paused', reason: told });
    }
    if (this.#options.follow === 'execution' && head.currentAttempt > before.attemptIndex)
      yield await this.#superseded();
  }

  /** The item's cursor is the beginning of the next attempt. */
  async #superseded(): Promise<StreamItem> {
    const { attemptIndex } = this.#place;
    const by = attemptIndex + 1;
    const finishedSteps = await this.#finishedSteps(ANY_LEASE);
    this.#place = { ...this.#place, attemptIndex: by, tsMs: 0, seq: 0, told: null, epoch: null };
    this.#isExact = true;
    return { ...this.#item({ type: 'superseded', by, finishedSteps }), attemptIndex };
  }

  /** Retries while the database is unreachable: an outage does not end a tail. */
  async #surely<Value>(ask: () => Promise<Value>): Promise<Value> {
    const { signal } = this.#options;
    for (;;) {
      try {
        return await unlessAborted(signal, ask());
      } catch (error) {
        if (!isPassingTrouble(error) || (isEngineError(error) && error.code === 'closed')) throw error;
      }
      await unlessAborted(signal, delay(TROUBLE_WAIT_MS, undefined, { ref: false }));
    }
  }

  #isOver(head: Head): boolean {
    const { attemptIndex } = this.#place;
    if (this.#options.follow === 'attempt')
      return head.closed !== null || head.currentAttempt > attemptIndex || head.phase === 'terminal';
    return head.phase === 'terminal' && head.currentAttempt <= attemptIndex;
  }

  #isVisible({ mode }: StreamFrame): boolean {
    return this.#options.visibility === 'all' || mode !== 'best_effort';
  }

  #item(fact: Fact): StreamItem {
    const { attemptIndex, tsMs, seq } = this.#place;
    const id = `${tsMs}-${seq}`;
    const cursor = this.#options.follow === 'attempt' ? id : `${attemptIndex}/${id}`;
    return { cursor, attemptIndex, ...fact } as StreamItem;
  }
}

/** Shares recent results between tails, so that each is read once. */
export class SharedHistory implements TailHistory {
  readonly #history: TailHistory;
  readonly #steps = new Map<string, { atMs: number; answer: Promise<FinishedStep[]> }>();

  constructor(history: TailHistory) {
    this.#history = history;
  }

  epochAt(key: ExecutionKey, attemptIndex: number, place: FramePlace): Promise<number | null> {
    return this.#history.epochAt(key, attemptIndex, place);
  }

  finishedSteps(key: ExecutionKey, attemptIndex: number, beforeEpoch: number): Promise<FinishedStep[]> {
    const name = `${key.partition}/${key.uuid}/${attemptIndex}/${beforeEpoch}`;
    const now = performance.now();
    const known = this.#steps.get(name);
    if (known !== undefined && now - known.atMs < KEEP_MS) return known.answer;
    const answer = this.#history.finishedSteps(key, attemptIndex, beforeEpoch);
    const entry = { atMs: now, answer };
    // Re-inserted as the newest entry.
    this.#steps.delete(name);
    this.#steps.set(name, entry);
    if (this.#steps.size > KEPT) this.#steps.delete(this.#steps.keys().next().value!);
    answer.catch(() => {
      if (this.#steps.get(name) === entry) this.#steps.delete(name);
    });
    return answer;
  }
}

function checkReached(attemptIndex: number, { currentAttempt }: Head): void {
  if (attemptIndex <= currentAttempt) return;
  const what = `belongs to attempt ${attemptIndex}, but the execution is in attempt ${currentAttempt}`;
  refuse('request.after', what, 'invalid_cursor');
}

function notFound({ partition, uuid }: ExecutionKey): EngineError {
  return new EngineError('not_found', `There is no execution ${formatExecutionId(partition, uuid)}.`, {
    field: 'executionId',
  });
}
