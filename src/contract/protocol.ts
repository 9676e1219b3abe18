/**
 * The worker protocol: what a worker says to the engine. Every call about work carries its lease; a refused lease is a value, and
 * its holder must stop. Applications have no use for this: see connection.ts.
 */
import type { ExecutionEnd, ExecutionResult, SubmitRequest, WaitOptions } from './executions.ts';
import type { MemberRequest, SubmittedFlow } from './flows.ts';
import type { ExecutionId } from './ids.ts';
import type { Json } from './json.ts';
import type { CreateWaitpointOutcome, SuspendOutcome, SuspendRequest, WaitpointRequest } from './signals.ts';
import type { LifecyclePhase, TerminalOutcome } from './states.ts';
import type {
  EndOrder,
  NewStep,
  OrderOutcome,
  PauseOutcome,
  PauseRequest,
  Progress,
  RecordOutcome,
  SpawnOutcome,
  StepRecord,
} from './steps.ts';
import type { AppendOptions, AppendOutcome, FrameRequest } from './streams.ts';
import type { SqlExecutor, Transact } from './transactions.ts';

/** Who claims, what it can run, and how much of it. */
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

/** A lease that was granted, and the execution it is for. */
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

/** What a claim got, and when to claim again. */
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
/** What became of a reported failure: another try, or the end. */
export type FailOutcome =
  | { outcome: 'retry_scheduled'; repeated: boolean; retryInMs: number }
  | { outcome: 'failed'; repeated: boolean }
  | LeaseRefusal;
/** `released`: the work is claimable again, and the attempt goes on under the next lease. */
export type ReleaseOutcome = { outcome: 'released'; repeated: boolean } | LeaseRefusal;
/** `renewed`: the lease lasts its full time again. */
export type RenewOutcome = { outcome: 'renewed' } | LeaseRefusal;

/** How an attempt failed, and whether it may be tried again. */
export interface Failure {
  message: string;
  /** Default `transient`. */
  category?: string;
  /** Replaces the policy's delay when the failure is retried. */
  retryAfterMs?: number;
  /** `never`: the end, whatever the policy says. Default: as the policy says. */
  retry?: 'policy' | 'never';
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

/** How far a call that fires timers goes. */
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

/** Returns true when it takes all the work the hint speaks of, so that nobody else need be woken. */
export type HintWatcher = (hint: Hint) => boolean;

/** All that a worker needs of an engine. `workerPort(connection)` returns it; another transport may stand behind it as well. */
export interface WorkerPort {
  /** Leases on ready executions, the highest priority first. */
  claim(request: ClaimRequest): Promise<ClaimResult>;
  /** Prolongs leases; the outcomes are in the order of the leases. */
  renew(leases: readonly LeaseRef[], leaseMs: number): Promise<RenewOutcome[]>;
  /** Ends the execution with a result. */
  complete(lease: LeaseRef, result?: unknown): Promise<CompleteOutcome>;
  /** Ends the attempt; the policy and the failure say whether another follows. */
  fail(lease: LeaseRef, failure: Failure): Promise<FailOutcome>;
  /** Gives the work back without ending the attempt. */
  release(lease: LeaseRef): Promise<ReleaseOutcome>;
  /** Stores a finished step or begins a sleep. With an executor: in the caller's transaction, committed with it. */
  recordStep(lease: LeaseRef, step: NewStep, options?: { executor?: SqlExecutor }): Promise<RecordOutcome>;
  /** All steps of an execution, in no order. */
  readSteps(executionId: string): Promise<StepRecord[]>;
  /** Stores in which order a run was handed ends, so that later runs take the same branches. What was stored from `place` on is replaced. */
  recordOrder(lease: LeaseRef, order: EndOrder): Promise<OrderOutcome>;
  /** The order that is stored. */
  readOrder(executionId: string): Promise<string[]>;
  /** Gives the worker up without ending the attempt: the next claim continues it. */
  pause(lease: LeaseRef, request: PauseRequest): Promise<PauseOutcome>;
  /** Gives the worker up until a signal arrives. Repeatable: the same lease gets the same outcome. */
  suspend(lease: LeaseRef, request: SuspendRequest): Promise<SuspendOutcome>;
  /** Opens a waitpoint before the execution waits, to hand out its token. Signals are kept until then. Repeatable. */
  createWaitpoint(lease: LeaseRef, request: WaitpointRequest): Promise<CreateWaitpointOutcome>;
  /** Submits children of the lease's execution. Repeatable when the requests carry ids. */
  spawn(lease: LeaseRef, requests: readonly SubmitRequest[]): Promise<SpawnOutcome>;
  /** Overwrites how far the execution is. Dropped when the lease is gone. */
  reportProgress(lease: LeaseRef, progress: Progress): Promise<void>;
  /** Writes frames in their order, all or none. */
  appendFrames(
    lease: LeaseRef,
    frames: readonly FrameRequest[],
    options?: AppendOptions,
  ): Promise<AppendOutcome>;
  /** Members and edges more, by a member that runs. Repeatable: members are known by their names. */
  extendFlow(lease: LeaseRef, members: readonly MemberRequest[]): Promise<SubmittedFlow>;
  /** How an execution ended, or that it has not yet; for children. */
  result(executionId: string): Promise<ExecutionResult>;
  /** How an execution ended, as soon as it has; for children. Throws `not_found`. */
  wait(executionId: string, options?: WaitOptions): Promise<ExecutionEnd>;
  /** Makes claimable what was delayed until now, and does what is left for flows. Returns how many timers were due. */
  fireTimers(options?: FireOptions): Promise<number>;
  /** Calls the watcher when there may be something to do. Returns the function that stops it. */
  watch(interest: Interest, watcher: HintWatcher): () => void;
  /** Enters a worker into the registry, or refreshes its entry. Workers call it at intervals. */
  registerWorker(worker: WorkerRegistration): Promise<void>;
  /** Removes a worker from the registry. */
  forgetWorker(workerInstanceId: string): Promise<void>;
  /** Runs work in a transaction of its own, for `ctx.tx`. */
  transact: Transact;
}
