/**
 * The Engine interface: what can be asked of FlowFabric and what it answers. Workers and applications know this and
 * nothing below it. Expected outcomes are values with an `outcome`; broken promises are thrown as EngineError.
 */
import type { Feed } from './feed.ts';
import type { Flows } from './flows.ts';
import type { ExecutionId } from './ids.ts';
import type { Operations } from './operations.ts';
import type { ExecutionPolicy } from './policy.ts';
import type { Signals } from './signals.ts';
import type { Steps } from './steps.ts';
import type { Closable } from './stopping.ts';
import type { Streams } from './streams.ts';
import type { AttemptOutcome, LifecyclePhase, PublicState, StateVector, TerminalOutcome } from './states.ts';
import type { SqlExecutor, Transact } from './transactions.ts';

export type {
  EndOrder,
  NewStep,
  OrderOutcome,
  PauseOutcome,
  PauseRequest,
  Progress,
  RecordOutcome,
  SpawnOutcome,
  StepKey,
  StepRecord,
} from './steps.ts';
export type { Backoff, ExecutionPolicy, RetryPolicy } from './policy.ts';
export type { SqlExecutor, SqlTransaction, Transact, Transactor } from './transactions.ts';

/** Anything JSON can say. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

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

export interface SubmitResult {
  executionId: ExecutionId;
  outcome: 'submitted' | 'duplicate';
}

export interface SubmitOptions {
  /** Submit inside the caller's transaction: committed or rolled back with it. The engine never retries there. */
  executor?: SqlExecutor;
  /** `off`: do not wake workers from inside the caller's transaction; they find the work at their next look. */
  hint?: 'on' | 'off';
}

export interface ClaimRequest {
  workerId: string;
  workerInstanceId: string;
  kinds: readonly string[];
  /** Default: every lane. */
  lanes?: readonly string[];
  capabilities?: readonly string[];
  limit: number;
  leaseMs: number;
}

/** Names one lease: the fence every lease-bound call carries. */
export interface LeaseRef {
  executionId: string;
  attemptIndex: number;
  leaseEpoch: number;
}

export interface Claim extends LeaseRef {
  executionId: ExecutionId;
  leaseId: string;
  kind: string;
  lane: string;
  namespace: string;
  priority: number;
  tags: Record<string, string>;
  payload: Json;
  retryCount: number;
  /** The attempt was paused before and goes on under this lease. */
  resumed: boolean;
  /** The attempt before this one lost its lease. */
  reclaimed: boolean;
  createdAtMs: number;
  /** How often the execution was begun anew from its start. */
  generation: number;
  /** The flow it is a member of, or null. */
  flowId: ExecutionId | null;
  leaseMs: number;
}

export interface ClaimResult {
  claims: Claim[];
  /** Until the next timer is due, or null when none is set. */
  nextDueInMs: number | null;
  /** Ready executions that were not claimed because another transaction held them. Nobody rings when it ends: look again soon. */
  passedBy: number;
}

/** Why a lease holder was refused. After any of these the holder must stop: it owns nothing. */
export type LeaseRefusal =
  | { outcome: 'not_found' }
  | {
      outcome: 'not_active';
      lifecyclePhase: LifecyclePhase;
      terminalOutcome: TerminalOutcome;
      leaseEpoch: number;
    }
  | { outcome: 'stale_lease'; leaseEpoch: number }
  | { outcome: 'lease_expired' }
  | { outcome: 'lease_revoked' }
  /** The attempt's or the execution's time was over. */
  | { outcome: 'timed_out' }
  | { outcome: 'conflict'; lifecyclePhase: LifecyclePhase; terminalOutcome: TerminalOutcome };

/** `repeated`: the same lease had done the same before; this is its first answer again. */
export type CompleteOutcome = { outcome: 'completed'; repeated: boolean } | LeaseRefusal;
export type FailOutcome =
  | { outcome: 'retry_scheduled'; repeated: boolean; retryInMs: number }
  | { outcome: 'failed'; repeated: boolean }
  | LeaseRefusal;
export type ReleaseOutcome = { outcome: 'released'; repeated: boolean } | LeaseRefusal;
export type RenewOutcome = { outcome: 'renewed' } | LeaseRefusal;

export interface Failure {
  message: string;
  /** Default `transient`. */
  category?: string;
  /** Replaces the policy's delay when the failure is retried. */
  retryAfterMs?: number;
  /** `never`: the end, whatever the policy says. Default: as the policy says. */
  retry?: 'policy' | 'never';
}

export interface OperatorNote {
  reason: string;
  /** Who asks; kept with the outcome and the events. Default `operator`. */
  by?: string;
}

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

export type RevokeOutcome =
  | { outcome: 'revoked' }
  | { outcome: 'reclaims_exhausted' }
  | { outcome: 'not_found' }
  | { outcome: 'no_active_lease'; lifecyclePhase: LifecyclePhase }
  | { outcome: 'stale_lease'; leaseEpoch: number };

export interface RevokeRequest extends OperatorNote {
  /** Only this lease; another one answers `stale_lease`. */
  leaseId?: string;
}

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

export interface LeaseSnapshot {
  leaseId: string;
  workerId: string;
  workerInstanceId: string;
  acquiredAtMs: number;
  expiresAtMs: number;
}

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

export interface WaitOptions {
  /** Ends the waiting, not the execution. */
  signal?: AbortSignal;
}

/** What a worker says about itself in the registry. */
export interface WorkerRegistration extends Interest {
  workerInstanceId: string;
  workerId: string;
  /** Of the application's code. */
  version?: string;
  concurrency: number;
  running: number;
  /** Since it started; the database makes a time of it. */
  uptimeMs: number;
  stopping: boolean;
}

export interface WorkerSnapshot {
  workerInstanceId: string;
  workerId: string;
  version: string | null;
  kinds: string[];
  /** Null: every lane. */
  lanes: string[] | null;
  capabilities: string[];
  concurrency: number;
  running: number;
  startedAtMs: number;
  /** When it was last heard of; a live worker is heard of about every 10 s. */
  heartbeatAtMs: number;
  /** Since it was last heard of, by the database's clock. A worker speaks about every 10 s. */
  silentForMs: number;
  stopping: boolean;
}

export interface FireOptions {
  /** `leave`: what is left for flows is left to who ended its members, and to the reconcilers. Default `await`. */
  flows?: 'await' | 'leave';
}

/** What woke a watcher. Hints may be lost, doubled or late; they only save waiting. */
export interface Hint {
  /** Routes that got claimable work, or `all` when it is not known which. */
  routes: readonly number[] | 'all';
  /** How many executions became claimable, when known. */
  count: number;
  /** A timer was set that is due in this long. */
  dueInMs: number | null;
  /** Worker instances whose leases were taken away. */
  workers: readonly string[];
  /** Uuids of executions that ended, or `all` when they are too many to name. */
  ended: readonly string[] | 'all';
  /** Uuids of executions whose stream got frames or was closed, or `all`. */
  streams: readonly string[] | 'all';
}

/** What a watcher can run; hints about other work are kept from it. */
export interface Interest {
  kinds: readonly string[];
  lanes?: readonly string[] | undefined;
  capabilities?: readonly string[] | undefined;
}

/** Answers true when it takes all the work the hint speaks of, so that nobody else need be woken. */
export type HintWatcher = (hint: Hint) => boolean;

export interface Engine extends Operations, Steps, Feed, Signals, Streams, Flows, Closable {
  submit(request: SubmitRequest, options?: SubmitOptions): Promise<SubmitResult>;
  submit(requests: readonly SubmitRequest[], options?: SubmitOptions): Promise<SubmitResult[]>;
  claim(request: ClaimRequest): Promise<ClaimResult>;
  renew(leases: readonly LeaseRef[], leaseMs: number): Promise<RenewOutcome[]>;
  complete(lease: LeaseRef, result?: unknown): Promise<CompleteOutcome>;
  fail(lease: LeaseRef, failure: Failure): Promise<FailOutcome>;
  release(lease: LeaseRef): Promise<ReleaseOutcome>;
  transact: Transact;
  cancel(executionId: string, note: OperatorNote): Promise<CancelOutcome>;
  cancel(executionIds: readonly string[], note: OperatorNote): Promise<CancelOutcome[]>;
  revokeLease(executionId: string, request: RevokeRequest): Promise<RevokeOutcome>;
  /** Null when there is no such execution. */
  describe(executionId: string): Promise<ExecutionSnapshot | null>;
  /** How it ended, or that it has not yet. */
  result(executionId: string): Promise<ExecutionResult>;
  /** How it ended, as soon as it has; told, not asked again and again. Throws `not_found`. */
  waitForEnd(executionId: string, options?: WaitOptions): Promise<ExecutionEnd>;
  /** Makes claimable what was delayed until now, and does what is left for flows; answers how many timers were due. Workers call it in time. */
  fireTimers(options?: FireOptions): Promise<number>;
  /** Be told when there may be something to do. Returns the way to stop. */
  watch(interest: Interest, watcher: HintWatcher): () => void;
  /** Enters a worker into the registry, or refreshes what is said of it there. Workers call it at intervals. */
  registerWorker(worker: WorkerRegistration): Promise<void>;
  /** Who is registered, the newest first; at most 10,000. */
  listWorkers(): Promise<WorkerSnapshot[]>;
  forgetWorker(workerInstanceId: string): Promise<void>;
}
