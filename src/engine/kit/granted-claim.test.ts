/**
 * Claims as leases: what a caller reads from one, and which execution a call under it is about.
 */
import { describe, expect, it } from 'vitest';
import type { Claim } from '../../contract/protocol.ts';
import type { ClaimPage } from '../executions/claiming/claims.sql.ts';
import { leaseKey } from './answers.ts';
import { GrantedClaim } from './granted-claim.ts';

const UUID = '0192f0c4-9b7a-7cde-8f01-23456789abcd';
const OTHER = '0192f0c4-9b7a-7cde-8f01-23456789abce';
const ROUTE = { routeId: 1, lane: 'default', kind: 'send', capabilities: [], paused: false };

const PAGE: ClaimPage = {
  uuid: [UUID],
  partition: [7],
  flowUuid: null,
  routeId: [1],
  seq: [1],
  attemptState: ['attempt_interrupted'],
  attemptLimitMs: null,
  attemptIndex: [2],
  leaseEpoch: [3],
  namespace: ['default'],
  priority: [0],
  tags: [{}],
  payload: [{ n: 1 }],
  retryCount: [0],
  reclaimed: null,
  redacted: null,
  createdAtMs: [1_700_000_000_000],
  generation: [0],
};

function granted(): Claim {
  return new GrantedClaim(PAGE, 0, ROUTE, 30_000);
}

describe('a granted claim', () => {
  it('is copied and sent as JSON with everything in it', () => {
    const claim = granted();
    expect({ ...claim }).toEqual(claim);
    expect(JSON.parse(JSON.stringify(claim))).toEqual({
      executionId: `{fp:7}:${UUID}`,
      attemptIndex: 2,
      leaseEpoch: 3,
      leaseId: '0192f0c4-9b7a-8cde-8f01-23456789abce',
      kind: 'send',
      lane: 'default',
      namespace: 'default',
      priority: 0,
      tags: {},
      payload: { n: 1 },
      retryCount: 0,
      resumed: true,
      reclaimed: false,
      redacted: false,
      createdAtMs: 1_700_000_000_000,
      generation: 0,
      flowId: null,
      leaseMs: 30_000,
    });
  });

  it('has the key of its execution, and so has a copy', () => {
    const key = { partition: 7, uuid: UUID, attemptIndex: 2, leaseEpoch: 3 };
    expect(leaseKey(granted(), 'lease')).toEqual(key);
    expect(leaseKey({ ...granted() }, 'lease')).toEqual(key);
  });

  it('has the key of another execution once its id is that of another', () => {
    const claim = granted();
    claim.executionId = `{fp:8}:${OTHER}`;
    expect(leaseKey(claim, 'lease')).toMatchObject({ partition: 8, uuid: OTHER });
  });

  it.each(['attemptIndex', 'leaseEpoch'] as const)('is refused when its %s is no number', (field) => {
    const claim = Object.assign(granted(), { [field]: 'x' });
    expect(() => leaseKey(claim, 'lease')).toThrow(`lease.${field} must be a whole number`);
  });
});
