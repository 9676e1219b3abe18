/**
 * What a lease holder does with its lease: complete, fail, release. Calls made together share one statement.
 */
import { isPassingTrouble } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import type {
  CompleteOutcome,
  FailOutcome,
  Failure,
  LeaseRef,
  ReleaseOutcome,
} from '../../contract/protocol.ts';
import {
  completeExecutions,
  failExecutions,
  releaseExecutions,
  type CompleteRow,
  type FailRow,
  type LeaseAnswer,
  type LeaseKey,
} from './executions.sql.ts';
import { announce } from '../kit/announce.ts';
import { Batch } from '../kit/batch.ts';
import { checkText, checkWhole, cutText, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { encodeJson } from '../../model/json.ts';
import { checkMembers } from '../kit/settings.ts';
import { inOrder, leaseKey, toRefusal } from '../kit/answers.ts';

const BATCH = {
  maxItems: 500,
  maxFlights: 3,
  keyOf: (key: LeaseKey) => key.uuid,
  isItemFault: (error: unknown) => !isPassingTrouble(error),
};

export interface Endings {
  complete(lease: LeaseRef, result: unknown): Promise<CompleteOutcome>;
  fail(lease: LeaseRef, failure: Failure): Promise<FailOutcome>;
  release(lease: LeaseRef): Promise<ReleaseOutcome>;
  /** Until every call made so far has its answer. */
  settled(): Promise<void>;
}

export function createEndings(context: EngineContext): Endings {
  const completions = new Batch<CompleteRow, CompleteOutcome>({
    ...BATCH,
    sizeOf: (row) => row.result?.length ?? 0,
    run: (rows) => complete(context, rows),
  });
  const failures = new Batch<FailRow, FailOutcome>({
    ...BATCH,
    sizeOf: (row) => row.message.length,
    run: (rows) => fail(context, rows),
  });
  const releases = new Batch<LeaseKey, ReleaseOutcome>({
    ...BATCH,
    sizeOf: () => 0,
    run: (keys) => release(context, keys),
  });
  return {
    complete: async (lease, result) =>
      completions.add({ ...leaseKey(lease, 'lease'), result: encodeJson(result, 'result') }),
    fail: async (lease, failure) => failures.add(failRow(lease, failure)),
    release: async (lease) => releases.add(leaseKey(lease, 'lease')),
    async settled() {
      await Promise.all([completions.settled(), failures.settled(), releases.settled()]);
    },
  };
}

async function complete(context: EngineContext, rows: CompleteRow[]): Promise<CompleteOutcome[]> {
  const answers = await completeExecutions(context.database, rows);
  announce(context, answers);
  return inOrder(rows, answers).map((row) =>
    row.outcome === 'completed' ? { outcome: 'completed', repeated: row.repeated } : toRefusal(row),
  );
}

async function fail(context: EngineContext, rows: FailRow[]): Promise<FailOutcome[]> {
  const answers = await failExecutions(context.database, rows);
  announce(context, answers);
  return inOrder(rows, answers).map(toFailOutcome);
}

function toFailOutcome(row: LeaseAnswer): FailOutcome {
  switch (row.outcome) {
    case 'retry_scheduled':
      return { outcome: 'retry_scheduled', repeated: row.repeated, retryInMs: row.dueInMs ?? 0 };
    case 'failed':
      return { outcome: 'failed', repeated: row.repeated };
    default:
      return toRefusal(row);
  }
}

async function release(context: EngineContext, keys: LeaseKey[]): Promise<ReleaseOutcome[]> {
  const answers = await releaseExecutions(context.database, keys);
  announce(context, answers);
  return inOrder(keys, answers).map((row) =>
    row.outcome === 'released' ? { outcome: 'released', repeated: row.repeated } : toRefusal(row),
  );
}

/** A failure report must not fail for its text: messages are cut and cleaned, not refused. */
function failRow(lease: LeaseRef, failure: Failure): FailRow {
  checkMembers(failure, 'failure', ['message', 'category', 'retryAfterMs', 'retry']);
  if (typeof failure.message !== 'string') refuse('failure.message', 'must be a string');
  const retry = failure.retry ?? 'policy';
  if (retry !== 'policy' && retry !== 'never') refuse('failure.retry', 'must be policy or never');
  return {
    ...leaseKey(lease, 'lease'),
    message: cutText(failure.message, LIMITS.failureMessageBytes),
    category: checkText(failure.category ?? 'transient', 'failure.category', LIMITS.categoryBytes),
    retryAfterMs:
      failure.retryAfterMs === undefined
        ? null
        : checkWhole(failure.retryAfterMs, 'failure.retryAfterMs', 0, LIMITS.delayMs),
    terminal: retry === 'never',
  };
}
