/**
 * The events of suspensions as a subscriber receives them: executions are suspended, signalled and timed out in every
 * way, and each step is reported once, in order, with its details.
 */
import { expect, it } from 'vitest';
import type { SignalCondition, TimeoutBehaviour, WaitRequest } from '../../../src/contract/signals.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionId, FeedEvent } from '../../../src/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();
const MINUTE_MS = 60_000;
const TAGS = { team: 'a' };
const ONE: SignalCondition = { kind: 'count', n: 1, by: 'signals', waitpoints: ['desk'], match: 'yes' };

const running = (kind = newKind()): Promise<Claim> =>
  bench.running({ kind, namespace: 'team-a', lane: 'slow', tags: TAGS });

async function suspend(
  claim: Claim,
  wait: Partial<WaitRequest> = {},
  more: object = {},
): Promise<ExecutionId> {
  const waits = [{ name: 'boss', condition: ONE, ...wait }];
  expect(await bench.port.suspend(claim, { waits, ...more })).toMatchObject({ outcome: 'suspended' });
  return claim.executionId;
}

/** All events of an execution except those of its lease. */
async function eventsOf(executionId: ExecutionId): Promise<FeedEvent[]> {
  const filter = { executionId, families: ['signal', 'completion'] } as const;
  const subscription = await bench.engine.events.subscribe({ from: 'beginning', until: 'now', filter });
  const events: FeedEvent[] = [];
  for await (const event of subscription) if (event.type !== 'disconnected') events.push(event);
  return events;
}

it('a signal is reported with its source and its effect, but without its payload', async () => {
  const claim = await running();
  const id = await suspend(claim, { key: 'k' });
  await bench.engine.waitpoints.approve(id, 'desk', { by: 'ann', name: 'no', payload: 'secret' });
  await bench.engine.waitpoints.approve(id, 'desk', { by: 'bob', name: 'yes' });
  const events = await eventsOf(id);
  const about = {
    family: 'signal',
    executionId: id,
    namespace: 'team-a',
    lane: 'slow',
    tags: TAGS,
    attemptIndex: 0,
    leaseEpoch: claim.leaseEpoch,
  };
  expect(events).toMatchObject([
    { ...about, type: 'suspended', waits: ['boss'], timeoutAtMs: null },
    { ...about, type: 'delivered', waitpoint: 'desk', name: 'no', effect: 'not_matching' },
    { ...about, type: 'delivered', waitpoint: 'desk', name: 'yes', effect: 'resumed' },
    { ...about, type: 'resumed', wait: 'boss', key: 'k', outcome: 'satisfied', by: 'operator:bob' },
  ]);
  expect(events[1]).toMatchObject({ source: { type: 'operator', identity: 'ann' } });
  const told = JSON.stringify(events, (_, value: unknown) => (typeof value === 'bigint' ? '' : value));
  expect(told).not.toContain('secret');
});

it('a buffered signal is reported before the suspension', async () => {
  const claim = await running();
  await bench.port.suspend(claim, { mode: 'poll', waits: [{ name: 'boss', condition: ONE }] });
  await bench.engine.waitpoints.approve(claim.executionId, 'desk', { by: 'ann', name: 'no' });
  expect(await eventsOf(await suspend(claim))).toMatchObject([
    { type: 'delivered', effect: 'buffered' },
    { type: 'suspended' },
  ]);
});

it.each<[TimeoutBehaviour, object[]]>([
  [
    'fail',
    [
      { family: 'signal', type: 'timed_out', wait: 'boss', onTimeout: 'fail' },
      { family: 'completion', type: 'failed' },
    ],
  ],
  [
    'cancel',
    [
      { family: 'signal', type: 'timed_out', wait: 'boss', onTimeout: 'cancel' },
      { family: 'completion', type: 'cancelled' },
    ],
  ],
  [
    'expire',
    [
      { family: 'signal', type: 'timed_out', wait: 'boss', onTimeout: 'expire' },
      { family: 'completion', type: 'expired' },
    ],
  ],
  ['resume', [{ type: 'resumed', wait: 'boss', key: null, outcome: 'timed_out', by: 'engine' }]],
  ['escalate', [{ type: 'escalated', wait: 'boss' }]],
])('a wait that times out with %s is reported', async (onTimeout, told) => {
  const id = await suspend(await running(), { timeoutMs: MINUTE_MS, onTimeout });
  await bench.database.moveClock(MINUTE_MS);
  await bench.port.fireTimers();
  const [first, ...rest] = await eventsOf(id);
  expect(first).toMatchObject({ type: 'suspended', timeoutAtMs: expect.any(Number) });
  expect(rest).toMatchObject(told);
});

it('a wake-up by time is reported', async () => {
  const id = await suspend(await running(), {}, { wakeInMs: MINUTE_MS });
  await bench.database.moveClock(MINUTE_MS);
  await bench.port.fireTimers();
  expect((await eventsOf(id)).slice(1)).toMatchObject([
    { type: 'resumed', wait: null, key: null, outcome: 'woken', by: 'engine' },
  ]);
});

it('waitpoints that expired unused are reported together', async () => {
  const claim = await running();
  for (const name of ['b', 'a']) {
    const expiring = { name, expiresInMs: MINUTE_MS };
    expect(await bench.port.createWaitpoint(claim, expiring)).toMatchObject({ outcome: 'created' });
  }
  await bench.port.renew([claim], 10 * MINUTE_MS);
  await bench.database.moveClock(2 * MINUTE_MS);
  await bench.port.fireTimers();
  expect(await eventsOf(claim.executionId)).toMatchObject([
    { type: 'waitpoints_expired', waitpoints: ['a', 'b'] },
  ]);
});

it('the family can be filtered by its types', async () => {
  const kind = newKind();
  const subscription = await bench.engine.events.subscribe({ filter: { kind, types: ['suspended'] } });
  const id = await suspend(await running(kind));
  expect(await subscription.next()).toMatchObject({ value: { type: 'suspended', executionId: id } });
  await subscription.close();
});
