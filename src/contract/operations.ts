/**
 * What operators do with FlowFabric: find executions, explain why one does not run, replay some, move or cancel many,
 * pause a lane, inspect workers and upkeep.
 */
import type { OperatorNote } from './executions.ts';
import type { FailureDetail } from './failure-detail.ts';
import type { ExecutionId } from './ids.ts';
import type { Json } from './json.ts';
import type { RevealOptions } from './redaction.ts';
import type { AttemptOutcome, LifecyclePhase, PublicState } from './states.ts';
import type { StepKey } from './steps.ts';

/** Which executions to select. All conditions must hold; unknown keys are refused. */
export interface ExecutionFilter {
  /** In any of these states. Results are listed state by state, in the order given here. */
  states?: readonly PublicState[];
  namespace?: string;
  lane?: string;
  kind?: string;
  /** Has all of these tags with these values. */
  tags?: Readonly<Record<string, string>>;
  /** Spawned by this execution. */
  parentId?: string;
  /**
   * With `parentId`: everything below it, too. Each is followed by what is below it, in the order they were spawned.
   */
  descendants?: boolean;
  /** Submitted at or after the first, and before the second, in milliseconds since 1970. */
  createdFromMs?: number;
  createdBeforeMs?: number;
  /** Finished at or after the first, and before the second, in milliseconds since 1970. Only with terminal states. */
  endedFromMs?: number;
  endedBeforeMs?: number;
  /** The failure's category, and a part of its message (case-sensitive). Only with terminal states. */
  failure?: { category?: string; contains?: string };
}

/** Which executions to list, and how many per page. */
export interface ListRequest {
  filter?: ExecutionFilter;
  /** Executions per page, 1 to 1,000. Default 100. */
  limit?: number;
  /** The cursor of the previous page, with the same filter. */
  cursor?: string;
}

/** One execution in a list. */
export interface ExecutionSummary {
  executionId: ExecutionId;
  state: PublicState;
  kind: string;
  lane: string;
  namespace: string;
  priority: number;
  tags: Record<string, string>;
  createdAtMs: number;
  changedAtMs: number;
  /** When a delayed execution becomes claimable. */
  eligibleAtMs: number | null;
  endedAtMs: number | null;
  attemptIndex: number;
  leaseEpoch: number;
  retryCount: number;
  replayCount: number;
  /** The worker instance that runs it. */
  workerInstanceId: string | null;
  /** Why it did not succeed; null otherwise. */
  failure: { message: string | null; category: string | null } | null;
  parentId: ExecutionId | null;
}

/**
 * A page of executions. It may be shorter than the limit, even empty, and still have a cursor: only a limited number of
 * rows is examined for one page. The last page has a null cursor.
 */
export interface ListPage {
  executions: ExecutionSummary[];
  cursor: string | null;
}

/** Which executions must have finished, and how long to wait for them. */
export interface SettledRequest {
  /** Those that have all of these tags with these values. */
  tags: Readonly<Record<string, string>>;
  /** Default: of all namespaces. */
  namespace?: string;
  /** Stops the waiting, not the executions. */
  signal?: AbortSignal;
}

/** The executions whose ids begin with a prefix: at most ten, the highest ids first. */
export interface FoundExecutions {
  executions: ExecutionSummary[];
  /** More than ten match. */
  hasMore: boolean;
}

/** A time during which a worker held an execution. */
export interface LeaseSpan {
  leaseEpoch: number;
  workerInstanceId: string;
  fromMs: number;
  /** Null while it lasts. */
  toMs: number | null;
  /** How often it was renewed. */
  renewals: number;
}

/** One attempt, as `listAttempts` returns it. */
export interface AttemptRecord {
  attemptIndex: number;
  /** Null while it runs or is paused. */
  outcome: AttemptOutcome | null;
  /** Why its lease ended, when it was interrupted. */
  interruptedBy: 'expired' | 'revoked' | null;
  leaseEpoch: number;
  workerId: string | null;
  workerInstanceId: string | null;
  startedAtMs: number;
  endedAtMs: number | null;
  /** When the next attempt was due. */
  retryAtMs: number | null;
  failureMessage: string | null;
  failureCategory: string | null;
  /** The class of the error, its stack and its causes, if the worker reported them. */
  failureDetail: FailureDetail | null;
  /** How its earlier leases were given up, in order; equal ones in a row are one. */
  pauses: readonly ('released' | 'paused' | 'suspended')[];
  /** Who held it, and when, in order: the last 16 leases that have ended, and the current one. */
  leases: readonly LeaseSpan[];
}

/** Which attempts of an execution to list. */
export interface AttemptsRequest extends RevealOptions {
  /** Only those before this one: `before` of the page before. */
  before?: number;
  /** Attempts per page, 1 to 1,000. Default 100. */
  limit?: number;
}

/** A page of attempts. */
export interface AttemptPage {
  /** Newest first. */
  attempts: AttemptRecord[];
  /** Pass as `before` for the next page; null on the last one. */
  before: number | null;
}

/** What may keep an execution from running, in the order it is checked. */
export const GATES = [
  'ended',
  'held',
  'running',
  'setback',
  'delayed',
  'backing_off',
  'waiting_children',
  'waiting_upstreams',
  'continue_as_needed',
  'suspended',
  'lane_paused',
  'no_worker',
  'workers_busy',
  'queued',
] as const;
/** The name of a gate. */
export type GateName = (typeof GATES)[number];

/** One thing that may keep an execution from running, and whether it does. */
export interface Gate {
  gate: GateName;
  /** Whether it keeps the execution from starting now. */
  holds: boolean;
  /** A sentence for people. */
  detail: string;
  /** The same for programs. */
  facts: Record<string, Json>;
}

/** Why an execution does or does not run. */
export type Explanation =
  | { outcome: 'not_found' }
  | {
      outcome: 'explained';
      executionId: ExecutionId;
      state: PublicState;
      /** The first gate that holds; null when none does and a worker should claim it at any moment. */
      holding: Gate | null;
      gates: Gate[];
    };

/** From where to replay, and why. */
export interface ReplayRequest extends OperatorNote {
  /** `failed_step`: finished steps are kept. `start`: everything runs again. Default `failed_step`. */
  from?: 'failed_step' | 'start';
  /**
   * Keeps what was recorded before this step, sleep or wait, and does it and everything after it again. What was spawned
   * before it stays, later children are spawned anew. Not with `from`.
   */
  fromStep?: string | StepKey;
}

/** The outcome of a replay. */
export type ReplayOutcome = { executionId: ExecutionId } & (
  | { outcome: 'replayed'; replayCount: number }
  | { outcome: 'not_terminal'; lifecyclePhase: LifecyclePhase }
  | { outcome: 'replays_exhausted'; replayCount: number }
  /** Another execution has its key now. */
  | { outcome: 'key_taken' }
  /** Nothing is recorded under the name and key of `fromStep`. */
  | { outcome: 'step_not_found' }
  | { outcome: 'moved' }
  | { outcome: 'not_found' }
);

/** The new priority. */
export interface PriorityRequest {
  /** 0 to 9,000; higher runs first. */
  priority: number;
  /** Who changes it; stored with the event. Default: nobody. */
  by?: string;
}

/** The outcome of changing a priority. */
export type PriorityOutcome = { executionId: ExecutionId } & (
  | { outcome: 'changed'; oldPriority: number }
  /** It is not waiting for a worker. */
  | { outcome: 'not_eligible' }
  | { outcome: 'moved' }
  | { outcome: 'not_found' }
);

/** Tags to set, and tags to remove. */
export interface TagsRequest {
  set?: Record<string, string>;
  remove?: readonly string[];
  by?: string;
}

/** The tags after the change. */
export type TagsOutcome = { outcome: 'set'; tags: Record<string, string> } | { outcome: 'not_found' };

/** Which events are written about executions of a lane. */
export const LANE_EVENTS = ['all', 'usual'] as const;
/** `all`: also submits, steps, progress and results. `usual`: those only where the task asks for them. */
export type LaneEvents = (typeof LANE_EVENTS)[number];

/** The outcome of setting the events of a lane. `repeated`: nothing changed. `isNew`: the lane was never used before. */
export interface LaneEventsOutcome {
  outcome: 'set';
  repeated: boolean;
  isNew: boolean;
}

/** A lane: whether it is paused, and how much waits in it. */
export interface LaneSnapshot {
  lane: string;
  paused: boolean;
  /** Since when, by whom and why it is paused; null when it is not, or when nothing was given. */
  pausedAtMs: number | null;
  pausedBy: string | null;
  pauseReason: string | null;
  /** Executions that wait for a worker; counted up to 10,000, fewer when the page has many lanes. */
  depth: number;
  /** Counting stopped at the cap; there may be more. */
  depthIsCapped: boolean;
  running: number;
  /**
   * How long the oldest waiting execution has been claimable; null when none waits. A lower bound when the depth is
   * capped.
   */
  oldestAgeMs: number | null;
  /** Per second, over the last minute or the last 5,000 executions of all lanes, whichever is shorter. */
  arrivalRate: number;
  completionRate: number;
  /** Of executions that are submitted to it from now on. */
  events: LaneEvents;
}

/** A page of lanes. */
export interface LanePage {
  lanes: LaneSnapshot[];
  cursor: string | null;
}

/**
 * The outcome of pausing or resuming a lane. `repeated`: nothing changed; an earlier pause keeps its note. `isNew`: the
 * lane was never used before.
 */
export type LaneOutcome =
  { outcome: 'paused'; repeated: boolean; isNew: boolean } | { outcome: 'resumed'; repeated: boolean };

/** What a bulk call does to each execution. */
export type BulkVerb =
  | ({ verb: 'cancel' } & OperatorNote)
  | ({ verb: 'replay' } & ReplayRequest)
  | ({ verb: 'change_priority' } & PriorityRequest);

interface BulkStates {
  /** A filter that names others is refused. */
  allowed: readonly PublicState[];
  /** The states used when the filter names none. Null: it must name some. */
  meant: readonly PublicState[] | null;
}

/** Work moves from left to right: an execution that leaves a state while it is listed is found again in a later one. */
const OPEN_STATES: readonly PublicState[] = ['delayed', 'waiting_children', 'suspended', 'waiting', 'active'];

/** The states each bulk verb applies to. `replay` must name them, so that nobody replays successes by accident. */
export const BULK_STATES: Readonly<Record<BulkVerb['verb'], BulkStates>> = {
  cancel: { allowed: OPEN_STATES, meant: OPEN_STATES },
  replay: { allowed: ['completed', 'failed', 'cancelled', 'expired', 'skipped'], meant: null },
  change_priority: { allowed: ['waiting'], meant: ['waiting'] },
};

/** A verb, and the executions it is for. */
export type BulkRequest = BulkVerb & {
  /**
   * At least one condition. Executions submitted after the call started are left alone. States: for `cancel` any that
   * are not terminal (default: all of them); for `replay` terminal ones, which must be named; for `change_priority`
   * only `waiting`.
   */
  filter: ExecutionFilter;
  /** Continues where an earlier call stopped. */
  cursor?: string;
  /** Executions acted on in one statement, 1 to 1,000. Default 500. */
  chunk?: number;
  /** `on`: only counts what it would act on. Default `off`. */
  dryRun?: 'on' | 'off';
};

/** Yielded after each chunk; the numbers are those of this call so far. */
export interface BulkProgress {
  /** Executions that matched the filter. */
  matched: number;
  /** How many had which outcome: `cancelled`, `replayed`, `changed`, `moved`, … */
  outcomes: Record<string, number>;
  /** Continues from here; null when everything is done. */
  cursor: string | null;
}

/** A registered worker. */
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
  /** When it last reported; a live worker reports about every 10 s. */
  heartbeatAtMs: number;
  /** How long ago it last reported, by the database's clock. */
  silentForMs: number;
  stopping: boolean;
}

/** What one reconciler has done in this process. */
export interface ReconcilerReport {
  name: string;
  passes: number;
  /** Passes that ended in an error of the database. */
  errors: number;
  timeouts: number;
  acted: number;
  /** Due, but skipped because another transaction had locked them. */
  skipped: number;
  /** Rows that failed on their own and are backed off. */
  failed: number;
  /** How often a failing set was halved. */
  splits: number;
  /** Passes that used up their batches and left rows behind. */
  unfinished: number;
}
