/**
 * Turns the rows the lease-bound functions answer into outcomes. One row per execution, in any order.
 */
import { EngineError } from '../../contract/errors.ts';
import type { LeaseRef, LeaseRefusal } from '../../contract/protocol.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import type { LeaseAnswer, LeaseKey } from '../executions/executions.sql.ts';
import type { Answer } from './announce.ts';
import { checkWhole } from './checks.ts';

export function leaseKey(lease: LeaseRef, field: string): LeaseKey {
  return {
    ...parseExecutionId(lease?.executionId, `${field}.executionId`),
    attemptIndex: checkWhole(lease.attemptIndex, `${field}.attemptIndex`, 0, 2_147_483_647),
    leaseEpoch: checkWhole(lease.leaseEpoch, `${field}.leaseEpoch`, 0, Number.MAX_SAFE_INTEGER),
  };
}

type RefusedRow = Pick<LeaseAnswer, 'outcome' | 'lease_epoch' | 'lifecycle_phase' | 'terminal_outcome'>;

export function toRefusal(row: RefusedRow): LeaseRefusal {
  switch (row.outcome) {
    case 'not_found':
    case 'lease_expired':
    case 'lease_revoked':
    case 'timed_out':
      return { outcome: row.outcome };
    case 'stale_lease':
      return { outcome: 'stale_lease', leaseEpoch: Number(row.lease_epoch) };
    case 'conflict':
      return {
        outcome: 'conflict',
        lifecyclePhase: row.lifecycle_phase,
        terminalOutcome: row.terminal_outcome,
      };
    case 'not_active':
      return {
        outcome: 'not_active',
        lifecyclePhase: row.lifecycle_phase,
        terminalOutcome: row.terminal_outcome,
        // A caller's own driver spells numbers as it likes.
        leaseEpoch: Number(row.lease_epoch),
      };
    default:
      throw new EngineError('invariant_broken', `The database answered an unknown outcome ${row.outcome}.`);
  }
}

/** The timer a lease-bound function has set is that of a retry, of a pause, or of a parent to be told. */
export function toAnnounced(row: LeaseAnswer): Answer {
  return { ...row, due_in_ms: row.retry_in_ms };
}

/** The answers in the order of the keys that were sent. */
export function inOrder<Row extends { execution_id: string }>(
  keys: readonly { uuid: string }[],
  rows: readonly Row[],
): Row[] {
  const byId = new Map(rows.map((row) => [row.execution_id, row]));
  return keys.map((key) => {
    const row = byId.get(key.uuid);
    if (row === undefined)
      throw new EngineError('invariant_broken', 'The database left an execution unanswered.');
    return row;
  });
}
