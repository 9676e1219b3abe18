/**
 * Calls the SQL of claims, and finds the leases of claims whose answer was lost. Nothing is decided here.
 */
import type { Claim } from '../../../contract/protocol.ts';
import {
  columns,
  columnsOf,
  inSchema,
  textInSchema,
  withColumns,
  type RowOf,
} from '../../database/columns.ts';
import { onlyRow, run, type Database } from '../../database/database.ts';
import { readUncompiled } from '../../database/uncompiled.ts';
import {
  COMPLETE_ARGUMENTS,
  COMPLETED,
  completeParams,
  type CompletedAnswer,
  type CompleteRow,
} from '../executions.sql.ts';

export interface ClaimCall {
  entries: { routeId: number; rank: number | null; afterSeq: number }[];
  limit: number;
  workerId: string;
  workerInstanceId: string;
  /** Identifies this call, so that its leases can be found if the answer is lost. */
  claimId: string;
  leaseMs: number;
}

/** A granted lease: the claim, except for what comes from its route and its caller, and its place in the queue. */
interface ClaimRow extends Pick<
  Claim,
  | 'attemptIndex'
  | 'leaseEpoch'
  | 'namespace'
  | 'priority'
  | 'tags'
  | 'payload'
  | 'retryCount'
  | 'reclaimed'
  | 'redacted'
  | 'createdAtMs'
  | 'generation'
> {
  uuid: string;
  partition: number;
  flowUuid: string | null;
  routeId: number;
  seq: number;
  /** `attempt_interrupted`: it was paused and continues. */
  attemptState: string;
  /** The time limit of its attempt. */
  attemptLimitMs: number | null;
}

/** Parallel arrays: one text for all claims of a page costs a fraction of a row for each. Null where no claim has it. */
export type ClaimPage = {
  [Key in Exclude<keyof ClaimRow, SometimesKnown>]: ClaimRow[Key][];
} & { [Key in SometimesKnown]: ClaimRow[Key][] | null };

type SometimesKnown = 'reclaimed' | 'attemptLimitMs' | 'flowUuid' | 'redacted';

export interface ClaimAnswer {
  pages: ClaimPage[];
  nextDueInMs: number | null;
  routeHigh: number;
  /** Ready but locked, and no hint will follow when they are unlocked. */
  passedBy: number;
}

const ANSWERED = withColumns(
  columns<{ pages: ClaimPage[] }>({ pages: 'array_to_json(pages)' }),
  columnsOf<Omit<ClaimAnswer, 'pages' | 'routeHigh'> & { routeHigh: number | null }>()(
    'nextDueInMs',
    'routeHigh',
    'passedBy',
  ),
);

const CLAIM = textInSchema(
  (
    prefix,
  ) => `SELECT ${ANSWERED.list} FROM ${prefix}ff_claim($1::integer[], $2::integer[], $3::bigint[], $4, $5, $6,
      $7::uuid, $8)`,
);

/** A claim whose answer was lost may have been granted leases; sending it again would take more instead of those. */
export async function claimExecutions(database: Database, call: ClaimCall): Promise<ClaimAnswer> {
  const answer = await run(database, {
    doing: 'claiming executions',
    columns: ANSWERED,
    text: CLAIM(database),
    params: claimParams(call),
    repeatable: 'no',
  });
  return toAnswer(onlyRow('claiming executions', answer));
}

export interface CompletedAndClaimed {
  /** Null when nothing was completed, because that would have had to wait. */
  completed: CompletedAnswer | null;
  claimed: ClaimAnswer;
}

const BOTH = withColumns(COMPLETED, ANSWERED);
const COMPLETE_AND_CLAIM = textInSchema(
  (
    prefix,
  ) => `SELECT ${BOTH.list} FROM ${prefix}ff_complete_and_claim(${COMPLETE_ARGUMENTS}, $6::integer[], $7::integer[],
      $8::bigint[], $9, $10, $11, $12::uuid, $13)`,
);

/** Both in one transaction: completions that are ready to be sent, and the claim for what comes after them. */
export async function completeAndClaim(
  database: Database,
  rows: readonly CompleteRow[],
  call: ClaimCall,
): Promise<CompletedAndClaimed> {
  const answer = await run(database, {
    doing: 'completing and claiming executions',
    columns: BOTH,
    text: COMPLETE_AND_CLAIM(database),
    params: [...completeParams(rows), ...claimParams(call)],
    repeatable: 'no',
  });
  const row = onlyRow('completing and claiming executions', answer);
  return { completed: row.told === null ? null : row, claimed: toAnswer(row) };
}

function claimParams(call: ClaimCall): unknown[] {
  return [
    call.entries.map((entry) => entry.routeId),
    call.entries.map((entry) => entry.rank),
    call.entries.map((entry) => entry.afterSeq),
    call.limit,
    call.workerId,
    call.workerInstanceId,
    call.claimId,
    call.leaseMs,
  ];
}

function toAnswer({ pages, nextDueInMs, routeHigh, passedBy }: RowOf<typeof ANSWERED>): ClaimAnswer {
  return { pages, nextDueInMs, routeHigh: routeHigh ?? 0, passedBy };
}

const RECOVERED = withColumns(
  columns<{ flowUuid: string | null }>({ flowUuid: 'flow_id' }),
  columnsOf<Omit<ClaimRow, 'flowUuid'> & { claimId: string }>()(
    'uuid',
    'partition',
    'routeId',
    'seq',
    'attemptLimitMs',
    'attemptIndex',
    'leaseEpoch',
    'namespace',
    'priority',
    'tags',
    'payload',
    'retryCount',
    'attemptState',
    'reclaimed',
    'redacted',
    'createdAtMs',
    'generation',
    'claimId',
  ),
);

export type RecoveredClaim = RowOf<typeof RECOVERED>;

/** Recovered claims in the form in which others arrive. */
export function pageOf(rows: readonly RecoveredClaim[]): ClaimPage {
  const column = <Key extends keyof RecoveredClaim>(key: Key): RecoveredClaim[Key][] =>
    rows.map((row) => row[key]);
  return {
    uuid: column('uuid'),
    partition: column('partition'),
    flowUuid: column('flowUuid'),
    routeId: column('routeId'),
    seq: column('seq'),
    attemptState: column('attemptState'),
    attemptLimitMs: column('attemptLimitMs'),
    attemptIndex: column('attemptIndex'),
    leaseEpoch: column('leaseEpoch'),
    namespace: column('namespace'),
    priority: column('priority'),
    tags: column('tags'),
    payload: column('payload'),
    retryCount: column('retryCount'),
    reclaimed: column('reclaimed'),
    redacted: column('redacted'),
    createdAtMs: column('createdAtMs'),
    generation: column('generation'),
  };
}

/**
 * The leases that these claim calls were granted and still have, without those already known. Scans all claims, but
 * runs only when an answer was lost.
 */
export function readClaims(
  database: Database,
  claimIds: readonly string[],
  knownLeaseIds: readonly string[],
  limit: number,
): Promise<RecoveredClaim[]> {
  return readUncompiled(database, {
    doing: 'finding the leases of an unanswered claim',
    columns: RECOVERED,
    text: inSchema(
      database,
      `SELECT ${RECOVERED.list} FROM (
         SELECT e.execution_id, e.partition_key, e.route_id, e.namespace, e.attempt_index, e.lease_epoch,
           g.claim_id, coalesce(e.lease_tags, e.tags) AS tags, e.priority, 0 AS seq, e.retry_count,
           e.created_at_ms, e.generation, e.attempt_limit_ms, e.flow_id, e.traits & 8 <> 0 AS redacted,
           CASE WHEN e.attempt_paused THEN 'attempt_interrupted' ELSE 'running_attempt' END AS attempt_state,
           coalesce((SELECT h.outcome = 'interrupted' FROM s.ff_attempt_history h WHERE h.execution_id = e.execution_id
             AND h.partition_key = e.partition_key AND h.attempt_index = e.attempt_index - 1), false) AS reclaimed,
           CASE WHEN e.flow_id IS NULL THEN s.ff_payload_of(e.payload, e.execution_id)
             ELSE s.ff_input(e.execution_id, s.ff_payload_of(e.payload, e.execution_id)) END AS payload
         FROM s.ff_grant g CROSS JOIN LATERAL unnest(g.execution_ids) i(id)
         JOIN s.ff_execution e ON e.execution_id = i.id AND e.claim_no = g.claim_no
         WHERE g.claim_id = ANY ($1::uuid[]) AND s.ff_lease_id(e.execution_id, e.lease_epoch) <> ALL ($2::uuid[])
         LIMIT $3::bigint) x`,
    ),
    params: [claimIds, knownLeaseIds, limit],
    repeatable: 'yes',
  });
}
