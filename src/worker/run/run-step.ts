/**
 * Runs the function of one step: its tries, its time limit, its AbortSignal. What is stored is decided elsewhere.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { durationMs } from '../../contract/shape/duration.ts';
import { parsed, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { StepKey } from '../../contract/steps.ts';
import type { ParentChange } from '../../contract/streams.ts';
import { backoffMs, DEFAULT_BACKOFF, type StoredBackoff } from '../../model/retry.ts';
import { callAfter, MAX_TIMEOUT_MS } from './long-timer.ts';
import type { StepOptions, StepScope } from '../../define/task-context.ts';
import { shape } from '../../contract/shape/shape.ts';
import { backoffKind, storedBackoff } from '../../model/backoff.ts';
import { TaskAborted, TaskFailed } from '../task.ts';

export interface StepPlan {
  maxRetries: number;
  backoff: StoredBackoff;
  timeoutMs: number | undefined;
}

/** One try of a step. */
export interface StepTry extends Required<StepKey> {
  readonly tryIndex: number;
  /** The run it belongs to: code woken by another run must not be attributed to that run's steps. */
  readonly run: AbortSignal;
  /** Aborted when it has failed or timed out; its function may still be running then. */
  readonly over: AbortSignal;
  /** Changes of the parent's document that are applied when the step is stored. */
  readonly forParent: ParentChange[];
}

/** Output may be written from anywhere: this distinguishes concurrent steps and their tries. */
const insideTry = new AsyncLocalStorage<StepTry>();

/** The try the caller is in, if it belongs to the run with this AbortSignal. */
export function currentTry(run: AbortSignal): StepTry | undefined {
  const own = insideTry.getStore();
  return own?.run === run ? own : undefined;
}

/** Thrown in what a finished try left running: the next try does its work. */
class TryOver extends TaskAborted {
  constructor(name: string, tryIndex: number) {
    super('ended');
    this.message = `Try ${tryIndex} of step "${name}" has finished; what it left running can write nothing more.`;
  }
}

const NO_PLAN: StepPlan = { maxRetries: 0, backoff: DEFAULT_BACKOFF, timeoutMs: undefined };

const stepOptions = shape<StepOptions>({
  retry: shape<NonNullable<StepOptions['retry']>>({
    maxRetries: whole(0, LIMITS.maxRetries),
    backoff: backoffKind.optional(),
  }).optional(),
  timeout: parsed.optional(),
});

/** Checked before anything runs. */
export function planOf(options: StepOptions | undefined): StepPlan {
  if (options === undefined) return NO_PLAN;
  const { retry, timeout } = stepOptions.check(options, 'options');
  return {
    maxRetries: retry?.maxRetries ?? 0,
    backoff: storedBackoff(retry?.backoff),
    timeoutMs: timeout === undefined ? undefined : durationMs(timeout, 'options.timeout', LIMITS.delayMs),
  };
}

/** What the try that succeeded has made. */
interface StepDone {
  value: unknown;
  forParent: readonly ParentChange[];
}

/** Retries until it succeeds, has no tries left, fails with an error that must not be retried, or loses the lease. */
export async function runStep(
  { name, key }: Required<StepKey>,
  fn: (scope: StepScope) => unknown,
  plan: StepPlan,
  signal: AbortSignal,
): Promise<StepDone> {
  for (let tryIndex = 0; ; tryIndex += 1) {
    signal.throwIfAborted();
    const over = new AbortController();
    const own: StepTry = { name, key, tryIndex, run: signal, over: over.signal, forParent: [] };
    try {
      const value = await insideTry.run(own, () => tryOnce(name, fn, plan, signal, tryIndex));
      return { value, forParent: own.forParent };
    } catch (error) {
      over.abort(new TryOver(name, tryIndex));
      const hopeless =
        error instanceof TaskAborted || (error instanceof TaskFailed && error.options.retry === 'never');
      if (signal.aborted || hopeless || tryIndex >= plan.maxRetries) throw error;
      const waitMs = Math.min(backoffMs(plan.backoff, tryIndex, Math.random()), MAX_TIMEOUT_MS);
      await delay(waitMs, undefined, { signal }).catch(() => undefined);
    }
  }
}

/** Since a time of the monotonic clock, as it is stored with a step. */
export function stepDuration(begunMs: number): number {
  return Math.min(Math.round(performance.now() - begunMs), LIMITS.stepDurationMs);
}

async function tryOnce(
  name: string,
  fn: (scope: StepScope) => unknown,
  plan: StepPlan,
  signal: AbortSignal,
  tryIndex: number,
): Promise<unknown> {
  const { timeoutMs } = plan;
  if (timeoutMs === undefined) return fn({ signal, tryIndex });
  const limit = new AbortController();
  const late = new TaskFailed(`Step "${name}" took longer than ${timeoutMs} ms.`, {
    category: 'timeout',
  });
  let callOff: (() => void) | undefined;
  const over = new Promise<never>((_, reject) => {
    callOff = callAfter(timeoutMs, () => {
      limit.abort(late);
      reject(late);
    });
  });
  try {
    return await Promise.race([fn({ signal: AbortSignal.any([signal, limit.signal]), tryIndex }), over]);
  } finally {
    callOff?.();
  }
}
