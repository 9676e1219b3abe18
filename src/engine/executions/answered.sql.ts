/**
 * What the functions answer about an execution: every column that several of them have, under one name and with one meaning. Each
 * statement names those its function has. What a member means is known from the outcome: where it does not concern that, it may be null.
 */
import type { LifecyclePhase, TerminalOutcome } from '../../contract/states.ts';

export interface Answered<Outcome extends string = string> {
  /** Of the execution. */
  uuid: string;
  outcome: Outcome;
  /** The same lease had done the same before. */
  repeated: boolean;
  /** Where the execution is now. */
  lifecyclePhase: LifecyclePhase;
  terminalOutcome: TerminalOutcome;
  attemptIndex: number;
  leaseEpoch: number;
  /** Where it can be claimed. */
  routeId: number;
  /** The worker that lost its lease by this. */
  workerInstanceId: string | null;
  /** A timer was set that is due in this long; until then it cannot be claimed. */
  dueInMs: number | null;
  /** Its deadline: a timer as well, but it can be claimed until then. */
  deadlineInMs: number | null;
}

/** What every function answers of a lease that was refused. */
export type Refused = Pick<Answered, 'outcome' | 'lifecyclePhase' | 'terminalOutcome' | 'leaseEpoch'>;
