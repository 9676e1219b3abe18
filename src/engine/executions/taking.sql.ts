/**
 * Calls the SQL functions that take executions away from their workers: cancel, revoke.
 */
import { columnsOf, type RowOf } from '../database/columns.ts';
import type { Database } from '../database/database.ts';
import { runForPerson } from '../database/held.ts';
import type { Answered } from './answered.sql.ts';
import { expectedArrays, uuidsOf, type ExecutionKey, type ExpectedKey } from './executions.sql.ts';

const TAKEN = columnsOf<Answered>()(
  'uuid',
  'outcome',
  'lifecyclePhase',
  'terminalOutcome',
  'leaseEpoch',
  'routeId',
  'workerInstanceId',
);
export type TakenAnswer = RowOf<typeof TAKEN>;

export function cancelExecutions(
  database: Database,
  keys: readonly ExpectedKey[],
  reason: string,
  actor: string,
): Promise<TakenAnswer[]> {
  return runForPerson(
    database,
    {
      doing: 'cancelling executions',
      columns: TAKEN,
      text: `SELECT ${TAKEN.list} FROM ${database.prefix}ff_cancel($1::uuid[], $2::smallint[], $4, $5, $3::bigint[])`,
      params: [...expectedArrays(keys), reason, actor],
      repeatable: 'yes',
    },
    uuidsOf(keys),
  );
}

export function revokeLeases(
  database: Database,
  keys: readonly (ExecutionKey & { leaseId: string | null })[],
  reason: string,
  actor: string,
  defaultMaxReclaims: number,
): Promise<TakenAnswer[]> {
  return runForPerson(
    database,
    {
      doing: 'revoking leases',
      columns: TAKEN,
      text: `SELECT ${TAKEN.list} FROM ${database.prefix}ff_revoke_leases($1::uuid[], $2::smallint[], $3::uuid[], $4, $5, $6)`,
      params: [
        keys.map((key) => key.uuid),
        keys.map((key) => key.partition),
        keys.map((key) => key.leaseId),
        reason,
        actor,
        defaultMaxReclaims,
      ],
      // Without a lease id, a second revocation would hit the next owner.
      repeatable: keys.every((key) => key.leaseId !== null) ? 'yes' : 'no',
    },
    uuidsOf(keys),
  );
}
