/**
 * The timeline of an execution, from its snapshot and its attempts. Pure.
 */
import type { TimelineAttempts, TimelineEntry } from '../contract/described.ts';
import type { ExecutionSnapshot } from '../contract/executions.ts';
import { LIMITS } from '../contract/limits.ts';
import type { AttemptRecord } from '../contract/operations.ts';

/** `attempts`: the oldest first. */
export function timelineOf(snapshot: ExecutionSnapshot, attempts: readonly AttemptRecord[]): TimelineEntry[] {
  const { createdAtMs, endedAtMs, lease, leaseEpoch, state } = snapshot;
  const entries: TimelineEntry[] = [{ what: 'submitted', atMs: createdAtMs }, ...foldedAttempts(attempts)];
  if (lease !== null) {
    const { acquiredAtMs, leaseId: _, ...held } = lease;
    entries.push({ what: 'lease', atMs: acquiredAtMs, leaseEpoch, ...held });
  }
  if (endedAtMs !== null) entries.push({ what: 'ended', atMs: endedAtMs, state });
  return entries;
}

/** Attempts in a row that ended the same way, as one entry. */
function foldedAttempts(attempts: readonly AttemptRecord[]): TimelineAttempts[] {
  const entries: TimelineAttempts[] = [];
  for (const attempt of attempts) {
    const last = entries.at(-1);
    if (last !== undefined && isLike(last, attempt)) {
      const { count, firstAttemptIndex, startedAtMs } = last;
      const leases = [...last.leases, ...attempt.leases].slice(-LIMITS.describedLeases);
      entries.splice(-1, 1, {
        ...entryOf(attempt),
        count: count + 1,
        firstAttemptIndex,
        startedAtMs,
        leases,
      });
    } else entries.push(entryOf(attempt));
  }
  return entries;
}

/** One that has not ended is like no other. */
function isLike(entry: TimelineAttempts, attempt: AttemptRecord): boolean {
  return (
    entry.outcome !== null &&
    entry.outcome === attempt.outcome &&
    entry.interruptedBy === attempt.interruptedBy &&
    entry.failureCategory === attempt.failureCategory &&
    entry.failureMessage === attempt.failureMessage
  );
}

function entryOf(attempt: AttemptRecord): TimelineAttempts {
  const { attemptIndex, outcome, interruptedBy, pauses, workerInstanceId, startedAtMs, endedAtMs } = attempt;
  const { retryAtMs, failureMessage, failureCategory, failureDetail, leases } = attempt;
  return {
    what: 'attempts',
    count: 1,
    firstAttemptIndex: attemptIndex,
    lastAttemptIndex: attemptIndex,
    outcome,
    interruptedBy,
    pauses,
    workerInstanceId,
    startedAtMs,
    endedAtMs,
    retryAtMs,
    failureMessage,
    failureCategory,
    failureDetail,
    leases,
  };
}
