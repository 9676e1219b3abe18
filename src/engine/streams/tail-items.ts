/**
 * What a tail yields: the frames of its reads, one by one, and before, between and after them what is to be reported of
 * gaps, restarts and closes. When it is asked is decided in tail.ts.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { EngineError, isEngineError, isPassingTrouble } from '../../contract/errors.ts';
import { formatExecutionId } from '../../contract/ids.ts';
import { refuse } from '../../contract/shape/shape.ts';
import type { StreamFrame, StreamItem, StreamVisibility } from '../../contract/streams.ts';
import { unlessAborted } from '../../model/aborting.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import { isAfter, isNews, placeAt, restAt, seqOf, type ReaderPlace } from './reader-place.ts';
import type { Head, StreamRead } from './source.ts';
import type { FramePlace } from './streams.sql.ts';
import type { FinishedStep, TailHistory } from './tail-history.ts';

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

type Fact = StreamItem extends infer Item
  ? Item extends StreamItem
    ? Omit<Item, 'cursor' | 'attemptIndex'>
    : never
  : never;

/** An epoch no lease reaches. */
const ANY_LEASE = Number.MAX_SAFE_INTEGER;
/** Delay before asking an unreachable database again. */
const TROUBLE_WAIT_MS = 1_000;

/** The items of one tail. */
export class TailItems {
  readonly #history: TailHistory;
  readonly #key: ExecutionKey;
  readonly #options: TailOptions;
  /** Ends what is read here. */
  readonly #signal: AbortSignal;
  readonly #seesAll: boolean;
  #place: ReaderPlace;
  #isExact: boolean;
  #isKnown = false;
  /** The read it has got, and which frame of it is next. */
  #read: StreamRead | undefined;
  #index = 0;
  /** Where this read leads, if there is nothing to report but its frames. */
  #calm: ReaderPlace | undefined;
  /** What comes before the next frame was reported. */
  #isReported = false;
  readonly #reports: StreamItem[] = [];
  #isOver = false;

  constructor(history: TailHistory, key: ExecutionKey, options: TailOptions, signal: AbortSignal) {
    this.#history = history;
    this.#key = key;
    this.#options = options;
    this.#signal = signal;
    this.#seesAll = options.visibility === 'all';
    const { attemptIndex, tsMs, seq, isExact } = options.start;
    this.#place = { ...key, attemptIndex, tsMs, seq, told: null, epoch: null };
    // Whether the attempt exists must be known now, not when something happens.
    if (this.#isFromCursor()) this.#place.told = 'unread';
    this.#isExact = isExact;
  }

  /** Where to wait for news. */
  get place(): ReaderPlace {
    return this.#place;
  }

  /** Whether nothing follows what is ready. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Reads what must be known before anything else. */
  async start(): Promise<void> {
    const start = this.#place;
    if (start.seq > 0)
      start.epoch = await this.#surely(() => this.#history.epochAt(this.#key, start.attemptIndex, start));
  }

  /** Takes news: undefined when the execution is gone. */
  accept(read: StreamRead | undefined, calm: ReaderPlace | undefined): void {
    if (read === undefined) {
      if (!this.#isKnown) throw notFound(this.#key);
      this.#reports.push(this.#item({ type: 'forgotten' }));
      this.#isOver = true;
      return;
    }
    if (!this.#isKnown && this.#isFromCursor()) checkReached(this.#place.attemptIndex, read.head);
    this.#isKnown = true;
    this.#read = read;
    this.#index = 0;
    this.#calm = calm;
    this.#isReported = false;
  }

  /** A cursor of a later attempt implies that the attempt exists; a request for an attempt does not. */
  #isFromCursor(): boolean {
    const { follow, start } = this.#options;
    return start.attemptIndex > 0 && (follow === 'execution' || start.tsMs > 0 || start.seq > 0);
  }

  /** The next item, if there is one that needs no wait. */
  ready(): StreamItem | undefined {
    if (this.#reports.length > 0) return this.#reports.shift();
    if (this.#read === undefined) return undefined;
    const { frames } = this.#read;
    while (this.#index < frames.length) {
      const frame = frames[this.#index]!;
      if (!this.#isReported && !this.#isNextOf(frame)) return undefined;
      this.#index += 1;
      const isLast = this.#index === frames.length;
      this.#place = isLast && this.#calm !== undefined ? this.#calm : placeAt(this.#place, frame);
      this.#isExact = true;
      this.#isReported = false;
      if (this.#seesAll || frame.mode !== 'best_effort') return this.#frameItem(frame);
    }
    // Not kept during a wait, which may be long.
    if (!this.hasReport()) this.#read = undefined;
    return undefined;
  }

  /** Whether there is something to report besides frames. */
  hasReport(): boolean {
    const read = this.#read;
    if (read === undefined) return false;
    if (this.#index < read.frames.length) return true;
    return this.#calm === undefined && read.isComplete && isNews(this.#place, read.head);
  }

  async report(): Promise<void> {
    const read = this.#read!;
    const frame = read.frames[this.#index];
    if (frame !== undefined) {
      await this.#reportBefore(frame);
      this.#isReported = true;
      return;
    }
    this.#read = undefined;
    await this.#reportRest(read.head);
    const hasMovedOn = this.#place.attemptIndex !== read.attemptIndex;
    this.#isOver = !hasMovedOn && this.#endsWith(read.head);
  }

  /** Whether nothing is to be reported before the frame. */
  #isNextOf(frame: StreamFrame): boolean {
    const { epoch, seq } = this.#place;
    const isSame = epoch === null || frame.child !== null || frame.leaseEpoch <= epoch;
    return isSame && seqOf(frame) === seq + 1 && frame.supersedes === null;
  }

  /** What lies between the position and the frame: a gap, another lease, a restart. */
  async #reportBefore(frame: StreamFrame): Promise<void> {
    const { epoch, seq } = this.#place;
    const next = placeAt(this.#place, frame);
    const missed = next.seq - seq - 1;
    if (missed > 0 && this.#isExact) {
      // A tail resumed after the gap does not report it again.
      this.#place = { ...this.#place, tsMs: next.tsMs, seq: next.seq - 1 };
      this.#reportGap(missed);
    }
    if (epoch !== null && next.epoch !== epoch) await this.#reportResumed(next.epoch!);
    const { supersedes: from, frameType: stream, mode } = frame;
    if (from !== null) this.#reports.push(this.#item({ type: 'restarted', stream, mode, from }));
  }

  /** An attempt that continues under another lease writes again what is in steps that are not finished. */
  async #reportResumed(leaseEpoch: number): Promise<void> {
    const finishedSteps = await this.#finishedSteps(leaseEpoch);
    this.#reports.push(this.#item({ type: 'resumed', leaseEpoch, finishedSteps }));
  }

  #finishedSteps(beforeEpoch: number): Promise<FinishedStep[]> {
    const { attemptIndex } = this.#place;
    const asked = this.#surely(() => this.#history.finishedSteps(this.#key, attemptIndex, beforeEpoch));
    // Copied, because other tails share the result.
    return asked.then((steps) => steps.map((step) => ({ ...step })));
  }

  /** Without best-effort frames there are no gaps. */
  #reportGap(missed: number): void {
    if (this.#seesAll) this.#reports.push(this.#item({ type: 'gap', missed }));
  }

  /** Reports what remains when all frames were read. */
  async #reportRest(head: Head): Promise<void> {
    const before = this.#place;
    const { told, epoch } = (this.#place = restAt(before, head));
    // Frames were trimmed, and nothing was written since.
    const missed = isAfter(head, before) ? head.lastSeq - before.seq : 0;
    if (missed > 0 && this.#isExact) this.#reportGap(missed);
    if (epoch !== before.epoch) await this.#reportResumed(epoch!);
    if (told !== before.told) {
      if (head.closed !== null)
        this.#reports.push(this.#item({ type: 'closed', reason: head.closed.reason }));
      else if (told !== null && told === head.pausedBy)
        this.#reports.push(this.#item({ type: 'paused', reason: told }));
    }
    if (this.#options.follow === 'execution' && head.currentAttempt > before.attemptIndex)
      await this.#reportSuperseded();
  }

  /** The item's cursor is the beginning of the next attempt. */
  async #reportSuperseded(): Promise<void> {
    const { attemptIndex } = this.#place;
    const by = attemptIndex + 1;
    const finishedSteps = await this.#finishedSteps(ANY_LEASE);
    this.#place = { ...this.#place, attemptIndex: by, tsMs: 0, seq: 0, told: null, epoch: null };
    this.#isExact = true;
    this.#reports.push({ ...this.#item({ type: 'superseded', by, finishedSteps }), attemptIndex });
  }

  /** Retries while the database is unreachable: an outage does not end a tail. */
  async #surely<Value>(ask: () => Promise<Value>): Promise<Value> {
    const signal = this.#signal;
    for (;;) {
      try {
        return await unlessAborted(signal, ask());
      } catch (error) {
        if (!isPassingTrouble(error) || (isEngineError(error) && error.code === 'closed')) throw error;
      }
      await unlessAborted(signal, delay(TROUBLE_WAIT_MS, undefined, { ref: false }));
    }
  }

  #endsWith(head: Head): boolean {
    const { attemptIndex } = this.#place;
    if (this.#options.follow === 'attempt')
      return head.closed !== null || head.currentAttempt > attemptIndex || head.phase === 'terminal';
    return head.phase === 'terminal' && head.currentAttempt <= attemptIndex;
  }

  #frameItem(frame: StreamFrame): StreamItem {
    const { id, attemptIndex } = frame;
    const cursor = this.#options.follow === 'attempt' ? id : `${attemptIndex}/${id}`;
    return { cursor, attemptIndex, type: 'frame', frame };
  }

  #item(fact: Fact): StreamItem {
    const { attemptIndex, tsMs, seq } = this.#place;
    const id = `${tsMs}-${seq}`;
    const cursor = this.#options.follow === 'attempt' ? id : `${attemptIndex}/${id}`;
    return { cursor, attemptIndex, ...fact } as StreamItem;
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
