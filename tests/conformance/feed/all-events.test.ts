/**
 * Events on request: of executions whose task or lane asks for all events, the feed also tells of submits, finished steps
 * and progress, and completions carry how they ended. Of others it tells what it always did.
 */
import { describe, expect, it } from 'vitest';
import type { FeedEvent } from '../../../src/contract/events.ts';
import { LIMITS } from '../../../src/contract/limits.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { ExecutionId } from '../../../src/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();
const ALL = { policy: { events: 'all' } } as const;
const RETRYING = { events: 'all', retry: { maxRetries: 1, backoff: { type: 'fixed', delay: 1 } } } as const;

async function eventsOf(filter: { executionId?: string; kind?: string }): Promise<FeedEvent[]> {
  const found: FeedEvent[] = [];
  const subscription = await bench.engine.events.subscribe({ from: 'beginning', until: 'now', filter });
  for await (const event of subscription) if (event.type !== 'disconnected') found.push(event);
  return found;
}

const names = (events: readonly FeedEvent[]) => events.map(({ family, type }) => `${family}.${type}`);

async function endOf(executionId: ExecutionId): Promise<unknown> {
  const last = (await eventsOf({ executionId })).at(-1);
  if (last?.family !== 'completion') throw new Error(`the last event is ${last?.family}`);
  return last.end;
}

/** Everything a handler may do that is told. */
async function work(claim: Claim): Promise<void> {
  await bench.port.recordStep(claim, { name: 'fetch', key: 'a', value: { secret: 1 }, durationMs: 12 });
  await bench.port.recordStep(claim, { name: 'fetch', key: 'a', value: { secret: 1 }, durationMs: 12 });
  await bench.port.recordStep(claim, { name: 'nap', sleepMs: 5 });
  await bench.port.reportProgress(claim, { percent: 40, message: 'half of it' });
  await bench.port.reportProgress(claim, { percent: 41 });
  await bench.port.complete(claim, { pages: 3 });
}

describe('an execution that asks for all events', () => {
  it('tells of its submit, its steps, its progress and its result, in order', async () => {
    const tags = { customer: '42' };
    const claim = await bench.running({ ...ALL, tags, priority: 7, lane: 'told' });
    await work(claim);
    const { executionId, leaseId } = claim;
    const events = await eventsOf({ executionId });
    const common = { executionId, tags, lane: 'told', kind: claim.kind, namespace: 'default', flowId: null };
    const lease = { ...common, leaseId, workerInstanceId: 'worker-1', leaseEpoch: 1, attemptIndex: 0 };
    expect(events).toMatchObject([
      { ...common, family: 'execution', type: 'submitted', priority: 7, parentId: null, eligibleAtMs: null },
      { family: 'lease', type: 'acquired' },
      { ...lease, family: 'execution', type: 'step_finished', name: 'fetch', key: 'a', durationMs: 12 },
      { ...lease, family: 'execution', type: 'progress_reported', percent: 40, message: 'half of it' },
      { ...lease, family: 'execution', type: 'progress_reported', percent: 41, message: null },
      { ...lease, family: 'completion', type: 'success', end: { result: { pages: 3 } } },
    ]);
    expect(JSON.stringify(events.map((event) => ({ ...event, position: 0 })))).not.toContain('secret');
  });

  it('tells when it becomes claimable, and who spawned it', async () => {
    const parent = await bench.running();
    const kind = newKind();
    const spawned = await bench.port.spawn(parent, [{ kind, ...ALL, delay: 60_000 }]);
    expect(spawned.outcome).toBe('spawned');
    const [submitted] = await eventsOf({ kind });
    expect(submitted).toMatchObject({ family: 'execution', type: 'submitted', parentId: parent.executionId });
    const { occurredAtMs, eligibleAtMs } = submitted as FeedEvent & { eligibleAtMs: number };
    expect(eligibleAtMs - occurredAtMs).toBe(60_000);
  });

  it('is told of once, however often it is submitted', async () => {
    const kind = newKind();
    const request = { kind, ...ALL, idempotencyKey: kind };
    const [first] = await bench.engine.executions.submit([request]);
    await bench.engine.executions.submit([request, { kind, ...ALL, executionId: first!.executionId }]);
    await bench.engine.executions.submit({ kind, ...ALL, executionId: first!.executionId });
    expect(names(await eventsOf({ kind }))).toEqual(['execution.submitted']);
  });

  it('is told of in one call with others, each with its own', async () => {
    const kind = newKind();
    const count = 300;
    const results = await bench.engine.executions.submit(
      Array.from({ length: count }, (_, index) => ({
        kind,
        priority: index % 7,
        ...(index % 3 === 0 ? {} : ALL),
      })),
    );
    const told = results.filter((_, index) => index % 3 !== 0).map(({ executionId }) => executionId);
    const events = await eventsOf({ kind });
    expect(events.map((event) => ('executionId' in event ? event.executionId : ''))).toEqual(told);
    expect(events.every((event) => event.family === 'execution' && 'priority' in event)).toBe(true);
  });

  it('of a rolled back transaction is not told of', async () => {
    const kind = newKind();
    const client = await bench.database.connect();
    await client.query('BEGIN');
    const executor = (text: string, params: unknown[]) => client.query(text, params);
    await bench.engine.executions.submit({ kind, ...ALL }, { executor });
    await client.query('ROLLBACK');
    await client.query('BEGIN');
    await bench.engine.executions.submit({ kind, ...ALL }, { executor });
    await client.query('COMMIT');
    expect(names(await eventsOf({ kind }))).toEqual(['execution.submitted']);
  });

  it('is told of when it is a member of a flow', async () => {
    const kind = newKind();
    const { flowId } = await bench.engine.flows.submit({
      name: 'f',
      members: [
        { name: 'a', kind, ...ALL },
        { name: 'b', kind, ...ALL, after: [{ from: 'a' }] },
      ],
    });
    const events = await eventsOf({ kind });
    expect(names(events)).toEqual(['execution.submitted', 'execution.submitted']);
    expect(events).toMatchObject([{ flowId }, { flowId }]);
  });

  it('tells of each step that a call records together with others', async () => {
    const claims = [await bench.running(ALL), await bench.running(ALL), await bench.running()];
    await Promise.all(
      claims.flatMap((claim) =>
        Array.from({ length: 30 }, (_, index) =>
          bench.port.recordStep(claim, { name: 's', key: String(index).padStart(2, '0'), value: index }),
        ),
      ),
    );
    for (const [index, { executionId }] of claims.entries()) {
      const keys = (await eventsOf({ executionId })).flatMap((event) =>
        event.family === 'execution' && event.type === 'step_finished' ? [event.key] : [],
      );
      const all = Array.from({ length: 30 }, (_, step) => String(step).padStart(2, '0'));
      expect(keys.toSorted()).toEqual(index === 2 ? [] : all);
    }
  });

  it('tells nothing of a handler whose lease is gone', async () => {
    const claim = await bench.running({ policy: RETRYING });
    await bench.loseLeases();
    await bench.port.recordStep(claim, { name: 'late', value: 1 });
    await bench.port.reportProgress(claim, { percent: 99 });
    const types = names(await eventsOf({ executionId: claim.executionId }));
    expect(types).toEqual(['execution.submitted', 'lease.acquired', 'lease.expired']);
  });
});

describe('a completion', () => {
  it('carries a result up to a limit, and says when it does not', async () => {
    const fitting = 'x'.repeat(LIMITS.eventResultBytes - 2);
    for (const [result, end] of [
      [fitting, { result: fitting }],
      [`${fitting}x`, { omitted: 'too_large' }],
      [null, { result: null }],
    ] as const) {
      const claim = await bench.running(ALL);
      await bench.port.complete(claim, result);
      expect(await endOf(claim.executionId)).toEqual(end);
    }
  });

  it('carries why there is no result', async () => {
    const failed = await bench.running(ALL);
    await bench.port.fail(failed, { message: 'no such user', category: 'permanent' });
    expect(await endOf(failed.executionId)).toEqual({ message: 'no such user', category: 'permanent' });
    const cancelled = await bench.running(ALL);
    await bench.engine.cancel(cancelled.executionId, { reason: 'enough' });
    expect(await endOf(cancelled.executionId)).toMatchObject({ message: 'enough' });
  });

  it('carries its own in a call that ends several', async () => {
    const kind = newKind();
    await bench.engine.executions.submit([
      { kind, ...ALL, priority: 3 },
      { kind, priority: 2 },
      { kind, ...ALL, priority: 1 },
    ]);
    const claims = await bench.claim({ kinds: [kind] });
    await Promise.all(claims.map((claim, index) => bench.port.complete(claim, index)));
    const ends = await Promise.all(claims.map(({ executionId }) => endOf(executionId)));
    expect(ends).toEqual([{ result: 0 }, null, { result: 2 }]);
  });
});

describe('a lane', () => {
  it('has all events from when it is set until it is set back, whatever the tasks say', async () => {
    const lane = 'watched';
    expect(await bench.engine.lanes.setEvents(lane, 'all')).toEqual({
      outcome: 'set',
      repeated: false,
      isNew: true,
    });
    const during = await bench.running({ lane });
    const [many] = await bench.engine.executions.submit([{ kind: newKind(), lane }, { kind: newKind() }]);
    expect(await bench.engine.lanes.setEvents(lane, 'all')).toMatchObject({ repeated: true, isNew: false });
    expect(await bench.engine.lanes.setEvents(lane, 'usual')).toMatchObject({ repeated: false });
    const after = await bench.running({ lane });
    await work(during);
    await work(after);
    expect(names(await eventsOf({ executionId: during.executionId }))).toEqual([
      'execution.submitted',
      'lease.acquired',
      'execution.step_finished',
      'execution.progress_reported',
      'execution.progress_reported',
      'completion.success',
    ]);
    expect(names(await eventsOf({ executionId: many!.executionId }))).toEqual(['execution.submitted']);
    expect(names(await eventsOf({ executionId: after.executionId }))).toEqual([
      'lease.acquired',
      'completion.success',
    ]);
    expect(await endOf(after.executionId)).toBe(null);
  });

  it('is listed with what it is set to', async () => {
    await bench.engine.lanes.setEvents('listed', 'all');
    const { lanes } = await bench.engine.lanes.list();
    expect(lanes.find(({ lane }) => lane === 'listed')).toMatchObject({ events: 'all' });
    await bench.engine.lanes.setEvents('listed', 'usual');
    expect((await bench.engine.lanes.list()).lanes.find(({ lane }) => lane === 'listed')?.events).toBe(
      'usual',
    );
  });

  it('that was never used and is set to the usual events is not created', async () => {
    expect(await bench.engine.lanes.setEvents('nowhere', 'usual')).toMatchObject({ repeated: true });
    expect((await bench.engine.lanes.list()).lanes.map(({ lane }) => lane)).not.toContain('nowhere');
  });
});

it('the filter finds events of this family by their types', async () => {
  const claim = await bench.running(ALL);
  await work(claim);
  const subscription = await bench.engine.events.subscribe({
    from: 'beginning',
    until: 'now',
    filter: { families: ['execution'], types: ['step_finished'], executionId: claim.executionId },
  });
  const found: unknown[] = [];
  for await (const event of subscription) found.push(event.type);
  expect(found).toEqual(['step_finished']);
});
