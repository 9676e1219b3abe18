/**
 * What reads of an execution show. Values leave the engine as they are for workers, for handles that have the contract of
 * their task, and where a call asks to reveal them; everybody else is shown the rest.
 */
import type { ExecutionSnapshot } from '../../contract/executions.ts';
import type { FailureDetail } from '../../contract/failure-detail.ts';
import { REDACTED, type Redaction } from '../../contract/redaction.ts';
import type { AttemptOutcome } from '../../contract/states.ts';
import type { EngineContext } from '../kit/context.ts';
import type { ExecutionKey } from './executions.sql.ts';
import { readRedaction } from './redaction.sql.ts';

/** Null when nothing is to be hidden. Of an execution that has just been deleted everything is. */
export async function redactionOf(
  { database }: EngineContext,
  key: ExecutionKey,
  reveal = false,
): Promise<Redaction | null> {
  if (reveal) return null;
  const found = await readRedaction(database, key);
  return found === undefined ? true : found.redaction;
}

interface Failing {
  outcome: AttemptOutcome | null;
  failureMessage: string | null;
  failureDetail: FailureDetail | null;
}

/**
 * An attempt without what its handler said about its failure: any part of that may be a value, so it is hidden whole.
 * What the engine or an operator said stays. As ff_shown_text.
 */
export function shownAttempt<Attempt extends Failing>(
  attempt: Attempt,
  redaction: Redaction | null,
): Attempt {
  if (redaction === null || attempt.outcome !== 'failed') return attempt;
  return {
    ...attempt,
    failureMessage: attempt.failureMessage === null ? null : REDACTED,
    failureDetail: null,
  };
}

/** A snapshot with such attempts, and without the message of its progress. */
export function shownSnapshot(snapshot: ExecutionSnapshot, redaction: Redaction | null): ExecutionSnapshot {
  if (redaction === null) return snapshot;
  const { progress, attempts } = snapshot;
  return {
    ...snapshot,
    attempts: attempts.map((attempt) => shownAttempt(attempt, redaction)),
    progress: progress === null || progress.message === null ? progress : { ...progress, message: REDACTED },
  };
}
