/**
 * The worker protocol: the calls a worker makes. Every call about work carries its lease; a refused lease is returned
 * as a value, and its holder must stop. Applications use connection.ts instead.
 */
import type { DescribedExecution, DescribeOptions, DescribePart } from './described.ts';
import type {
  CancelOutcome,
  ExecutionEnd,
  ExecutionResult,
  OperatorNote,
  WaitOptions,
} from './executions.ts';
import type { FailureDetail } from './failure-detail.ts';
import type { MemberRequest, SubmittedFlow } from './flows.ts';
import type { ExecutionId } from './ids.ts';
import type { Json } from './json.ts';
import type {
  ContinueOutcome,
  OutgoingMessage,
  ReplyOutcome,
  ReplyRequest,
  SendOutcome,
} from './messages.ts';
import type {
  ApproveRequest,
  CreateWaitpointOutcome,
  DeliverOutcome,
  SuspendOutcome,
  SuspendRequest,
  WaitpointRequest,
} from './signals.ts';
import type { LifecyclePhase, TerminalOutcome } from './states.ts';
import type {
  ChildRequest,
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
import type {
  AppendOptions,
  AppendOutcome,
  FrameRequest,
  ParentChange,
  ParentState,
  ParentStep,
  WrittenOutput,
  WrittenPatches,
} from './streams.ts';
import type { SqlExecutor, Transact } from './transactions.ts';

/** Which worker claims, what it can run, and how much of it. */
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

/** Identifies one lease: the fence that every call about work carries. */
export interface LeaseRef {
  executionId: string;
  attemptIndex: number;
  leaseEpoch: number;
}

/** A granted lease and its execution. */
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
  /** The attempt was paused and continues under this lease. */
  resumed: boolean;
  /** The attempt before this one lost its lease. */
  reclaimed: boolean;
  /** Its values are hidden from reads: what is logged about it must not contain any. */
  redacted: boolean;
  createdAtMs: number;
  /** The first attempt of its run, or since a replay started it over: later ones have other children. */
  generation: number;
  /** The flow it is a member of, or null. */
  flowId: ExecutionId | null;
  leaseMs: number;
}

/** The granted leases, and when to claim again. */
export interface ClaimResult {
  claims: Claim[];
  /** Milliseconds until the next timer is due; null when none is set. */
  nextDueInMs: number | null;
  /**
   * Claimable executions skipped because another transaction had locked them. No hint follows when it ends: poll again
   * soon.
   */
  passedBy: number;
}

/** Why a lease was refused. Whatever the reason, its holder must stop: it owns nothing. */
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
  /** The attempt or the execution reached its time limit. */
  | { outcome: 'timed_out' }
  | { outcome: 'conflict'; lifecyclePhase: LifecyclePhase; terminalOutcome: TerminalOutcome };

/** `repeated`: the same lease made the same call before; this is the first outcome again. */
export type CompleteOutcome = { outcome: 'completed'; repeated: boolean } | LeaseRefusal;
/** The outcome of a reported failure: another attempt, or a failed execution. `maxRetries`: of its policy, if known. */
export type FailOutcome =
  | { outcome: 'retry_scheduled'; repeated: boolean; retryInMs: number; maxRetries?: number }
  | { outcome: 'failed'; repeated: boolean; maxRetries?: number }
  | LeaseRefusal;
/** `released`: the work is claimable again, and the attempt continues under the next lease. */
export type ReleaseOutcome = { outcome: 'released'; repeated: boolean } | LeaseRefusal;
/**
 * `renewed`: the lease lasts its full time again, from now. `held`: another transaction has locked the execution, and the
 * lease is as it was; renew it again soon.
 */
export type RenewOutcome = { outcome: 'renewed' } | { outcome: 'held' } | LeaseRefusal;

/** How an attempt failed, and whether it may be retried. */
export interface Failure {
  message: string;
  /** Default `transient`, and `permanent` with `retry: 'never'`. */
  category?: string;
  /** Replaces the policy's delay when the failure is retried. */
  retryAfterMs?: number;
  /** `never`: fails the execution whatever its policy allows. Default `policy`. */
  retry?: 'policy' | 'never';
  /** Where it comes from. Kept with the attempt. */
  detail?: FailureDetail;
}

/** A worker's entry in the registry. */
export interface WorkerRegistration extends Interest {
  workerInstanceId: string;
  workerId: string;
  /** The version of the application's code. */
  version?: string;
  concurrency: number;
  running: number;
  /** Milliseconds since it started; the database derives the start time. */
  uptimeMs: number;
  stopping: boolean;
}

/** Options of firing timers. */
export interface FireOptions {
  /**
   * `leave`: flow work is left to the processes that finished its members and to the reconcilers, and children that end
   * with their parent are not waited for. Default `await`.
   */
  flows?: 'await' | 'leave';
}

/** What may have changed. Hints may be lost, doubled or late; they only make polling sooner. */
export interface Hint {
  /** Routes with new claimable work, or `all` when it is unknown which. */
  routes: readonly number[] | 'all';
  /** How many executions became claimable, when known. */
  count: number;
  /** A new timer is due in this many milliseconds. */
  dueInMs: number | null;
  /** Worker instances whose leases were revoked. */
  workers: readonly string[];
  /** Uuids of executions that finished or replied to a request, or `all` when there are too many to name. */
  ended: readonly string[] | 'all';
  /** Uuids of executions whose stream has new frames or was closed, or `all`. */
  streams: readonly string[] | 'all';
}

/** What a watcher can run; it receives no hints about other work. */
export interface Interest {
  kinds: readonly string[];
  lanes?: readonly string[] | undefined;
  capabilities?: readonly string[] | undefined;
}

/** Receives a hint. Returns true when it takes all the work of the hint, so that no other watcher is woken. */
export type HintWatcher = (hint: Hint) => boolean;

/**
 * All that a worker needs of an engine. `workerPort(connection)` returns it; another transport may implement it, too.
 */
export interface WorkerPort {
  /** Grants leases on claimable executions, highest priority first. */
  claim(request: ClaimRequest): Promise<ClaimResult>;
  /** Renews leases; outcomes are in the order of the leases. */
  renew(leases: readonly LeaseRef[], leaseMs: number): Promise<RenewOutcome[]>;
  /** Finishes the execution with a result. Default null. */
  complete(lease: LeaseRef, result?: unknown): Promise<CompleteOutcome>;
  /** Ends the attempt; the policy and the failure decide whether another follows. */
  fail(lease: LeaseRef, failure: Failure): Promise<FailOutcome>;
  /** Returns the lease without ending the attempt. */
  release(lease: LeaseRef): Promise<ReleaseOutcome>;
  /** Stores a finished step or starts a sleep. With an executor, in the caller's transaction and committed with it. */
  recordStep(lease: LeaseRef, step: NewStep, options?: { executor?: SqlExecutor }): Promise<RecordOutcome>;
  /** Reads all steps of an execution, in no particular order. */
  readSteps(executionId: string): Promise<StepRecord[]>;
  /**
   * Stores the order in which a run received outcomes, so that later runs take the same branches. Replaces what was
   * stored from `place` on.
   */
  recordOrder(lease: LeaseRef, order: EndOrder): Promise<OrderOutcome>;
  /** Reads the stored order. */
  readOrder(executionId: string): Promise<string[]>;
  /** Frees the worker without ending the attempt: the next claim continues it. */
  pause(lease: LeaseRef, request: PauseRequest): Promise<PauseOutcome>;
  /** Frees the worker until a signal arrives. Repeatable: the same lease gets the same outcome. */
  suspend(lease: LeaseRef, request: SuspendRequest): Promise<SuspendOutcome>;
  /** Opens a waitpoint ahead of the wait, to give out its token. Signals that arrive early are stored. Repeatable. */
  createWaitpoint(lease: LeaseRef, request: WaitpointRequest): Promise<CreateWaitpointOutcome>;
  /** Stores the reply to a message that the execution has received. Repeatable: the first reply stays. */
  reply(lease: LeaseRef, request: ReplyRequest): Promise<ReplyOutcome>;
  /**
   * Ends the run with a new input: the next run begins under the same id, without the steps and waits of this one.
   * Repeatable.
   */
  continueAs(lease: LeaseRef, input?: unknown): Promise<ContinueOutcome>;
  /**
   * Submits children of the lease's execution, in its partition; an id of another one is refused. Repeatable when the
   * requests carry ids.
   */
  spawn(lease: LeaseRef, requests: readonly ChildRequest[]): Promise<SpawnOutcome>;
  /** Reads which children of earlier generations an execution begun anew has kept. */
  readKeptChildren(executionId: string): Promise<ExecutionId[]>;
  /** Cancels a child of the lease's execution. Throws `not_found` for any other. */
  cancelChild(lease: LeaseRef, childId: string, note: OperatorNote): Promise<CancelOutcome>;
  /** Reads a child of the lease's execution. Throws `not_found` for any other. */
  describeChild<Part extends DescribePart = never>(
    lease: LeaseRef,
    childId: string,
    options?: DescribeOptions<Part>,
  ): Promise<DescribedExecution<Part>>;
  /** Sends a signal to a waitpoint of a child of the lease's execution. Throws `not_found`. */
  signalChild(
    lease: LeaseRef,
    childId: string,
    waitpoint: string,
    request: ApproveRequest,
  ): Promise<DeliverOutcome>;
  /** Sends a message to a mailbox of a child of the lease's execution. Throws `not_found`. */
  sendToChild(lease: LeaseRef, childId: string, message: OutgoingMessage): Promise<SendOutcome>;
  /** Replaces the execution's progress report. Ignored when the lease is gone. */
  reportProgress(lease: LeaseRef, progress: Progress): Promise<void>;
  /** Writes frames in order, all or none. */
  appendFrames(
    lease: LeaseRef,
    frames: readonly FrameRequest[],
    options?: AppendOptions,
  ): Promise<AppendOutcome>;
  /** Reads what the execution wrote before this lease: a handler that runs again does not write it again. */
  readWritten(lease: LeaseRef): Promise<WrittenOutput>;
  /** Reads the patches among that, and the document they make. */
  readPatches(lease: LeaseRef): Promise<WrittenPatches>;
  /** Whether the execution has a parent, and whether that has ended. */
  readParent(lease: LeaseRef): Promise<ParentState>;
  /**
   * Stores a finished step, and changes the document of the execution's parent in the same commit: once, and not at all
   * if that has ended.
   */
  recordForParent(
    lease: LeaseRef,
    step: ParentStep,
    changes: readonly ParentChange[],
  ): Promise<RecordOutcome>;
  /** Adds members and edges to the flow of a running member. Repeatable: members are identified by name. */
  extendFlow(lease: LeaseRef, members: readonly MemberRequest[]): Promise<SubmittedFlow>;
  /** Returns the outcome of a child, or `pending` while it has none. */
  result(executionId: string): Promise<ExecutionResult>;
  /** Waits until a child has finished and returns its outcome. Throws `not_found`. */
  wait(executionId: string, options?: WaitOptions): Promise<ExecutionEnd>;
  /** Fires due timers and does outstanding flow work. Returns how many timers were due. */
  fireTimers(options?: FireOptions): Promise<number>;
  /** Calls the watcher when there may be something to do. Returns a function that stops it. */
  watch(interest: Interest, watcher: HintWatcher): () => void;
  /** Adds a worker to the registry, or refreshes its entry. Workers call it at intervals. */
  registerWorker(worker: WorkerRegistration): Promise<void>;
  /** Removes a worker from the registry. */
  forgetWorker(workerInstanceId: string): Promise<void>;
  /** Runs work in a transaction of its own, for `ctx.tx`. */
  transact: Transact;
}

/** Whoever waits for the outcome of a completion. */
export interface CompletionWaiter {
  resolve(outcome: CompleteOutcome): void;
  reject(error: unknown): void;
}

/**
 * `complete` without a promise, for the worker in the process of its engine: the outcome is passed to the waiter, later
 * than the call returns. A call that cannot be made at all throws.
 */
export type CompleteFor = (lease: LeaseRef, result: unknown, waiter: CompletionWaiter) => void;

/** The worker protocol as that worker gets it. */
export interface OwnPort extends WorkerPort {
  completeFor: CompleteFor;
}

/** Passes the outcome of a call that returned a promise to a waiter. */
export function promisedTo(waiter: CompletionWaiter, outcome: Promise<CompleteOutcome>): void {
  outcome.then((given) => waiter.resolve(given)).catch((error: unknown) => waiter.reject(error));
}
