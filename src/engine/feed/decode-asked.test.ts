/**
 * Rows of the log about executions that ask for all events: what their events say, and what stops the reader.
 */
import { describe, expect, it } from 'vitest';
import { decodeEvent } from './decode.ts';
import type { StoredEvent } from './events.sql.ts';

const UUID = '018f0000-0000-7000-8000-000000000001';
const PARENT = '018f0000-0000-7000-8000-000000000002';
const LEASE = { leaseId: '018f0000-0000-8000-8000-000000000002', workerInstanceId: 'w1' };

function row(family: string, type: string, detail: StoredEvent['detail']): StoredEvent {
  return {
    position: 5n,
    family,
    type,
    occurredAtMs: 1_700_000_000_000,
    uuid: UUID,
    partition: 17,
    flowUuid: null,
    attemptIndex: 2,
    leaseEpoch: 3,
    workerInstanceId: 'w1',
    namespace: 'default',
    kind: 'k',
    lane: 'l',
    tags: {},
    detail,
  };
}

describe('an event that was asked for', () => {
  it.each([
    ['success', { result: { a: 1 } }, { result: { a: 1 } }],
    ['success', { result: null }, { result: null }],
    ['success', { omitted: 'too_large' }, { omitted: 'too_large' }],
    ['success', { omitted: 'redacted' }, { omitted: 'redacted' }],
    ['failed', { message: 'no', category: 'x' }, { message: 'no', category: 'x' }],
    ['cancelled', { message: 'why' }, { message: 'why', category: null }],
  ])('completion.%s with %j carries it', (type, stored, end) => {
    const event = decodeEvent(row('completion', type, { end: stored }));
    expect(event).toMatchObject({ ...LEASE, end });
    expect(Object.isFrozen('end' in event && event.end)).toBe(true);
  });

  it.each([
    [
      'submitted',
      { priority: 3, parent: PARENT, eligible_at_ms: 5 },
      { priority: 3, parentId: `{fp:17}:${PARENT}`, eligibleAtMs: 5 },
    ],
    ['submitted', { priority: 0 }, { priority: 0, parentId: null, eligibleAtMs: null }],
    ['step_finished', { name: 's', key: '' }, { ...LEASE, name: 's', key: '', durationMs: null }],
    ['step_finished', { name: 's', key: 'k', duration_ms: 7 }, { ...LEASE, key: 'k', durationMs: 7 }],
    ['progress_reported', { percent: 12.5 }, { ...LEASE, percent: 12.5, message: null }],
    ['progress_reported', { message: 'm' }, { ...LEASE, percent: null, message: 'm' }],
  ])('execution.%s with %j says it', (type, detail, said) => {
    const event = decodeEvent(row('execution', type, detail));
    expect(event).toMatchObject({ family: 'execution', type, executionId: `{fp:17}:${UUID}`, ...said });
    expect(Object.isFrozen(event)).toBe(true);
  });

  it.each([
    ['completion', 'success', { end: 5 }],
    ['completion', 'success', { end: {} }],
    ['completion', 'success', { end: { omitted: 'whatever' } }],
    ['completion', 'failed', { end: { message: 5 } }],
    ['execution', 'submitted', null],
    ['execution', 'step_finished', { name: 's' }],
    ['execution', 'progress_reported', { percent: 'half' }],
    ['execution', 'claimed', {}],
  ])('%s.%s with %j stops the reader', (family, type, detail) => {
    expect(() => decodeEvent(row(family, type, detail))).toThrow(/The event at position 5/);
  });
});
