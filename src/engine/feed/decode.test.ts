/**
 * Rows of the event log as events: what each kind of event says, and that a row which cannot be one stops the reader with
 * its position.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeCursor } from '../../contract/cursor.ts';
import { EngineError } from '../../contract/errors.ts';
import type { StoredEvent } from './events.sql.ts';
import { decodeEvent } from './decode.ts';

const UUID = '018f0000-0000-7000-8000-000000000001';
const FLOW = '018f0000-0000-7000-8000-000000000002';
const LEASE = '018f0000-0000-8000-8000-000000000002';

const EXECUTION: StoredEvent = {
  position: 9007199254740993n,
  family: 'completion',
  type: 'success',
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
  tags: { team: 'a' },
  detail: null,
};
const NO_EXECUTION: StoredEvent = {
  ...EXECUTION,
  uuid: null,
  partition: null,
  attemptIndex: null,
  leaseEpoch: null,
  workerInstanceId: null,
  namespace: '',
  kind: null,
  lane: null,
  tags: {},
};

const base = { cursor: 'AgAgAAAAAAAB', position: 9007199254740993n, occurredAtMs: 1_700_000_000_000 };
const ofExecution = {
  ...base,
  executionId: `{fp:17}:${UUID}`,
  flowId: null,
  namespace: 'default',
  kind: 'k',
  lane: 'l',
  tags: { team: 'a' },
  attemptIndex: 2,
  leaseEpoch: 3,
};

type Detail = Record<string, unknown> | null;
const ended = { transition: 'complete', previous_owner: 'w1' };
const completed = { leaseId: LEASE, workerInstanceId: 'w1' };
const replayed = {
  by: null,
  reason: null,
  replay_count: 1,
  from: 'failed_step',
  previous_outcome: 'failed',
};

const delivered = {
  waitpoint: 'approval',
  signal_id: LEASE,
  name: 'approved',
  source_type: 'user',
  source_identity: 'ann',
  effect: 'counted',
};

/** Family, type, what the row says beyond the usual, and what the event says beyond the usual. */
const OF_EXECUTIONS: [string, string, Detail, object][] = [
  ['lease', 'acquired', null, { leaseId: LEASE, workerInstanceId: 'w1' }],
  ['lease', 'renewed', null, { leaseId: LEASE, workerInstanceId: 'w1' }],
  [
    'lease',
    'reclaimed',
    { previous_owner: 'w0', new_owner: 'w1' },
    { leaseId: LEASE, previousOwner: 'w0', newOwner: 'w1' },
  ],
  [
    'lease',
    'reclaimed',
    { previous_owner: null, new_owner: 'w1' },
    { leaseId: LEASE, previousOwner: null, newOwner: 'w1' },
  ],
  ['lease', 'expired', ended, { leaseId: LEASE, previousOwner: 'w1', transition: 'complete' }],
  ['lease', 'released', ended, { leaseId: LEASE, previousOwner: 'w1', transition: 'complete' }],
  [
    'lease',
    'revoked',
    ended,
    { leaseId: LEASE, previousOwner: 'w1', transition: 'complete', revokedBy: null },
  ],
  [
    'lease',
    'revoked',
    { ...ended, revoked_by: 'ann' },
    { leaseId: LEASE, previousOwner: 'w1', transition: 'complete', revokedBy: 'ann' },
  ],
  ...['success', 'failed', 'cancelled', 'expired', 'skipped'].map(
    (type): [string, string, Detail, object] => [
      'completion',
      type,
      null,
      { ...completed, end: null, unreadMessages: 0 },
    ],
  ),
  ['completion', 'success', { unread_messages: 3 }, { ...completed, end: null, unreadMessages: 3 }],
  [
    'signal',
    'suspended',
    { waits: ['boss', 'board'], timeout_at_ms: 5 },
    { waits: ['boss', 'board'], timeoutAtMs: 5 },
  ],
  ['signal', 'suspended', { waits: ['boss'] }, { waits: ['boss'], timeoutAtMs: null }],
  [
    'signal',
    'delivered',
    delivered,
    {
      waitpoint: 'approval',
      signalId: LEASE,
      name: 'approved',
      source: { type: 'user', identity: 'ann' },
      effect: 'counted',
    },
  ],
  [
    'signal',
    'resumed',
    { wait: 'boss', key: 'k', outcome: 'satisfied', by: 'user:ann' },
    { wait: 'boss', key: 'k', outcome: 'satisfied', by: 'user:ann' },
  ],
  ['signal', 'resumed', { outcome: 'woken' }, { wait: null, key: null, outcome: 'woken', by: null }],
  ['signal', 'escalated', { wait: 'boss' }, { wait: 'boss' }],
  ['signal', 'continued', { run: '9007199254740993' }, { run: 9_007_199_254_740_993n }],
  ...(['fail', 'cancel', 'expire'] as const).map((onTimeout): [string, string, Detail, object] => [
    'signal',
    'timed_out',
    { wait: 'boss', on_timeout: onTimeout },
    { wait: 'boss', onTimeout },
  ]),
  ['signal', 'waitpoints_expired', { waitpoints: ['a', 'b'] }, { waitpoints: ['a', 'b'] }],
  [
    'operator',
    'priority_changed',
    { by: 'ann', old_priority: 0, new_priority: 5 },
    { by: 'ann', oldPriority: 0, newPriority: 5 },
  ],
  [
    'operator',
    'replayed',
    replayed,
    { by: null, reason: null, replayCount: 1, from: 'failed_step', previousOutcome: 'failed' },
  ],
  [
    'tag',
    'tags_changed',
    { by: 'ann', set: { team: 'b' }, removed: ['old'] },
    { by: 'ann', set: { team: 'b' }, removed: ['old'] },
  ],
];

const OF_NO_EXECUTION: [string, string, Partial<StoredEvent>, object][] = [
  [
    'operator',
    'lane_paused',
    { detail: { lane: 'l', by: 'ann', reason: 'why' } },
    { lane: 'l', by: 'ann', reason: 'why' },
  ],
  ['operator', 'lane_paused', { detail: { lane: 'l' } }, { lane: 'l', by: null, reason: null }],
  ['operator', 'lane_resumed', { detail: { lane: 'l' } }, { lane: 'l' }],
  ...['registered', 'stopped', 'lost'].map((type): [string, string, Partial<StoredEvent>, object] => [
    'worker',
    type,
    { workerInstanceId: 'w1', detail: { worker_id: 'w' } },
    { workerInstanceId: 'w1', workerId: 'w', version: null },
  ]),
  [
    'worker',
    'registered',
    { workerInstanceId: 'w1', detail: { worker_id: 'w', version: '1.2' } },
    { workerInstanceId: 'w1', workerId: 'w', version: '1.2' },
  ],
];

const OF_FLOWS: [string, Detail, object][] = [
  ['submitted', { name: 'race' }, { name: 'race' }],
  [
    'cancel_requested',
    { by: 'ann', reason: 'why', policy: 'cancel_pending' },
    { by: 'ann', reason: 'why', policy: 'cancel_pending' },
  ],
  ...['completed', 'failed', 'cancelled', 'reopened'].map((type): [string, Detail, object] => [
    type,
    null,
    {},
  ]),
];
const OF_FLOW: StoredEvent = {
  ...NO_EXECUTION,
  family: 'flow',
  partition: 17,
  flowUuid: FLOW,
  namespace: 'default',
  tags: { team: 'a' },
};

describe('a row of the log', () => {
  it.each(OF_FLOWS)('flow.%s with %j says %j', (type, detail, said) => {
    const event = decodeEvent({ ...OF_FLOW, type, detail });
    const ofFlow = { flowId: `{fp:17}:${FLOW}`, namespace: 'default', tags: { team: 'a' } };
    expect(event).toEqual({ ...base, ...ofFlow, family: 'flow', type, ...said });
    for (const part of Object.values(event)) expect(Object.isFrozen(part)).toBe(true);
  });

  it.each(OF_EXECUTIONS)('%s.%s of an execution says %j', (family, type, detail, said) => {
    const event = decodeEvent({ ...EXECUTION, family, type, detail });
    expect(event).toEqual({ ...ofExecution, family, type, ...said });
  });

  it.each(OF_NO_EXECUTION)('%s.%s of no execution says %j', (family, type, row, said) => {
    const event = decodeEvent({ ...NO_EXECUTION, family, type, ...row });
    expect(event).toEqual({ ...base, family, type, ...said });
  });

  it('may end without a lease', () => {
    const event = decodeEvent({ ...EXECUTION, workerInstanceId: null });
    expect(event).toMatchObject({ leaseId: null, workerInstanceId: null });
  });

  it('names its flow in the partition of its execution', () => {
    expect(decodeEvent({ ...EXECUTION, flowUuid: FLOW })).toMatchObject({ flowId: `{fp:17}:${FLOW}` });
  });

  it('keeps its position to the last digit, also in its cursor', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 2n ** 63n - 1n }), (position) => {
        const event = decodeEvent({ ...EXECUTION, position });
        expect(event.position).toBe(position);
        expect(decodeCursor(event.cursor)).toBe(position);
      }),
    );
  });

  it('is an event nobody can change, because several readers may hold it', () => {
    const event = decodeEvent({ ...EXECUTION, tags: { team: 'a' } });
    expect(() => Object.assign(event, { position: 1n })).toThrow(TypeError);
    expect(() => Object.assign((event as { tags: object }).tags, { team: 'b' })).toThrow(TypeError);
  });

  it.each(OF_EXECUTIONS)('%s.%s cannot be changed in its parts either', (family, type, detail) => {
    const event = decodeEvent({ ...EXECUTION, family, type, detail });
    for (const part of Object.values(event)) expect(Object.isFrozen(part)).toBe(true);
  });
});

function faultOf(row: StoredEvent): EngineError {
  try {
    decodeEvent(row);
  } catch (error) {
    if (error instanceof EngineError) return error;
    throw error;
  }
  throw new Error('the row was taken for an event');
}

const lease = (type: string, detail: Detail): Partial<StoredEvent> => ({
  family: 'lease',
  type,
  detail,
});
const operator = (type: string, detail: Detail): Partial<StoredEvent> => ({
  family: 'operator',
  type,
  detail,
});
const signal = (type: string, detail: Detail): Partial<StoredEvent> => ({
  family: 'signal',
  type,
  detail,
});
const flow = (type: string, detail: Detail): Partial<StoredEvent> => ({ ...OF_FLOW, type, detail });
const cancel = { by: 'ann', reason: 'why', policy: 'cancel_all' };
const tag = (detail: Detail): Partial<StoredEvent> => ({ family: 'tag', type: 'tags_changed', detail });
const worker = (detail: Detail): Partial<StoredEvent> => ({ family: 'worker', type: 'lost', detail });

const UNDECODABLE: [Partial<StoredEvent>, string][] = [
  [{ family: 'weather' }, 'this version does not know its family'],
  [{ family: 'toString' }, 'this version does not know its family'],
  ...['lease', 'completion', 'signal', 'operator', 'tag', 'worker'].map(
    (family): [Partial<StoredEvent>, string] => [
      { family, type: 'toString' },
      'this version does not know its type',
    ],
  ),
  ...(
    [
      ['uuid', 'execution_id'],
      ['partition', 'partition_key'],
      ['attemptIndex', 'attempt_index'],
      ['leaseEpoch', 'lease_epoch'],
      ['namespace', 'namespace'],
      ['kind', 'kind'],
      ['lane', 'lane'],
      ['tags', 'tags'],
    ] as const
  ).map(([member, column]): [Partial<StoredEvent>, string] => [
    { [member]: null },
    `its ${column} is missing or malformed`,
  ]),
  [{ occurredAtMs: Number.NaN }, 'its occurred_at_ms is missing or malformed'],
  [{ tags: { team: 1 } as never }, 'its tags is missing or malformed'],
  [{ tags: [] as never }, 'its tags is missing or malformed'],
  [{ ...lease('renewed', null), workerInstanceId: null }, 'its worker_instance_id is missing or malformed'],
  [lease('reclaimed', null), 'its new_owner is missing or malformed'],
  [lease('reclaimed', { previous_owner: 1, new_owner: 'w' }), 'its previous_owner is missing or malformed'],
  [lease('expired', { transition: 'expire' }), 'its previous_owner is missing or malformed'],
  [lease('released', { previous_owner: 'w' }), 'its transition is missing or malformed'],
  [lease('revoked', null), 'its previous_owner is missing or malformed'],
  [lease('revoked', { ...ended, revoked_by: 5 }), 'its revoked_by is missing or malformed'],
  [signal('suspended', null), 'its waits is missing or malformed'],
  [signal('suspended', { waits: 'boss' }), 'its waits is missing or malformed'],
  [signal('suspended', { waits: [1] }), 'its waits is missing or malformed'],
  [signal('suspended', { waits: [], timeout_at_ms: '5' }), 'its timeout_at_ms is missing or malformed'],
  ...Object.keys(delivered).flatMap((member) =>
    [undefined, 5].map((value): [Partial<StoredEvent>, string] => [
      signal('delivered', { ...delivered, [member]: value }),
      `its ${member} is missing or malformed`,
    ]),
  ),
  [signal('delivered', { ...delivered, effect: 'lost' }), 'its effect is missing or malformed'],
  [signal('resumed', { wait: 'boss' }), 'its outcome is missing or malformed'],
  [signal('resumed', { outcome: 'escalated' }), 'its outcome is missing or malformed'],
  [signal('resumed', { outcome: 'woken', wait: 5 }), 'its wait is missing or malformed'],
  [signal('resumed', { outcome: 'woken', key: 5 }), 'its key is missing or malformed'],
  [signal('resumed', { outcome: 'woken', by: 5 }), 'its by is missing or malformed'],
  [signal('escalated', null), 'its wait is missing or malformed'],
  [signal('continued', { run: 5 }), 'its run is missing or malformed'],
  [signal('continued', { run: 'x' }), 'its run is missing or malformed'],
  [signal('timed_out', { wait: 'boss' }), 'its on_timeout is missing or malformed'],
  [signal('timed_out', { wait: 'boss', on_timeout: 'resume' }), 'its on_timeout is missing or malformed'],
  [signal('waitpoints_expired', {}), 'its waitpoints is missing or malformed'],
  [operator('priority_changed', null), 'its old_priority is missing or malformed'],
  [
    operator('priority_changed', { old_priority: '1', new_priority: 2 }),
    'its old_priority is missing or malformed',
  ],
  [operator('priority_changed', { old_priority: 1 }), 'its new_priority is missing or malformed'],
  [operator('replayed', { ...replayed, replay_count: 1.5 }), 'its replay_count is missing or malformed'],
  [operator('replayed', { ...replayed, from: 'end' }), 'its from is missing or malformed'],
  [
    operator('replayed', { ...replayed, previous_outcome: 'none' }),
    'its previous_outcome is missing or malformed',
  ],
  [operator('lane_paused', { by: 'ann' }), 'its lane is missing or malformed'],
  [operator('lane_resumed', null), 'its lane is missing or malformed'],
  [operator('lane_paused', { lane: 'l', by: 5 }), 'its by is missing or malformed'],
  [flow('ended', null), 'this version does not know its type'],
  [{ ...flow('completed', null), flowUuid: null }, 'its flow_id is missing or malformed'],
  [{ ...flow('completed', null), partition: null }, 'its partition_key is missing or malformed'],
  [{ ...flow('completed', null), namespace: null as never }, 'its namespace is missing or malformed'],
  [flow('submitted', null), 'its name is missing or malformed'],
  ...Object.keys(cancel).map((member): [Partial<StoredEvent>, string] => [
    flow('cancel_requested', { ...cancel, [member]: 5 }),
    `its ${member} is missing or malformed`,
  ]),
  [flow('cancel_requested', { ...cancel, policy: 'cancel_some' }), 'its policy is missing or malformed'],
  [tag(null), 'its removed is missing or malformed'],
  [tag({ removed: [] }), 'its set is missing or malformed'],
  [tag({ removed: [1], set: {} }), 'its removed is missing or malformed'],
  [tag({ removed: [], set: { a: null } }), 'its set is missing or malformed'],
  [worker(null), 'its worker_id is missing or malformed'],
  [
    { ...worker({ worker_id: 'w' }), workerInstanceId: null },
    'its worker_instance_id is missing or malformed',
  ],
];

describe('a row that cannot be an event', () => {
  it.each(UNDECODABLE)('is refused with its position (%#)', (members, why) => {
    const row = { ...EXECUTION, ...members };
    expect(faultOf(row)).toMatchObject({
      code: 'undecodable_event',
      message: `The event at position 9007199254740993 (${row.family}.${row.type}) cannot be read: ${why}.`,
    });
  });
});
