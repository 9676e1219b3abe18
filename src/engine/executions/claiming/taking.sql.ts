/**
 * Calls the SQL functions that take executions from whoever has them: cancel, revoke.
 */
import type { LifecyclePhase, TerminalOutcome } from '../../../contract/states.ts';
import type { Database } from '../../database/database.ts';
import { runForPerson } from '../../database/held.ts';
import { expectedArrays, uuidsOf, type ExecutionKey, type ExpectedKey } from '../executions.sql.ts';

export interface TakenAnswer {
  execution_id: string;
  outcome: string;
  lifecycle_phase: LifecyclePhase;
  terminal_outcome: TerminalOutcome;
  lease_epoch: number;
  route_id: number;
  worker_instance_id: string | null;
}

export function cancelExecutions(
  database: Database,
  keys: readonly ExpectedKey[],
  reason: string,
  actor: string,
): Promise<TakenAnswer[]> {
  return runForPerson<TakenAnswer>(
    database,
    {
      doing: 'cancelling executions',
      text: `SELECT * FROM ${database.prefix}ff_cancel($1::uuid[], $2::smallint[], $4, $5, $3::bigint[])`,
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
  return runForPerson<TakenAnswer>(
    database,
    {
      doing: 'revoking leases',
      text: `SELECT * FROM ${database.prefix}ff_revoke_leases($1::uuid[], $2::smallint[], $3::uuid[], $4, $5, $6)`,
      params: [
        keys.map((key) => key.uuid),
        keys.map((key) => key.partition),
        keys.map((key) => key.leaseId),
        reason,
        actor,
        defaultMaxReclaims,
      ],
      // Without a lease id, a second revocation would hit the next worker.
      repeatable: keys.every((key) => key.leaseId !== null) ? 'yes' : 'no',
    },
    uuidsOf(keys),
  );
}
