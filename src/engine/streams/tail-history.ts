/**
 * What tails read besides frames, shared: a thousand tails of one stream ask for the same at the same time.
 */
import type { ExecutionKey } from '../executions/executions.sql.ts';
import type { FramePlace } from './streams.sql.ts';

/** What a tail reads besides frames. */
export interface TailHistory {
  /** The lease epoch of the frame at a position, or of the last frame before it. */
  epochAt(key: ExecutionKey, attemptIndex: number, place: FramePlace): Promise<number | null>;
  finishedSteps(key: ExecutionKey, attemptIndex: number, beforeEpoch: number): Promise<FinishedStep[]>;
}

export interface FinishedStep {
  name: string;
  key: string;
}

/** How many results tails share, and for how long: a replay may discard finished steps. */
const KEPT = 1_000;
const KEEP_MS = 10_000;

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
