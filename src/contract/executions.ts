/**
 * Executions: what is submitted, what can be read, and how one can finish. Listing many and acting on them is in
 * operations.ts.
 */
import type { FailureDetail } from './failure-detail.ts';
import type { ExecutionId } from './ids.ts';
import type { Json } from './json.ts';
import type { ExecutionPolicy } from './policy.ts';
import type { AttemptOutcome, LifecyclePhase, PublicState, StateVector, TerminalOutcome } from './states.ts';
import type { Duration } from './shape/duration.ts';
import type { SqlExecutor } from './transactions.ts';

/** One execution to submit. */
export interface SubmitRequest {
  /** What to run: the name a worker registers a handler under. */
  kind: string;
  payload?: unknown;
  /** The queue. Default `default`. */
  lane?: string;
  /** Which application or tenant it belongs to. Default `default`. */
  namespace?: string;
  /** 0 to 9,000; higher runs first. Default 0. */
  priority?: number;
  /** Only workers that offer all of these may run it. Default: none. */
  capabilities?: string[];
  tags?: Record<string, string>;
  /** Keys left out are taken from the connection's default policy. */
  policy?: ExecutionPolicy;
  /** How long to wait before it becomes claimable, by the database's clock. Default 0. */
  delay?: Duration;
  /** Makes the submit repeatable: a second one with the same id returns `duplicate`. Default: a new id. */
  executionId?: string;
  /**
   * Makes the submit repeatable within the namespace: a second one returns `duplicate` and the first one's id. Beside a
   * `key` it is meant under that key.
   */
  idempotencyKey?: string;
  /**
   * Names the execution within its namespace: it can be found by it, and no two that are open have the same. Cannot be
   * given together with `executionId`, nor to children and members of flows, and must not look like an id.
   */
  key?: string;
  /**
   * With `key`: what to do when it names an execution that has not finished. `attach` submits nothing and returns
   * `attached` with that one's id; it throws `key_of_another_task` if that one is of another kind. `refuse` submits
   * nothing and returns `refused`. `replace` cancels that one and submits this one in the same commit; the old handler
   * may run until it is aborted. It cannot be used inside the caller's transaction. Default `attach`.
   */
  ifExists?: IfExists;
}

/** What a submit does when its key names an execution that has not finished. */
export type IfExists = 'attach' | 'refuse' | 'replace';

/** The outcome of a submit. */
export interface SubmitResult {
  /** Of the execution that was submitted, or of the one that was there: for `duplicate`, `attached` and `refused`. */
  executionId: ExecutionId;
  outcome: 'submitted' | 'duplicate' | 'attached' | 'refused' | 'replaced';
  /** With `replaced`: the execution that was cancelled. */
  replacedId?: ExecutionId;
}

/** Where to look for a key. */
export interface KeyOptions {
  /** Default `default`. */
  namespace?: string;
}

/** The execution that a key names: the open one, otherwise the last that finished, while it is kept. */
export interface KeyedExecution {
  executionId: ExecutionId;
  kind: string;
}

/** Options of one submit call. */
export interface SubmitOptions {
  /** Submits inside the caller's transaction: committed or rolled back with it. The engine never retries there. */
  executor?: SqlExecutor;
  /**
   * `off`: sends no hint from inside the caller's transaction; workers find the work at their next poll. Default `on`.
   */
  hint?: 'on' | 'off';
}

/** Why an operator intervenes, and who it is. */
export interface OperatorNote {
  reason: string;
  /** Who intervenes; stored with the outcome and the events. Default `operator`. */
  by?: string;
}

/** The outcome of cancelling one execution. */
export type CancelOutcome = {
  executionId: ExecutionId;
} & (
  | { outcome: 'cancelled' }
  | { outcome: 'already_cancelled' }
  /** Only from a bulk verb: it changed state since it was listed, and was left alone. */
  | { outcome: 'moved' }
  | { outcome: 'not_found' }
  | { outcome: 'not_active'; terminalOutcome: TerminalOutcome }
);

/** The outcome of revoking a lease. */
export type RevokeOutcome =
  | { outcome: 'revoked' }
  | { outcome: 'reclaims_exhausted' }
  | { outcome: 'not_found' }
  | { outcome: 'no_active_lease'; lifecyclePhase: LifecyclePhase }
  | { outcome: 'stale_lease'; leaseEpoch: number };

/** Which lease to revoke, and why. */
export interface RevokeRequest extends OperatorNote {
  /** Revokes only this lease; `stale_lease` when the current one is another. Default: whichever is current. */
  leaseId?: string;
}

/** One attempt, as `describe` returns it. */
export interface AttemptSnapshot {
  attemptIndex: number;
  /** Null while it runs or is paused. */
  outcome: AttemptOutcome | null;
  workerInstanceId: string | null;
  startedAtMs: number;
  endedAtMs: number | null;
  failureMessage: string | null;
  failureCategory: string | null;
  /** Of the last 20 attempts; `listAttempts` has those of all. */
  failureDetail: FailureDetail | null;
}

/** The current lease. */
export interface LeaseSnapshot {
  leaseId: string;
  workerId: string;
  workerInstanceId: string;
  acquiredAtMs: number;
  expiresAtMs: number;
  /** How often it was renewed. */
  renewals: number;
}

/** One execution in its current state, with its lease and its last attempts. */
export interface ExecutionSnapshot {
  executionId: ExecutionId;
  state: PublicState;
  /** The six columns that `state` is derived from. Prefer `state`; these change with the engine. */
  stateVector: StateVector;
  kind: string;
  lane: string;
  namespace: string;
  priority: number;
  capabilities: string[];
  tags: Record<string, string>;
  createdAtMs: number;
  startedAtMs: number | null;
  changedAtMs: number;
  /** When a delayed execution becomes claimable. */
  eligibleAtMs: number | null;
  /** When it expires unless it has finished. */
  deadlineAtMs: number | null;
  endedAtMs: number | null;
  attemptIndex: number;
  leaseEpoch: number;
  retryCount: number;
  reclaimCount: number;
  replayCount: number;
  lease: LeaseSnapshot | null;
  /** The last 1,000 finished and paused attempts, oldest first; the running one is described by `lease`. */
  attempts: AttemptSnapshot[];
  /** The handler's latest progress report. */
  progress: { percent: number | null; message: string | null; reportedAtMs: number } | null;
  /** Finished steps and started sleeps. */
  stepCount: number;
  /** The execution that spawned it. */
  parentId: ExecutionId | null;
  /** The flow it is a member of. */
  flowId: ExecutionId | null;
  /** The key that names it; null when it has none, or when another execution has taken it. */
  key: string | null;
  /** Reconcilers that could not act on it and are backing off. */
  setbacks: { reconciler: string; failures: number; errorCode: string }[];
}

/** The outcome of an execution, or `pending` while it has none. */
export type ExecutionResult =
  | { outcome: 'pending'; state: PublicState }
  | { outcome: 'not_found' }
  | { outcome: 'success'; result: Json }
  | {
      outcome: 'failed' | 'cancelled' | 'expired' | 'skipped';
      message: string | null;
      category: string | null;
      by: string | null;
    };

/** The outcome of a finished execution. */
export type ExecutionEnd = Exclude<ExecutionResult, { outcome: 'pending' | 'not_found' }>;

/** Options of waiting for an execution or a flow. */
export interface WaitOptions {
  /** Stops the waiting, not the execution. */
  signal?: AbortSignal;
}
