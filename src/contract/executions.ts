/**
 * Executions: what is submitted, what is read of one, and how one can end. Finding many and acting on them is in operations.ts.
 */
import type { ExecutionId } from './ids.ts';
import type { Json } from './json.ts';
import type { ExecutionPolicy } from './policy.ts';
import type { AttemptOutcome, LifecyclePhase, PublicState, StateVector, TerminalOutcome } from './states.ts';
import type { SqlExecutor } from './transactions.ts';

/** One execution to submit. */
export interface SubmitRequest {
  /** What to run: the name a worker registers a handler under. */
  kind: string;
  payload?: unknown;
  /** The queue. Default `default`. */
  lane?: string;
  /** Whose it is. Default `default`. */
  namespace?: string;
  /** 0 to 9,000; higher first. Default 0. */
  priority?: number;
  /** Only workers that offer all of these may run it. */
  capabilities?: string[];
  tags?: Record<string, string>;
  /** Members that are not given are those of the connection's default policy. */
  policy?: ExecutionPolicy;
  /** Start no sooner than this long from now, by the database's clock. */
  delayMs?: number;
  /** A given id makes the submit repeatable: the second one answers `duplicate`. */
  executionId?: string;
  /** So does a key, within the namespace: the second submit answers `duplicate` and the first one's id. */
  idempotencyKey?: string;
}

/** What became of a submit. */
export interface SubmitResult {
  executionId: ExecutionId;
  outcome: 'submitted' | 'duplicate';
}

/** How a submit is made, for all that is submitted by it. */
export interface SubmitOptions {
  /** Submit inside the caller's transaction: committed or rolled back with it. The engine never retries there. */
  executor?: SqlExecutor;
  /** `off`: do not wake workers from inside the caller's transaction; they find the work at their next look. */
  hint?: 'on' | 'off';
}

/** Why an operator intervenes, and who does. */
export interface OperatorNote {
  reason: string;
  /** Who asks; kept with the outcome and the events. Default `operator`. */
  by?: string;
}

/** What became of cancelling one execution. */
export type CancelOutcome = {
  executionId: ExecutionId;
} & (
  | { outcome: 'cancelled' }
  | { outcome: 'already_cancelled' }
  /** Only from a bulk verb: it was claimed or moved since it was listed, and left alone. */
  | { outcome: 'moved' }
  | { outcome: 'not_found' }
  | { outcome: 'not_active'; terminalOutcome: TerminalOutcome }
);

/** What became of taking a lease away. */
export type RevokeOutcome =
  | { outcome: 'revoked' }
  | { outcome: 'reclaims_exhausted' }
  | { outcome: 'not_found' }
  | { outcome: 'no_active_lease'; lifecyclePhase: LifecyclePhase }
  | { outcome: 'stale_lease'; leaseEpoch: number };

/** Which lease is taken away, and why. */
export interface RevokeRequest extends OperatorNote {
  /** Only this lease; another one answers `stale_lease`. */
  leaseId?: string;
}

/** One attempt, as `describe` shows it. */
export interface AttemptSnapshot {
  attemptIndex: number;
  /** Null while it runs or is paused. */
  outcome: AttemptOutcome | null;
  workerInstanceId: string | null;
  startedAtMs: number;
  endedAtMs: number | null;
  failureMessage: string | null;
  failureCategory: string | null;
}

/** The lease that is held now. */
export interface LeaseSnapshot {
  leaseId: string;
  workerId: string;
  workerInstanceId: string;
  acquiredAtMs: number;
  expiresAtMs: number;
}

/** One execution as it stands, with its lease and its last attempts. */
export interface ExecutionSnapshot {
  executionId: ExecutionId;
  publicState: PublicState;
  state: StateVector;
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
  /** When it ends as expired, if it has not ended before. */
  deadlineAtMs: number | null;
  endedAtMs: number | null;
  attemptIndex: number;
  leaseEpoch: number;
  retryCount: number;
  reclaimCount: number;
  replayCount: number;
  lease: LeaseSnapshot | null;
  /** The last 1,000 ended and paused attempts, oldest first; the running one is the lease. */
  attempts: AttemptSnapshot[];
  /** What the handler last said about itself. */
  progress: { percent: number | null; message: string | null; reportedAtMs: number } | null;
  /** Finished steps and begun sleeps. */
  stepCount: number;
  /** Who spawned it. */
  parentId: ExecutionId | null;
  /** The flow it is a member of. */
  flowId: ExecutionId | null;
  /** Reconcilers that could not act on it and are backing off. */
  setbacks: { reconciler: string; failures: number; errorCode: string }[];
}

/** How an execution ended, or that it has not. */
export type ExecutionResult =
  | { outcome: 'pending'; publicState: PublicState }
  | { outcome: 'not_found' }
  | { outcome: 'success'; result: Json }
  | {
      outcome: 'failed' | 'cancelled' | 'expired' | 'skipped';
      message: string | null;
      category: string | null;
      by: string | null;
    };

/** How an execution ended. */
export type ExecutionEnd = Exclude<ExecutionResult, { outcome: 'pending' | 'not_found' }>;

/** How long to wait for an execution. */
export interface WaitOptions {
  /** Ends the waiting, not the execution. */
  signal?: AbortSignal;
}
