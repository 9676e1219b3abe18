/**
 * Writes the frames of one run in order: those written within a few milliseconds are sent as one append, and one append
 * is in progress at a time. A handler that is faster than the database waits for room. Frames are checked and encoded
 * before they get here, and nowhere else; a frame that is still refused is dropped alone and reported at the next
 * flush.
 */
import { randomUUID } from 'node:crypto';
import type { WorkerPort } from '../../contract/protocol.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { BestEffortOptions } from '../../contract/streams.ts';
import type { EncodedFrame } from '../../model/frames.ts';
import { insist } from './insist.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import type { Rerun, RunPlace } from './rerun.ts';
import { TaskAborted } from '../task.ts';

/** Frames written within this time are sent together. */
const COALESCE_MS = 5;
/** How much may wait to be sent while writes still resolve at once. It fits into one append, except for patches. */
const ROOM = { frames: 1_000, bytes: 1_048_576 };
/** How much may wait in total, for handlers that do not await their writes. */
const MAX_WAITING = { frames: 100_000, bytes: 67_108_864 };
/** Refusals kept until the next flush: the first ones show what is wrong. */
const MAX_REFUSALS = 100;

const DONE = Promise.resolve();

export interface WrittenFrame {
  frame: EncodedFrame;
  /** How long a best-effort frame is kept. The same for all frames of one run. */
  bestEffort: BestEffortOptions | undefined;
}

interface Entry extends WrittenFrame {
  /** How far a handler that runs again had come. */
  place: RunPlace | undefined;
  /** Set for a write that waits for room. */
  resolve?: () => void;
  reject?: (error: unknown) => void;
}

interface Flush {
  /** How many frames must have been settled. */
  upTo: number;
  resolve(): void;
  reject(error: unknown): void;
}

/** A promise that knows whether anything awaits it: an unobserved failure is reported again. */
class Observed<Value> extends Promise<Value> {
  isObserved = false;

  static override get [Symbol.species](): PromiseConstructor {
    return Promise;
  }

  // oxlint-disable-next-line no-thenable -- overridden to learn whether it is called
  override then<Kept = Value, Mended = never>(
    onKept?: ((value: Value) => Kept | PromiseLike<Kept>) | null,
    onFailed?: ((error: unknown) => Mended | PromiseLike<Mended>) | null,
  ): Promise<Kept | Mended> {
    this.isObserved = true;
    return super.then(onKept, onFailed);
  }

  /** Observes the failure without marking the promise as handled. */
  onFailure(observe: (error: unknown) => void): void {
    super.then(undefined, observe);
  }
}

interface Failing {
  error: unknown;
  /** Undefined when no call is left that could report it. */
  promise: Observed<unknown> | undefined;
}

export class StreamWriter {
  readonly #port: WorkerPort;
  readonly #lease: HeldLease;
  /** Of a run that is not the first. */
  readonly #rerun: Rerun | undefined;
  readonly #ended = new AbortController();
  #queue: Entry[] = [];
  #queuedBytes = 0;
  /** The front of the queue, whose writes have resolved. */
  #roomy = { frames: 0, bytes: 0 };
  /** How many frames were written, and how many of them are stored or refused. */
  #given = 0;
  #settled = 0;
  #hurriedUpTo = 0;
  #flushes: Flush[] = [];
  #refusals: Failing[] = [];
  #sending = false;
  #sentAt = Number.NEGATIVE_INFINITY;
  #hurry: (() => void) | undefined;
  #broken: { error: unknown } | undefined;

  constructor(port: WorkerPort, lease: HeldLease, rerun: Rerun | undefined) {
    this.#port = port;
    this.#lease = lease;
    this.#rerun = rerun;
    lease.signal.addEventListener('abort', () => this.#takeAway(), { once: true });
  }

  /** Aborted when nothing more can be written. */
  get signal(): AbortSignal {
    return AbortSignal.any([this.#lease.signal, this.#ended.signal]);
  }

  /** Throws the reason if nothing more can be written. */
  throwIfOver(): void {
    this.#lease.throwIfStopped();
    if (this.#broken !== undefined) throw this.#broken.error;
    this.#ended.signal.throwIfAborted();
  }

  /** Resolves when there is room for more. */
  write(written: WrittenFrame): Promise<void> {
    this.throwIfOver();
    const bytes = this.#queuedBytes + written.frame.payload.length;
    if (this.#queue.length >= MAX_WAITING.frames || bytes > MAX_WAITING.bytes) {
      const sentence = 'Too much is waiting to be written to the stream: await the writes, or use pipe.';
      throw new EngineError('too_many', sentence, { field: 'frame' });
    }
    const entry: Entry = { ...written, place: this.#rerun?.place };
    this.#queue.push(entry);
    this.#queuedBytes = bytes;
    this.#given += 1;
    this.#makeRoom();
    const isTaken = this.#roomy.frames === this.#queue.length;
    if (this.#isHurried()) this.#hurry?.();
    if (!this.#sending) void this.#sendAll();
    if (isTaken) return DONE;
    const taken = new Promise<void>((resolve, reject) => Object.assign(entry, { resolve, reject }));
    // A caller that does not await it learns of the failure when the handler returns.
    taken.catch(() => undefined);
    return taken;
  }

  /**
   * Returns a promise rejected with the error, which is reported again at the next flush unless the promise is handled.
   */
  refuse(error: unknown): Promise<never> {
    const promise = new Observed<never>((_, reject) => reject(error));
    promise.onFailure(() => undefined);
    this.#remember({ error, promise });
    return promise;
  }

  /** The same for work that may fail later. A lost lease is not reported as a failed write. */
  watched<Value>(work: Promise<Value>): Promise<Value> {
    const promise = new Observed<Value>((resolve, reject) => void work.then(resolve, reject));
    promise.onFailure((error) => {
      if (!(error instanceof TaskAborted)) this.#remember({ error, promise });
    });
    return promise;
  }

  /** Whether no frame is waiting or being sent. */
  get isSettled(): boolean {
    return this.#broken !== undefined || this.#settled >= this.#given;
  }

  /** Resolves when all frames so far are stored or refused; undefined when they are. */
  settled(): Promise<void> | undefined {
    if (this.#broken !== undefined) return Promise.reject(this.#broken.error);
    if (this.#settled >= this.#given) return undefined;
    this.#hurriedUpTo = this.#given;
    this.#hurry?.();
    return new Promise((resolve, reject) => this.#flushes.push({ upTo: this.#given, resolve, reject }));
  }

  /** The same, and throws what was refused since the last flush. */
  async flush(): Promise<void> {
    await this.settled();
    const unobserved = this.#refusals.find(({ promise }) => promise?.isObserved !== true);
    this.#refusals = [];
    if (unobserved !== undefined) throw unobserved.error;
  }

  /** Accepts no more frames; those already accepted are still written. */
  close(): void {
    if (!this.#ended.signal.aborted) this.#ended.abort(new TaskAborted('ended'));
  }

  #remember(refusal: Failing): void {
    if (this.#refusals.length >= MAX_REFUSALS)
      this.#refusals = this.#refusals.filter(({ promise }) => promise?.isObserved !== true);
    if (this.#refusals.length < MAX_REFUSALS) this.#refusals.push(refusal);
  }

  #makeRoom(): void {
    for (;;) {
      const entry = this.#queue[this.#roomy.frames];
      if (entry === undefined) return;
      const bytes = this.#roomy.bytes + entry.frame.payload.length;
      if (this.#roomy.frames >= ROOM.frames || bytes > ROOM.bytes) return;
      this.#roomy = { frames: this.#roomy.frames + 1, bytes };
      entry.resolve?.();
    }
  }

  #isHurried(): boolean {
    return this.#hurriedUpTo > this.#settled || this.#queue.length > this.#roomy.frames;
  }

  async #sendAll(): Promise<void> {
    this.#sending = true;
    while (this.#queue.length > 0) {
      await this.#due();
      const batch = this.#take();
      if (batch.length > 0) await this.#sendNew(batch);
    }
    this.#sending = false;
  }

  /** A frame that follows a pause is sent in this turn of the event loop, together with others of the same turn. */
  #due(): Promise<void> {
    const waitMs = this.#isHurried() ? 0 : this.#sentAt + COALESCE_MS - performance.now();
    return new Promise((resolve) => {
      if (waitMs <= 0) {
        setImmediate(resolve);
        return;
      }
      const go = (): void => {
        clearTimeout(timer);
        this.#hurry = undefined;
        resolve();
      };
      const timer = setTimeout(go, waitMs);
      this.#hurry = go;
    });
  }

  /** The frames whose writes have resolved, up to the number of patches that one append may contain. */
  #take(): Entry[] {
    const ready = this.#queue.slice(0, this.#roomy.frames);
    let patches = 0;
    const end = ready.findIndex(({ frame }) => frame.mode === 'summary' && ++patches > LIMITS.appendPatches);
    const batch = end === -1 ? ready : ready.slice(0, end);
    const bytes = batch.reduce((sum, { frame }) => sum + frame.payload.length, 0);
    this.#queue.splice(0, batch.length);
    this.#queuedBytes -= bytes;
    this.#roomy = { frames: this.#roomy.frames - batch.length, bytes: this.#roomy.bytes - bytes };
    this.#makeRoom();
    return batch;
  }

  /** Sends what no earlier run has written; the rest is stored. */
  async #sendNew(batch: readonly Entry[]): Promise<void> {
    const rerun = this.#rerun;
    if (rerun === undefined) return this.#send(batch);
    const fresh: Entry[] = [];
    try {
      for (const entry of batch) {
        const frame = await rerun.sift(entry.frame, entry.place!);
        if (frame !== undefined) fresh.push({ ...entry, frame });
      }
    } catch (error) {
      return this.#break(error);
    }
    if (fresh.length > 0) await this.#send(fresh);
    this.#settle(batch.length - fresh.length);
  }

  async #send(batch: readonly Entry[]): Promise<void> {
    this.#sentAt = performance.now();
    try {
      await this.#append(batch);
      this.#settle(batch.length);
    } catch (error) {
      if (!isOfFrames(error)) return this.#break(error);
      if (batch.length > 1) {
        // One of them is refused: split the batch so that the others are stored.
        const half = Math.ceil(batch.length / 2);
        await this.#send(batch.slice(0, half));
        return this.#send(batch.slice(half));
      }
      this.#remember({ error, promise: undefined });
      this.#settle(1);
    }
  }

  /** The append has an id: sent again when its reply was lost, it is written once. */
  async #append(batch: readonly Entry[]): Promise<void> {
    const bestEffort = batch.find(isLive)?.bestEffort;
    const options = { appendId: randomUUID(), ...(bestEffort === undefined ? {} : { bestEffort }) };
    const frames = batch.map(({ frame }) => frame);
    const { claim } = this.#lease;
    const outcome = await insist(this.#lease, () => this.#port.appendFrames(claim, frames, options));
    if (outcome.outcome === 'appended') return;
    this.#lease.refused(outcome);
    throw new TaskAborted(this.#lease.lostBy ?? 'lease_lost');
  }

  #settle(frames: number): void {
    this.#settled += frames;
    const over = this.#flushes.filter(({ upTo }) => upTo <= this.#settled);
    if (over.length === 0) return;
    this.#flushes = this.#flushes.filter(({ upTo }) => upTo > this.#settled);
    for (const flush of over) flush.resolve();
  }

  /** Rejects writes that wait for room. Accepted frames are still written if the lease is held. */
  #takeAway(): void {
    const reason: unknown = this.#lease.signal.reason;
    if (this.#lease.lostBy !== undefined) return this.#break(reason);
    const untaken = this.#queue.splice(this.#roomy.frames);
    this.#given -= untaken.length;
    this.#queuedBytes = this.#roomy.bytes;
    for (const entry of untaken) entry.reject?.(reason);
    for (const flush of this.#flushes) flush.upTo = Math.min(flush.upTo, this.#given);
    this.#settle(0);
  }

  #break(error: unknown): void {
    this.#broken ??= { error };
    const [entries, flushes] = [this.#queue, this.#flushes];
    this.#queue = [];
    this.#flushes = [];
    this.#queuedBytes = 0;
    this.#roomy = { frames: 0, bytes: 0 };
    for (const entry of entries) entry.reject?.(error);
    for (const flush of flushes) flush.reject(error);
  }
}

function isLive({ bestEffort }: Entry): boolean {
  return bestEffort !== undefined;
}

function isOfFrames(error: unknown): boolean {
  return isEngineError(error) && error.field?.startsWith('frames') === true;
}
