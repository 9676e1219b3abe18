/**
 * What operators ask of FlowFabric: find executions, say why one is not running, run some again, move or stop many,
 * hold a lane, see the workers and the upkeep.
 */
import type { OperatorNote } from './executions.ts';
import type { ExecutionId } from './ids.ts';
import type { Json } from './json.ts';
import type { AttemptOutcome, LifecyclePhase, PublicState } from './states.ts';

/** All conditions must hold. What is not named here cannot be filtered by, and is refused. */
export interface ExecutionFilter {
  /** Any of these. Listed one state after the other, in the order of this list. */
  states?: readonly PublicState[];
  namespace?: string;
  lane?: string;
  kind?: string;
  /** Tags it has, each with this value. */
  tags?: Readonly<Record<string, string>>;
  /** Spawned by this execution. */
  parentId?: string;
  /** Submitted at or after, and before. */
  createdFromMs?: number;
  createdBeforeMs?: number;
  /** Ended at or after, and before. Only with states that are ends. */
  endedFromMs?: number;
  endedBeforeMs?: number;
  /** How it failed: the category, and a part of the message, case-sensitive. Only with states that are ends. */
  failure?: { category?: string; contains?: string };
}

/** Which executions, and how many of them at once. */
export interface ListRequest {
  filter?: ExecutionFilter;
  /** Executions in a page, 1 to 1,000. Default 100. */
  limit?: number;
  /** Of the page before this one, with the same filter. */
  cursor?: string;
}

/** One execution in a list. */
export interface ExecutionSummary {
  executionId: ExecutionId;
  publicState: PublicState;
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
  /** Who runs it. */
  workerInstanceId: string | null;
  /** How it failed, when it ended in another way than success. */
  failure: { message: string | null; category: string | null } | null;
  parentId: ExecutionId | null;
}

/**
 * A page may be shorter than asked for, even empty, and still have a cursor: only so many rows are looked at for one
 * page, however few of them fit the filter. The list is over when the cursor is null.
 */
export interface ListPage {
  executions: ExecutionSummary[];
  cursor: string | null;
}

/** One attempt, as `listAttempts` shows it. */
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
  /** When the attempt after it was due. */
  retryAtMs: number | null;
  failureMessage: string | null;
  failureCategory: string | null;
}

/** A page of attempts. */
export interface AttemptPage {
  /** Newest first. */
  attempts: AttemptRecord[];
  /** Ask for attempts before this one; null when there are none. */
  before: number | null;
}

/** What may keep an execution from running, in the order it is asked. */
export const GATES = [
  'ended',
  'held',
  'running',
  'setback',
  'delayed',
  'backing_off',
  'waiting_children',
  'waiting_upstreams',
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
  /** One sentence for people. */
  detail: string;
  /** The same for programs. */
  facts: Record<string, Json>;
}

/** Why an execution is where it is. */
export type Explanation =
  | { outcome: 'not_found' }
  | {
      outcome: 'explained';
      executionId: ExecutionId;
      publicState: PublicState;
      /** The first gate that holds; null when nothing does and a worker should take it any moment. */
      holding: Gate | null;
      gates: Gate[];
    };

/** From where to run it again, and why. */
export interface ReplayRequest extends OperatorNote {
  /** `failed_step`: finished steps are not done again. `start`: everything is. Default `failed_step`. */
  from?: 'failed_step' | 'start';
}

/** What became of a replay. */
export type ReplayOutcome = { executionId: ExecutionId } & (
  | { outcome: 'replayed'; replayCount: number }
  | { outcome: 'not_terminal'; lifecyclePhase: LifecyclePhase }
  | { outcome: 'replays_exhausted'; replayCount: number }
  | { outcome: 'moved' }
  | { outcome: 'not_found' }
);

/** The priority it is to have. */
export interface PriorityRequest {
  /** 0 to 9,000; higher first. */
  priority: number;
  by?: string;
}

/** What became of changing a priority. */
export type PriorityOutcome = { executionId: ExecutionId } & (
  | { outcome: 'changed'; oldPriority: number }
  /** It does not wait for a worker now. */
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

/** The tags it has now. */
export type TagsOutcome = { outcome: 'set'; tags: Record<string, string> } | { outcome: 'not_found' };

/** A lane: whether it is paused, and how much waits in it. */
export interface LaneSnapshot {
  lane: string;
  paused: boolean;
  /** Since when, by whom and why; null while it is open, and what nobody said. */
  pausedAtMs: number | null;
  pausedBy: string | null;
  pauseReason: string | null;
  /** Executions that wait for a worker; counted up to 10,000, and less far the more lanes the page has. */
  depth: number;
  /** There may be more. */
  depthIsCapped: boolean;
  running: number;
  /** Since when the one that waits longest has been claimable. Null when none waits. With a capped depth, at least. */
  oldestAgeMs: number | null;
  /** Per second, over the last minute or the last 5,000 executions of all lanes, whichever is shorter. */
  arrivalRate: number;
  completionRate: number;
}

/** A page of lanes. */
export interface LanePage {
  lanes: LaneSnapshot[];
  cursor: string | null;
}

/** `repeated`: it was so already; the note of the pause that holds is kept. `isNew`: nobody ever used or named it before. */
export type LaneOutcome =
  { outcome: 'paused'; repeated: boolean; isNew: boolean } | { outcome: 'resumed'; repeated: boolean };

/** What is done to all that fit, with its own request. */
export type BulkVerb =
  | ({ verb: 'cancel' } & OperatorNote)
  | ({ verb: 'replay' } & ReplayRequest)
  | ({ verb: 'change_priority' } & PriorityRequest);

interface BulkStates {
  /** A filter that names others is refused. */
  allowed: readonly PublicState[];
  /** When the filter names none. Null: it must. */
  meant: readonly PublicState[] | null;
}

/** Work moves from left to right: what leaves a state while it is being listed is met again in one after it. */
const OPEN_STATES: readonly PublicState[] = ['delayed', 'waiting_children', 'suspended', 'waiting', 'active'];

/** The states each bulk verb is about. Nobody means by accident to run again what succeeded: ends must be named. */
export const BULK_STATES: Readonly<Record<BulkVerb['verb'], BulkStates>> = {
  cancel: { allowed: OPEN_STATES, meant: OPEN_STATES },
  replay: { allowed: ['completed', 'failed', 'cancelled', 'expired', 'skipped'], meant: null },
  change_priority: { allowed: ['waiting'], meant: ['waiting'] },
};

/** A verb, and the executions it is for. */
export type BulkRequest = BulkVerb & {
  /**
   * At least one condition. Executions submitted after the beginning are left alone. States: for `cancel` those that
   * are no ends, all of them unless named; for `replay` ends, which must be named; for `change_priority` `waiting`.
   */
  filter: ExecutionFilter;
  /** Goes on where an earlier call stopped. */
  cursor?: string;
  /** Executions acted on in one statement, 1 to 1,000. Default 500. */
  chunk?: number;
  /** `on`: only counts what it would act on. */
  dryRun?: 'on' | 'off';
};

/** Told after each chunk; the numbers are those of this call so far. */
export interface BulkProgress {
  /** Executions that fitted the filter. */
  matched: number;
  /** Of those, how each was answered: `cancelled`, `replayed`, `changed`, `moved`, … */
  outcomes: Record<string, number>;
  /** To go on from here; null when all is done. */
  cursor: string | null;
}

/** A worker, as the registry has it. */
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

/** What one reconciler, or one chore of upkeep, has done in this process. */
export interface ReconcilerReport {
  name: string;
  passes: number;
  /** Passes that ended in an error of the database. */
  errors: number;
  timeouts: number;
  acted: number;
  /** Due, but left alone because somebody works on them. */
  skipped: number;
  /** Rows that failed alone and are backed off. */
  failed: number;
  /** How often a failing set was halved. */
  splits: number;
  /** Passes that took all the batches they may, and left more behind. */
  unfinished: number;
}
