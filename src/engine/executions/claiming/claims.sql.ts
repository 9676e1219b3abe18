/**
 * Calls the SQL of claims, and finds the leases of claims whose answer was lost. Nothing is decided here.
 */
import type { Claim } from '../../../contract/protocol.ts';
import { columns, columnsOf, idText, inSchema, withColumns, type RowOf } from '../../database/columns.ts';
import { run, type Database } from '../../database/database.ts';
import { readUncompiled } from '../../database/uncompiled.ts';

export interface ClaimCall {
  entries: { routeId: number; rank: number | null; afterSeq: number }[];
  limit: number;
  workerId: string;
  workerInstanceId: string;
  /** Identifies this call, so that its leases can be found if the answer is lost. */
  claimId: string;
  leaseMs: number;
  quietRoutes: readonly number[];
}

/** A claim, except for what comes from its route and its caller. */
export const CLAIM = withColumns(
  columns<Pick<Claim, 'executionId' | 'flowId'>>({
    executionId: idText('partition_key', 'execution_id'),
    // A flow and its members have one partition.
    flowId: idText('partition_key', 'flow_id'),
  }),
  columnsOf<Claim>()(
    'attemptIndex',
    'leaseEpoch',
    'leaseId',
    'namespace',
    'priority',
    'tags',
    'payload',
    'retryCount',
    'resumed',
    'reclaimed',
    'createdAtMs',
    'generation',
  ),
);

/** Its position in the queue, and the time limit of its attempt. */
interface Queued {
  routeId: number;
  seq: number;
  attemptLimitMs: number | null;
}

const CLAIMED = withColumns(CLAIM, columnsOf<Queued>()('routeId', 'seq', 'attemptLimitMs'));
export type ClaimRow = RowOf<typeof CLAIMED>;

export interface ClaimAnswer {
  rows: ClaimRow[];
  nextDueInMs: number | null;
  routeHigh: number;
  /** Ready but locked, and no hint will follow when they are unlocked. */
  passedBy: number;
}

const FOOTED = withColumns(
  CLAIMED,
  columnsOf<Omit<ClaimAnswer, 'rows'>>()('nextDueInMs', 'routeHigh', 'passedBy'),
);

export async function claimExecutions(database: Database, call: ClaimCall): Promise<ClaimAnswer> {
  const answer = await run(database, {
    doing: 'claiming executions',
    columns: FOOTED,
    text: `SELECT ${FOOTED.list} FROM ${database.prefix}ff_claim($1::integer[], $2::integer[], $3::bigint[], $4, $5, $6,
      $7::uuid, $8, $9::integer[])`,
    params: [
      call.entries.map((entry) => entry.routeId),
      call.entries.map((entry) => entry.rank),
      call.entries.map((entry) => entry.afterSeq),
      call.limit,
      call.workerId,
      call.workerInstanceId,
      call.claimId,
      call.leaseMs,
      call.quietRoutes,
    ],
    // A claim whose answer was lost may have been granted leases; sending it again would take more instead of those.
    repeatable: 'no',
  });
  const footer = answer.at(-1);
  return {
    rows: answer.slice(0, -1),
    nextDueInMs: footer?.nextDueInMs ?? null,
    routeHigh: footer?.routeHigh ?? 0,
    passedBy: footer?.passedBy ?? 0,
  };
}

const RECOVERED = withColumns(CLAIMED, columnsOf<{ claimId: string }>()('claimId'));

/**
 * The leases that these claim calls were granted and still have, without those already known. Scans all leases, but
 * runs only when an answer was lost.
 */
export function readClaims(
  database: Database,
  claimIds: readonly string[],
  knownLeaseIds: readonly string[],
  limit: number,
): Promise<RowOf<typeof RECOVERED>[]> {
  return readUncompiled(database, {
    doing: 'finding the leases of an unanswered claim',
    columns: RECOVERED,
    text: inSchema(
      database,
      `SELECT ${RECOVERED.list} FROM (
         SELECT l.execution_id, l.partition_key, l.route_id, l.namespace, l.attempt_index, l.lease_epoch, l.lease_id, l.reclaimed,
           l.resumed, l.tags, l.claim_id, e.priority, 0 AS seq, e.retry_count, e.created_at_ms, e.generation, e.attempt_limit_ms, e.flow_id,
           CASE WHEN e.flow_id IS NULL THEN b.payload ELSE s.ff_input(e.execution_id, b.payload) END AS payload
         FROM s.ff_lease l
         JOIN s.ff_execution e ON e.execution_id = l.execution_id AND e.partition_key = l.partition_key
         JOIN s.ff_body b ON b.execution_id = l.execution_id AND b.partition_key = l.partition_key
         WHERE l.claim_id = ANY ($1::uuid[]) AND l.lease_id <> ALL ($2::uuid[]) LIMIT $3::bigint) x`,
    ),
    params: [claimIds, knownLeaseIds, limit],
    repeatable: 'yes',
  });
}
