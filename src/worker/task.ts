/**
 * How an execution is taken away from a handler, and how a handler reports a failure. Handlers know nothing of leases
 * beyond their AbortSignal: once it is aborted, the execution is no longer theirs.
 */
import { inspect } from 'node:util';
import { msOf, type Duration } from '../contract/shape/duration.ts';
import type { Failure } from '../contract/protocol.ts';
import { isEngineError, type EngineError, type ErrorCode } from '../contract/errors.ts';
import { categoryOf } from './category.ts';
import { detailOf } from './failure-detail.ts';

/** Why a task's AbortSignal was aborted. */
export type AbortCode = 'cancelled' | 'revoked' | 'lease_lost' | 'deadline' | 'paused' | 'shutdown' | 'ended';

const ABORT_SENTENCES: Record<AbortCode, string> = {
  cancelled: 'The execution was cancelled.',
  revoked: 'The lease was revoked; another worker takes over.',
  lease_lost: 'The lease expired or was taken over.',
  deadline: 'The attempt timed out, or the deadline of the execution has passed.',
  paused: 'The execution is paused; it continues from its last finished step.',
  ended: 'The handler has finished; what it left running can do nothing more.',
  shutdown: 'The worker is shutting down; the execution was handed back.',
};

/** How much is shown of an object that was thrown. */
const SHOWN = { depth: 2, breakLength: Infinity, maxArrayLength: 10, maxStringLength: 200 };

/** The abort reason of a task's AbortSignal. */
export class TaskAborted extends Error {
  override readonly name = 'TaskAborted';
  readonly code: AbortCode;

  constructor(code: AbortCode) {
    super(ABORT_SENTENCES[code]);
    this.code = code;
  }
}

/** How a failure is treated. */
export interface TaskFailedOptions extends Pick<Failure, 'category' | 'retry'> {
  /** Replaces the policy's delay when the failure is retried. */
  retryAfter?: Duration;
}

/** Throw this from a handler to control how its failure is treated. Any other error is retried according to the policy. */
export class TaskFailed extends Error {
  override readonly name = 'TaskFailed';
  readonly options: TaskFailedOptions;

  constructor(message: string, options: TaskFailedOptions = {}) {
    super(message);
    this.options = options;
  }
}

/** Names a run at the start of a message. */
export function subjectOf(run: { kind: string; executionId: string }): string {
  return `Task ${run.kind} (${run.executionId})`;
}

/** The failure to report for whatever a handler threw. Never throws itself: a failure report must not fail. */
export function toFailure(thrown: unknown): Failure {
  try {
    return withDetail(describeThrown(thrown), thrown);
  } catch {
    return { message: 'A handler threw a value that cannot be inspected.' };
  }
}

function withDetail(failure: Failure, thrown: unknown): Failure {
  const detail = detailOf(thrown);
  return detail === undefined ? failure : { ...failure, detail };
}

function describeThrown(thrown: unknown): Failure {
  if (thrown instanceof TaskFailed) {
    const { retryAfter, ...options } = thrown.options;
    // An invalid one is refused where failures are reported, which then reports the failure without it.
    const delay = retryAfter === undefined ? {} : { retryAfterMs: msOf(retryAfter) };
    return { message: printable(thrown.message), ...options, ...delay };
  }
  if (isMisuse(thrown)) return { message: messageOf(thrown), category: 'permanent', retry: 'never' };
  if (thrown instanceof Error) return withCategory({ message: messageOf(thrown) }, categoryOf(thrown));
  return { message: `A handler threw a value that is not an Error: ${shown(thrown)}` };
}

function withCategory(failure: Failure, category: string | undefined): Failure {
  return category === undefined ? failure : { ...failure, category };
}

const MISUSES: readonly ErrorCode[] = [
  'invalid_step',
  'invalid_input',
  'payload_too_large',
  'too_many',
  'cycle',
  'not_a_member',
  'flow_ended',
  'already_started',
];

/** What the engine refused as invalid would be refused the next time too. */
function isMisuse(thrown: unknown): thrown is EngineError {
  return isEngineError(thrown) && MISUSES.includes(thrown.code);
}

/** With the cause, which for a failed request is the informative part. Causes of the engine's errors are left out: they may quote data. */
function messageOf(error: Error): string {
  const own = printable(error.message) || printable(error.name);
  const cause = isEngineError(error) ? undefined : error.cause;
  return cause instanceof Error ? `${own}: ${printable(cause.message)}` : own;
}

/** As a string, an object would show its class and nothing else. */
function shown(value: unknown): string {
  return typeof value === 'object' && value !== null ? inspect(value, SHOWN) : printable(value);
}

function printable(value: unknown): string {
  try {
    return String(value);
  } catch {
    return 'a value that cannot be converted to a string';
  }
}
