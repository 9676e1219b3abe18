/**
 * How the owner of a lease gives it up: complete, fail, release. Calls made at the same time share a statement.
 */
import { isPassingTrouble } from '../../contract/errors.ts';
import { anyString, choice, list, string } from '../../contract/shape/kinds.ts';
import type { FailureCause, FailureDetail } from '../../contract/failure-detail.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, Kind, shape } from '../../contract/shape/shape.ts';
import type {
  Claim,
  CompleteFor,
  CompleteOutcome,
  FailOutcome,
  Failure,
  LeaseRef,
  ReleaseOutcome,
} from '../../contract/protocol.ts';
import {
  completeExecutions,
  releaseExecutions,
  type CompletedAnswer,
  type CompleteRow,
  type LeaseAnswer,
  type LeaseKey,
} from './executions.sql.ts';
import { failExecutions, type FailedAnswer, type FailRow } from './failing.sql.ts';
import { announce, announceCompleted, type Answer } from '../kit/announce.ts';
import { Batch } from '../kit/batch.ts';
import type { EngineContext } from '../kit/context.ts';
import { cutText } from '../../model/cut-text.ts';
import { boundedDetail } from '../../model/failure-detail.ts';
import { encodeJson } from '../../model/json.ts';
import { inOrder, leaseKey, toRefusal } from '../kit/answers.ts';
import { delayTime } from '../kit/kinds.ts';

const BATCH = {
  maxItems: 500,
  maxFlights: 3,
  keyOf: (key: LeaseKey) => key.uuid,
  isItemFault: (error: unknown) => !isPassingTrouble(error),
};

export interface Endings {
  complete(lease: LeaseRef, result: unknown): Promise<CompleteOutcome>;
  completeFor: CompleteFor;
  fail(lease: LeaseRef, failure: Failure): Promise<FailOutcome>;
  release(lease: LeaseRef): Promise<ReleaseOutcome>;
  /** Resolves when every call made so far has its answer. */
  settled(): Promise<void>;
}

export function createEndings(context: EngineContext): Endings {
  const completions = new Batch<CompleteRow, CompleteOutcome>({
    ...BATCH,
    sizeOf: (row) => row.result?.length ?? 0,
    // Members after one of a flow are locked with it, which a claim must not wait for.
    mayLend: (row) => !row.isMember,
    run: (rows) => complete(context, rows),
  });
  const failures = new Batch<FailRow, FailOutcome>({
    ...BATCH,
    sizeOf: (row) => row.message.length + (row.detail?.length ?? 0),
    run: (rows) => fail(context, rows),
  });
  const releases = new Batch<LeaseKey, ReleaseOutcome>({
    ...BATCH,
    sizeOf: () => 0,
    run: (keys) => release(context, keys),
  });
  context.completions = completions;
  return {
    complete: (lease, result) => completions.add(completeRow(lease, result)),
    completeFor: (lease, result, waiter) => completions.enter(completeRow(lease, result), waiter),
    fail: (lease, failure) => failures.add(failRow(lease, failure)),
    release: (lease) => releases.add(leaseKey(lease, 'lease')),
    async settled() {
      await Promise.all([completions.settled(), failures.settled(), releases.settled()]);
    },
  };
}

/** Key by key: a spread would cost more than the rest of the call. */
function completeRow(lease: LeaseRef, result: unknown): CompleteRow {
  const { uuid, partition, attemptIndex, leaseEpoch } = leaseKey(lease, 'lease');
  const { flowId = null } = lease as Partial<Claim>;
  return {
    uuid,
    partition,
    attemptIndex,
    leaseEpoch,
    result: encodeJson(result, 'result'),
    isMember: flowId !== null,
  };
}

const COMPLETED: CompleteOutcome = Object.freeze({ outcome: 'completed', repeated: false });

async function complete(context: EngineContext, rows: CompleteRow[]): Promise<CompleteOutcome[]> {
  return completed(context, rows, await completeExecutions(context.database, rows));
}

/** Announces what was completed and returns the outcomes in the order of the rows. */
export function completed(
  context: EngineContext,
  rows: readonly CompleteRow[],
  { told, others, effects }: CompletedAnswer,
): CompleteOutcome[] {
  if (!told && others === null && effects === null) {
    announceCompleted(
      context,
      rows.map(({ uuid }) => uuid),
    );
    return rows.map(() => COMPLETED);
  }
  const byId = new Map(others?.map((other) => [other.uuid, other]));
  const dueInMs = told ? 0 : null;
  const answers = rows.map(({ uuid }): Answer => byId.get(uuid) ?? { uuid, outcome: 'completed', dueInMs });
  announce(context, effects === null ? answers : [...answers, ...effects]);
  return rows.map(({ uuid }) => {
    const other = byId.get(uuid);
    if (other === undefined) return COMPLETED;
    return other.outcome === 'completed'
      ? { outcome: 'completed', repeated: other.repeated }
      : toRefusal(other);
  });
}

async function fail(context: EngineContext, rows: FailRow[]): Promise<FailOutcome[]> {
  const { answers, others, effects, maxRetries } = await failExecutions(context.database, rows);
  const ended = [...(answers ?? []), ...(others ?? [])];
  announce(context, [...ended, ...(effects ?? [])]);
  return inOrder(rows, ended).map((row, index) => toFailOutcome(row, maxRetries[index] ?? undefined));
}

function toFailOutcome(row: FailedAnswer | LeaseAnswer, maxRetries: number | undefined): FailOutcome {
  const limit = maxRetries === undefined ? {} : { maxRetries };
  switch (row.outcome) {
    case 'retry_scheduled':
      return { outcome: 'retry_scheduled', repeated: row.repeated, retryInMs: row.dueInMs ?? 0, ...limit };
    case 'failed':
      return { outcome: 'failed', repeated: row.repeated, ...limit };
    default:
      return toRefusal(row as LeaseAnswer);
  }
}

async function release(context: EngineContext, keys: LeaseKey[]): Promise<ReleaseOutcome[]> {
  const answers = await releaseExecutions(context.database, keys);
  announce(context, answers);
  return inOrder(keys, answers).map((row) =>
    row.outcome === 'released'
      ? { outcome: 'released', repeated: row.repeated }
      : toRefusal(row as LeaseAnswer),
  );
}

/** Causes beyond the limit are left out; this many are not a report any more. */
const CAUSES_SENT = 1_000;
const placeOrNull = new Kind<string | null>((value) =>
  value === null ? undefined : anyString.faultOf(value) && fault('must be a string or null'),
);
const causeShape = shape<FailureCause>({ name: anyString, message: anyString, at: placeOrNull });

const detailShape = shape<FailureDetail>({
  name: anyString,
  stack: anyString,
  causes: list(causeShape, CAUSES_SENT),
});

const failureShape = shape<Failure>({
  message: anyString,
  category: string(LIMITS.categoryBytes).optional(),
  retryAfterMs: delayTime.optional(),
  retry: choice(['policy', 'never']).optional(),
  detail: detailShape.optional(),
});

/** A failure report must not be refused because of its text: that is truncated and cleaned instead. */
function failRow(lease: LeaseRef, failure: Failure): FailRow {
  const { message, category, retryAfterMs, retry, detail } = failureShape.check(failure, 'failure');
  return {
    ...leaseKey(lease, 'lease'),
    message: cutText(message, LIMITS.failureMessageBytes),
    category: category ?? (retry === 'never' ? 'permanent' : 'transient'),
    retryAfterMs: retryAfterMs ?? null,
    terminal: retry === 'never',
    detail: detail === undefined ? null : JSON.stringify(boundedDetail(detail)),
  };
}
