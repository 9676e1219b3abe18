/**
 * Attempts of an execution as lines: equal ones in a row as one, and the failure that matters most with its class, its
 * causes and where it comes from.
 */
import type { TimelineAttempts, TimelineEntry } from '../../contract/described.ts';
import type { ExecutionSnapshot } from '../../contract/executions.ts';
import type { FailureCause } from '../../contract/failure-detail.ts';
import type { AttemptRecord, LeaseSpan } from '../../contract/operations.ts';
import { printable } from '../../contract/secrets.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import type { Line } from '../style.ts';
import { labelled } from '../table.ts';
import { cutLine, instant } from '../wording.ts';

/** Entries listed without --attempts, and frames of a stack. */
const ENTRIES_SHOWN = 10;
const FRAMES_SHOWN = 3;

/** The last failure, unless the execution succeeded after it. */
export function lastFailure(
  { state }: ExecutionSnapshot,
  timeline: readonly TimelineEntry[],
): TimelineAttempts | undefined {
  if (state === 'completed') return undefined;
  return timeline.filter((entry) => entry.what === 'attempts').findLast(hasFailed);
}

function hasFailed({ failureMessage }: TimelineAttempts): boolean {
  return failureMessage !== null;
}

/** `room`: columns for the text of a line; null without a terminal. */
export function failureRows(failure: TimelineAttempts | undefined, room: number | null): Line[] {
  if (failure === undefined) return [];
  const { failureDetail: detail, failureCategory: category } = failure;
  const message = failureText(failure.failureMessage!);
  const name = detail === null ? '' : printable(detail.name);
  const subject = name === '' || message.startsWith(name) ? message : `${name}: ${message}`;
  const frames = detail?.stack.split('\n').slice(0, FRAMES_SHOWN) ?? [];
  return [
    labelled('failure', `${subject}${category === null ? '' : ` (${printable(category)})`}`, 'bad'),
    ...frames.filter((frame) => frame !== '').map((frame) => labelled('', cut(frame, room), 'dim')),
    ...(detail?.causes ?? []).map((cause) => labelled('', causeText(cause))),
  ];
}

function cut(text: string, room: number | null): string {
  return room === null ? printable(text) : cutLine(text, room);
}

function causeText({ name, message, at }: FailureCause): string {
  return printable(`caused by ${name}: ${message}${at === null ? '' : ` at ${at}`}`);
}

/** The message of the failure that has rows of its own is not repeated. */
export function attemptRows(
  snapshot: ExecutionSnapshot,
  { items, truncated }: { items: readonly TimelineEntry[]; truncated: boolean },
  failure: TimelineAttempts | undefined,
): Line[] {
  const entries = items.filter((entry) => entry.what === 'attempts');
  const isShort = truncated || entries.length > ENTRIES_SHOWN;
  return [
    attemptsHeading(snapshot),
    ...(isShort ? [labelled('', '… earlier ones: --attempts lists all', 'dim')] : []),
    ...entries.slice(-ENTRIES_SHOWN).map((entry) => labelled('', entryText(entry, snapshot, failure))),
  ];
}

export function allAttemptRows(snapshot: ExecutionSnapshot, all: readonly AttemptRecord[]): Line[] {
  return [
    attemptsHeading(snapshot),
    ...all.flatMap((attempt) => [
      labelled('', recordText(attempt, snapshot)),
      ...leasesOf(attempt).map((lease) => labelled('', `   ${leaseText(lease)}`, 'dim')),
    ]),
  ];
}

/** One lease from beginning to end, never renewed, is the attempt itself. */
function leasesOf({ leases }: AttemptRecord): readonly LeaseSpan[] {
  return leases.length > 1 || leases.some(({ renewals }) => renewals > 0) ? leases : [];
}

function leaseText({ leaseEpoch, workerInstanceId, fromMs, toMs, renewals }: LeaseSpan): string {
  const lasted = toMs === null ? '' : ` for ${shortDuration(toMs - fromMs)}`;
  const times = renewals === 0 ? '' : `, renewed ${renewals === 1 ? 'once' : `${renewals} times`}`;
  return `lease ${leaseEpoch} of ${printable(workerInstanceId)} from ${instant(fromMs)}${lasted}${times}`;
}

function attemptsHeading(snapshot: ExecutionSnapshot): Line {
  const { attemptIndex, retryCount, reclaimCount, replayCount } = snapshot;
  // A replay starts both counts over.
  const since = replayCount === 0 ? '' : ' since the last replay';
  const counts = `${retryCount} retries, ${reclaimCount} leases lost${since}`;
  return labelled('attempts', `${snapshot.startedAtMs === null ? 0 : attemptIndex + 1} (${counts})`);
}

/** A lost lease is stored as `attempt_timeout`, which reads like the task's own time limit. */
function failureText(message: string): string {
  return message === 'attempt_timeout'
    ? 'its worker did not report until the lease ran out (attempt_timeout)'
    : printable(message);
}

type Outcome = Pick<AttemptRecord, 'outcome' | 'interruptedBy' | 'pauses'>;

function outcomeText({ outcome, interruptedBy, pauses }: Outcome, isRunning: boolean): string {
  const lost = interruptedBy === null ? '' : ` (lease ${interruptedBy})`;
  return `${outcome ?? (isRunning ? 'running' : (pauses.at(-1) ?? 'paused'))}${lost}`;
}

function entryText(
  entry: TimelineAttempts,
  { lease, attemptIndex }: ExecutionSnapshot,
  failure: TimelineAttempts | undefined,
): string {
  const { count, firstAttemptIndex, lastAttemptIndex, workerInstanceId, startedAtMs, endedAtMs } = entry;
  const outcome = outcomeText(entry, lease !== null && lastAttemptIndex === attemptIndex);
  const by = workerInstanceId === null ? '' : ` by ${printable(workerInstanceId)}`;
  const message =
    entry.failureMessage === null || entry === failure ? '' : `: ${failureText(entry.failureMessage)}`;
  const begun = `begun ${instant(startedAtMs)}`;
  if (count === 1) {
    const lasted = endedAtMs === null ? '' : `, took ${shortDuration(endedAtMs - startedAtMs)}`;
    const held = entry.leases.length > 1 ? `, ${entry.leases.length} leases` : '';
    return `${lastAttemptIndex + 1}. ${outcome}${by}, ${begun}${lasted}${held}${message}`;
  }
  const ended = endedAtMs === null ? '' : `, the last ended ${instant(endedAtMs)}`;
  const numbers = `${firstAttemptIndex + 1}-${lastAttemptIndex + 1}`;
  return `${numbers}. ${outcome} ${count} times, last${by}, ${begun}${ended}${message}`;
}

/** Everything known about an attempt, on one line. */
function recordText(attempt: AttemptRecord, { lease, attemptIndex }: ExecutionSnapshot): string {
  const outcome = outcomeText(attempt, lease !== null && attempt.attemptIndex === attemptIndex);
  const by = attempt.workerInstanceId === null ? '' : ` by ${printable(attempt.workerInstanceId)}`;
  const { startedAtMs, endedAtMs, retryAtMs, failureDetail } = attempt;
  const lasted = endedAtMs === null ? '' : `, took ${shortDuration(endedAtMs - startedAtMs)}`;
  const name = failureDetail === null ? '' : `${printable(failureDetail.name)}: `;
  const failure = attempt.failureMessage === null ? '' : `: ${name}${failureText(attempt.failureMessage)}`;
  const category = attempt.failureCategory === null ? '' : ` (${printable(attempt.failureCategory)})`;
  const retry = retryAtMs === null ? '' : `; next due ${instant(retryAtMs)}`;
  const begun = `begun ${instant(startedAtMs)}${lasted}`;
  return `${attempt.attemptIndex + 1}. ${outcome}${by}, ${begun}${failure}${category}${retry}`;
}
