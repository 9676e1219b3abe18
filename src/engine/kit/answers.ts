/**
 * Turns the rows of the lease-bound functions into outcomes. One row per execution, in any order.
 */
import { EngineError } from '../../contract/errors.ts';
import type { LeaseRef, LeaseRefusal } from '../../contract/protocol.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import type { Refused } from '../executions/answered.sql.ts';
import type { LeaseKey } from '../executions/executions.sql.ts';
import { GrantedClaim } from './granted-claim.ts';
import { whole } from '../../contract/shape/kinds.ts';

const attempt = whole(0, 2_147_483_647);
const epoch = whole(0, Number.MAX_SAFE_INTEGER);

/** Takes any lease reference; a claim is one too. */
export function leaseKey(lease: LeaseRef, field: string): LeaseKey {
  const key = GrantedClaim.keyOf(lease) ?? parsedKey(lease, field);
  // The names of the fields are built for an error only: this runs for every outcome.
  if (attempt.faultOf(key.attemptIndex) !== undefined)
    attempt.check(key.attemptIndex, `${field}.attemptIndex`);
  if (epoch.faultOf(key.leaseEpoch) !== undefined) epoch.check(key.leaseEpoch, `${field}.leaseEpoch`);
  return key;
}

function parsedKey(lease: LeaseRef, field: string): LeaseKey {
  const { partition, uuid } = parseExecutionId(lease?.executionId, `${field}.executionId`);
  const { attemptIndex, leaseEpoch } = lease;
  return { partition, uuid, attemptIndex, leaseEpoch };
}

export function toRefusal({ outcome, lifecyclePhase, terminalOutcome, leaseEpoch }: Refused): LeaseRefusal {
  switch (outcome) {
    case 'not_found':
    case 'lease_expired':
    case 'lease_revoked':
    case 'timed_out':
      return { outcome };
    case 'stale_lease':
      return { outcome, leaseEpoch };
    case 'conflict':
      return { outcome, lifecyclePhase, terminalOutcome };
    case 'not_active':
      return { outcome, lifecyclePhase, terminalOutcome, leaseEpoch };
    default:
      throw new EngineError('invariant_broken', `The database returned the unknown outcome ${outcome}.`);
  }
}

/** The rows in the order of the keys that were sent. */
export function inOrder<Row extends { uuid: string }>(
  keys: readonly { uuid: string }[],
  rows: readonly Row[],
): readonly Row[] {
  // They mostly come back as they were sent.
  if (rows.length === keys.length && rows.every((row, index) => row.uuid === keys[index]!.uuid)) return rows;
  const byId = new Map(rows.map((row) => [row.uuid, row]));
  return keys.map((key) => {
    const row = byId.get(key.uuid);
    if (row === undefined)
      throw new EngineError('invariant_broken', 'The database returned no row for an execution.');
    return row;
  });
}
