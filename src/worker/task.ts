/**
 * What a handler is given, and how it says that something went wrong. Handlers know nothing of leases beyond their
 * signal: when it fires, the work is no longer theirs.
 */
import type { Claim, Failure, Json } from '../contract/engine.ts';
import type { ExecutionId } from '../contract/ids.ts';

/** Why a task's signal fired. */
export type AbortCode = 'cancelled' | 'revoked' | 'lease_lost' | 'shutdown';

const ABORT_SENTENCES: Record<AbortCode, string> = {
  cancelled: 'The execution was cancelled.',
  revoked: 'The lease was revoked; another worker takes over.',
  lease_lost: 'The lease ran out or was taken over.',
  shutdown: 'The worker is shutting down; the work was handed back.',
};

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

export interface Task<Payload = Json> {
  readonly executionId: ExecutionId;
  readonly kind: string;
  readonly payload: Payload;
  readonly lane: string;
  readonly namespace: string;
  readonly tags: Readonly<Record<string, string>>;
  /** From 0; grows with each new try. */
  readonly attemptIndex: number;
  /** True when an earlier worker handed this attempt back unfinished. */
  readonly resumed: boolean;
  /** True when the worker before this one lost its lease. */
  readonly reclaimed: boolean;
  /** Fires when the work is no longer this worker's; its reason is a TaskAborted. */
  readonly signal: AbortSignal;
  /**
   * Unique to this lease, for services that fence by equality. It changes with every attempt: for an idempotency
   * key use `executionId`, which does not.
   */
  readonly fence: string;
}

/** Runs one execution; what it returns is the result. */
// oxlint-disable-next-line no-explicit-any -- a table of handlers holds payloads of every shape
export type Handler<Payload = any> = (task: Task<Payload>) => unknown;

/** The signal is asked of the lease when the handler asks for it. */
export function toTask(claim: Claim, lease: { readonly signal: AbortSignal }): Task {
  return {
    executionId: claim.executionId,
    kind: claim.kind,
    payload: claim.payload,
    lane: claim.lane,
    namespace: claim.namespace,
    tags: claim.tags,
    attemptIndex: claim.attemptIndex,
    resumed: claim.resumed,
    reclaimed: claim.reclaimed,
    get signal() {
      return lease.signal;
    },
    fence: `${claim.executionId}/${claim.attemptIndex}/${claim.leaseEpoch}`,
  };
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
  if (thrown instanceof Error) return { message: messageOf(thrown) };
  return { message: `A handler threw something that is not an Error: ${printable(thrown)}` };
}

/** With the cause, which for a failed request is most of what there is to know. */
function messageOf(error: Error): string {
  const own = printable(error.message) || printable(error.name);
  const { cause } = error;
  return cause instanceof Error ? `${own}: ${printable(cause.message)}` : own;
}

function printable(value: unknown): string {
  try {
    return String(value);
  } catch {
    return 'a value that cannot be shown as text';
  }
}
