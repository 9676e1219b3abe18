/**
 * What a member of a flow waits for, and why it was skipped, from facts alone; and that this is not confused with
 * waiting for children.
 */
import { describe, expect, it } from 'vitest';
import { isBlocked, joinFacts, tellJoin, tellSkip, type JoinFacts, type Upstream } from './blocked.ts';
import { resultOf, TRANSITIONS } from '../transitions.ts';

const upstream = (name: string, change: Partial<Upstream> = {}): Upstream => ({
  name,
  executionId: '{fp:7}:018f0000-0000-7000-8000-000000000001',
  state: 'active',
  on: 'success',
  ...change,
});

const join = (change: Partial<JoinFacts> = {}): JoinFacts => ({
  flowId: '{fp:7}:018f0000-0000-7000-8000-00000000000f',
  flow: 'race',
  isSealed: true,
  member: 'judge',
  kind: 'all',
  needed: 0,
  edges: 3,
  satisfied: 0,
  failed: 0,
  skipped: 0,
  pending: [],
  unmet: [],
  ...change,
});

describe('a member that waits for its join', () => {
  it.each<[string, JoinFacts | null]>([
    [
      'It is waiting for all 3 upstream members; so far 1 satisfied, 2 pending: gpt (active), claude (waiting).',
      join({ satisfied: 1, pending: [upstream('gpt'), upstream('claude', { state: 'waiting' })] }),
    ],
    [
      'It is waiting for its upstream member; so far 0 satisfied, 1 pending: gpt (suspended).',
      join({ edges: 1, pending: [upstream('gpt', { state: 'suspended' })] }),
    ],
    [
      'It is waiting for 2 of 9 upstream members; so far 1 satisfied, 2 failed, 1 skipped, 5 pending: gpt to fail (active) and 4 others.',
      join({
        kind: 'quorum',
        needed: 2,
        edges: 9,
        satisfied: 1,
        failed: 2,
        skipped: 1,
        pending: [upstream('gpt', { on: 'failure' })],
      }),
    ],
    [
      'It is waiting for any of 3 upstream members; so far 0 satisfied, 3 pending: gpt (cancelled, its edge is resolved within about a second) and 2 others.',
      join({ kind: 'any', needed: 1, pending: [upstream('gpt', { state: 'cancelled' })] }),
    ],
    ['It is waiting for the flow race to be sealed.', join({ isSealed: false, edges: 0 })],
    [
      'It is waiting for the flow race to be sealed; its join has 1 satisfied, 2 pending so far.',
      join({ isSealed: false, satisfied: 1 }),
    ],
    ['It is waiting for members of its flow.', null],
  ])('%s', (sentence, facts) => {
    expect(tellJoin(facts)).toBe(sentence);
  });

  it('has the same as facts, with how many edges an all-join needs', () => {
    const told = joinFacts(join({ satisfied: 1, failed: 1, pending: [upstream('gpt')] }));
    expect(told).toMatchObject({ join: 'all', needed: 3, satisfied: 1, failed: 1, pending: 1 });
    expect(told['waitsFor']).toEqual([upstream('gpt')]);
    expect(joinFacts(null)).toEqual({});
  });
});

describe('a member that was skipped', () => {
  it.each<[string | null, JoinFacts | null, string | null]>([
    [
      'its join (all 3 upstream members) became impossible: gpt is failed',
      join({ failed: 1, unmet: [upstream('gpt', { state: 'failed' })] }),
      'dependency_impossible',
    ],
    [
      'its join (any of 3 upstream members) became impossible: gpt is expired, plan-b was expected to be skipped but is completed and 1 other',
      join({
        kind: 'any',
        needed: 1,
        failed: 2,
        skipped: 1,
        unmet: [
          upstream('gpt', { state: 'expired' }),
          upstream('plan-b', { on: 'skipped', state: 'completed' }),
        ],
      }),
      'dependency_impossible',
    ],
    ['the results passed to it are too large', join({ satisfied: 3 }), 'input_too_large'],
    [null, join(), 'dependency_impossible'],
    [null, null, 'dependency_impossible'],
  ])('%s', (sentence, facts, message) => {
    expect(tellSkip(facts, message)).toBe(sentence);
  });
});

describe('an execution that waits for a join', () => {
  it('has not started; one that waits for children has', () => {
    expect(isBlocked(resultOf(TRANSITIONS.submit_blocked, 'pending_first_attempt'))).toBe(true);
    expect(isBlocked(resultOf(TRANSITIONS.reopen, 'attempt_terminal'))).toBe(true);
    expect(isBlocked(resultOf(TRANSITIONS.await_children, 'attempt_interrupted'))).toBe(false);
    expect(isBlocked(resultOf(TRANSITIONS.unblock, 'pending_first_attempt'))).toBe(false);
  });
});
