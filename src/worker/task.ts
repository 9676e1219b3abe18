/**
 * How work is taken from a handler, and how a handler says that something went wrong. Handlers know nothing of leases
 * beyond their signal: when it fires, the work is no longer theirs.
 */
import { inspect } from 'node:util';
import type { Failure } from '../contract/protocol.ts';
import { isEngineError, type EngineError, type ErrorCode } from '../contract/errors.ts';

/** Why a task's signal fired. */
export type AbortCode = 'cancelled' | 'revoked' | 'lease_lost' | 'deadline' | 'paused' | 'shutdown' | 'ended';

const ABORT_SENTENCES: Record<AbortCode, string> = {
  cancelled: 'The execution was cancelled.',
  revoked: 'The lease was revoked; another worker takes over.',
  lease_lost: 'The lease ran out or was taken over.',
  deadline: 'The time of the attempt, or of the whole execution, is over.',
  paused: 'The execution is paused; it goes on from its last finished step.',
  ended: 'The handler is over; what it left running can do nothing more.',
  shutdown: 'The worker is shutting down; the work was handed back.',
};

/** How much is told of an object that was thrown. */
const SHOWN = { depth: 2, breakLength: Infinity, maxArrayLength: 10, maxStringLength: 200 };

/** The reason of an aborted task's signal. */
export class TaskAborted extends Error {
  override readonly name = 'TaskAborted';
  readonly code: AbortCode;

  constructor(code: AbortCode) {
    super(ABORT_SENTENCES[code]);
    this.code = code;
  }
}

/** Throw this from a handler to say how a failure is to be treated. Any other error is retried as the policy says. */
export class TaskFailed extends Error {
  override readonly name = 'TaskFailed';
  readonly options: Omit<Failure, 'message'>;

  constructor(message: string, options: Omit<Failure, 'message'> = {}) {
    super(message);
    this.options = options;
  }
}

/** Whom a sentence about a run is about. */
export function subjectOf(run: { kind: string; executionId: string }): string {
  return `Task ${run.kind} (${run.executionId})`;
}

/** The failure to report for whatever a handler threw. Never throws itself: a failure report must not fail. */
export function toFailure(thrown: unknown): Failure {
  try {
    return describeThrown(thrown);
  } catch {
    return { message: 'A handler threw something that cannot be looked at.' };
  }
}

function describeThrown(thrown: unknown): Failure {
  if (thrown instanceof TaskFailed) return { message: printable(thrown.message), ...thrown.options };
  if (isMisuse(thrown)) return { message: messageOf(thrown), category: 'permanent', retry: 'never' };
  if (thrown instanceof Error) return { message: messageOf(thrown) };
  return { message: `A handler threw something that is not an Error: ${shown(thrown)}` };
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

/** What the engine refused as malformed will be refused the next time too. */
function isMisuse(thrown: unknown): thrown is EngineError {
  return isEngineError(thrown) && MISUSES.includes(thrown.code);
}

/** With the cause, which for a failed request is most of what there is to know. The engine's own may quote data. */
function messageOf(error: Error): string {
  const own = printable(error.message) || printable(error.name);
  const cause = isEngineError(error) ? undefined : error.cause;
  return cause instanceof Error ? `${own}: ${printable(cause.message)}` : own;
}

/** An object as text would be its class and nothing else. */
function shown(value: unknown): string {
  return typeof value === 'object' && value !== null ? inspect(value, SHOWN) : printable(value);
}

function printable(value: unknown): string {
  try {
    return String(value);
  } catch {
    return 'a value that cannot be shown as text';
  }
}
