/**
 * What `describe` returns about an execution on request, beside its snapshot. Every part is bounded: it has the last ones,
 * oldest first, and tells whether there are more.
 */
import type { AttemptRecord, ExecutionSummary, LeaseSpan } from './operations.ts';
import type { ExecutionSnapshot } from './executions.ts';
import type { Json } from './json.ts';
import type { ListedMessage, RunSummary } from './messages.ts';
import type { RevealOptions } from './redaction.ts';
import type { PendingWaitpoint } from './signals.ts';
import type { PublicState } from './states.ts';
import type { ListedStep } from './steps.ts';

/** A part of an execution that `describe` includes on request. */
export const DESCRIBE_PARTS = [
  'input',
  'steps',
  'children',
  'waits',
  'messages',
  'runs',
  'timeline',
] as const;

/** The name of such a part. */
export type DescribePart = (typeof DESCRIBE_PARTS)[number];

/** Options of describing an execution. */
export interface DescribeOptions<Part extends DescribePart = DescribePart> extends RevealOptions {
  /** What to read besides the snapshot. Default: nothing. */
  include?: readonly Part[];
}

/** The last items of a list, oldest first. */
export interface LastOf<Item> {
  items: Item[];
  /** There are earlier ones, which were left out. */
  truncated: boolean;
}

/** An execution spawned by another. */
export type ChildSnapshot = Pick<ExecutionSummary, 'executionId' | 'kind' | 'state' | 'createdAtMs'>;

/** One attempt, or several in a row that ended the same way: equal outcome, category and message. */
export interface TimelineAttempts extends Pick<
  AttemptRecord,
  | 'outcome'
  | 'interruptedBy'
  | 'pauses'
  | 'retryAtMs'
  | 'failureMessage'
  | 'failureCategory'
  | 'failureDetail'
  | 'workerInstanceId'
> {
  what: 'attempts';
  /** How many attempts this stands for. All else is of the last one. */
  count: number;
  firstAttemptIndex: number;
  lastAttemptIndex: number;
  /** When the first of them started. */
  startedAtMs: number;
  /** When the last of them ended; null while it runs or is paused. */
  endedAtMs: number | null;
  /** Who held them, and when, in order: the last 20 leases. */
  leases: readonly LeaseSpan[];
}

/** What happened to an execution, as its rows tell. */
export type TimelineEntry =
  | { what: 'submitted'; atMs: number }
  | TimelineAttempts
  /** The current lease. */
  | {
      what: 'lease';
      atMs: number;
      workerId: string;
      workerInstanceId: string;
      leaseEpoch: number;
      expiresAtMs: number;
      renewals: number;
    }
  | { what: 'ended'; atMs: number; state: PublicState };

/** The parts of an execution by their names. */
export interface DescribedParts {
  /** The payload it was submitted with. */
  input: Json;
  /** Its steps in the order they were recorded, at most 500. Values over 2 KiB are cut. */
  steps: LastOf<ListedStep>;
  /** The executions it spawned, at most 200. */
  children: LastOf<ChildSnapshot>;
  /** Its open waitpoints and the signals they have received, at most 100. */
  waits: LastOf<PendingWaitpoint>;
  /** Its messages: those that were handed over, then those that it has not received; at most 100. */
  messages: LastOf<ListedMessage>;
  /** The runs before the current one, if it continued as a new run: the last 20. */
  runs: LastOf<RunSummary>;
  /** From its submission to now, with its last 200 attempts. */
  timeline: LastOf<TimelineEntry>;
}

/** The snapshot of an execution and the parts that were asked for. */
export type DescribedExecution<Part extends DescribePart = never> = ExecutionSnapshot &
  Pick<DescribedParts, Part>;
