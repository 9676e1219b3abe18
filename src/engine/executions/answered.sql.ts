/**
 * What the SQL functions return for an execution: every column that several of them share, under one name and with one
 * meaning. Each statement selects those its function has. Columns that do not matter for an outcome may be null.
 */
import type { LeaseRefusal } from '../../contract/protocol.ts';
import type { LifecyclePhase, TerminalOutcome } from '../../contract/states.ts';

/** What the functions did. */
export type Done =
  | 'submitted'
  | 'duplicate'
  | 'attached'
  | 'refused'
  | 'replaced'
  | 'fired'
  | 'discarded'
  | 'delayed'
  | 'attempt_timed_out'
  | 'execution_timed_out'
  | 'lapsed'
  | 'expired'
  | 'completed'
  | 'failed'
  | 'retry_scheduled'
  | 'released'
  | 'paused'
  | 'suspended'
  | 'already_suspended'
  | 'renewed'
  | 'recorded'
  | 'created'
  | 'replied'
  | 'run_continued'
  | 'appended'
  | 'cancelled'
  | 'already_cancelled'
  | 'revoked'
  | 'reclaims_exhausted'
  | 'replayed'
  | 'changed';

/** Why they did nothing. */
export type NotDone =
  | LeaseRefusal['outcome']
  | 'due'
  | 'open'
  | 'satisfied'
  | 'too_many_waitpoints'
  | 'waitpoint_taken'
  | 'schema_late'
  | 'name_taken'
  | 'document_too_large'
  | 'no_active_lease'
  | 'moved'
  | 'not_terminal'
  | 'key_taken'
  | 'replays_exhausted'
  | 'step_not_found'
  | 'not_eligible'
  | 'held'
  | 'unknown_route'
  | 'marked';

export interface Answered<Outcome extends string = Done | NotDone> {
  uuid: string;
  outcome: Outcome;
  /** The same lease had already done this. */
  repeated: boolean;
  /** The current state of the execution. */
  lifecyclePhase: LifecyclePhase;
  terminalOutcome: TerminalOutcome;
  attemptIndex: number;
  leaseEpoch: number;
  /** Where it is claimed from. */
  routeId: number;
  /** The worker that lost its lease because of this. */
  workerInstanceId: string | null;
  /** Due time of the timer that was set; the execution cannot be claimed before. */
  dueInMs: number | null;
  /** Its deadline: also a timer, but the execution can be claimed until then. */
  deadlineInMs: number | null;
}

/** What every function returns for a refused lease. */
export type Refused = Pick<Answered, 'outcome' | 'lifecyclePhase' | 'terminalOutcome' | 'leaseEpoch'>;
