/**
 * Cancelling flows, replaying their members, forgetting them, and the reports of their reconcilers.
 */
import { describe, expect, it, vi } from 'vitest';
import type { Hint } from '../../../src/contract/protocol.ts';
import { setRetention } from '../../../src/engine/upkeep/retention-setting.ts';
import { cancelFlow } from '../../../src/engine/flows/cancel.ts';
import { dispatchSiblings } from '../../../src/engine/flows/work.ts';
import type { EngineContext } from '../../../src/engine/kit/context.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { runPass } from '../../../src/engine/upkeep/pass.ts';
import { retention } from '../../../src/engine/upkeep/retention.ts';
import { reconcileSiblings } from '../../../src/engine/flows/work.sql.ts';
import { openFlow, submitFlow, type NamedMember } from './kit.ts';
import { useBench } from '../open.ts';

const bench = useBench();
const WHY = { reason: 'why', by: 'me' };
const CHAIN: NamedMember[] = [{ name: 'a' }, { name: 'b', after: ['a'] }, { name: 'c', after: ['b'] }];

describe('a cancelled flow', () => {
  it('has every unfinished member cancelled', async () => {
    const flow = await submitFlow(bench, [...CHAIN, { name: 'done' }]);
    await flow.complete('done');
    const running = await flow.claim('a');
    const answer = await bench.engine.flows.cancel(flow.flowId, { ...WHY, wait: 'end' });
    expect(answer).toMatchObject({ outcome: 'cancelled', policy: 'cancel_all' });
    expect((answer as { cancelled: string[] }).cancelled).toHaveLength(3);
    expect(await flow.states()).toEqual({
      a: 'cancelled',
      b: 'cancelled',
      c: 'cancelled',
      done: 'completed',
    });
    expect(await bench.port.complete(running)).toMatchObject({ outcome: 'not_active' });
    expect(await flow.describe()).toMatchObject({
      state: 'cancelled',
      cancel: { policy: 'cancel_all', ...WHY },
    });
    expect(await bench.engine.flows.cancel(flow.flowId, WHY)).toMatchObject({ outcome: 'already_cancelled' });
  });

  it('lets running members finish, if asked to', async () => {
    const flow = await submitFlow(bench, CHAIN);
    const running = await flow.claim('a');
    await bench.engine.flows.cancel(flow.flowId, { ...WHY, policy: 'cancel_pending', wait: 'members' });
    expect(await flow.states()).toEqual({ a: 'active', b: 'cancelled', c: 'cancelled' });
    expect(await flow.state()).toBe('cancelling');
    expect(await bench.port.complete(running)).toMatchObject({ outcome: 'completed' });
    expect(await flow.state()).toBe('cancelled');
  });

  it('cannot grow, and finishes as cancelled, when running members may finish', async () => {
    const flow = await submitFlow(bench, CHAIN);
    const running = await flow.claim('a');
    await bench.engine.flows.cancel(flow.flowId, { ...WHY, policy: 'let_finish' });
    await expect(
      bench.port.extendFlow(running, [{ name: 'late', kind: flow.kindOf('late') }]),
    ).rejects.toMatchObject({ code: 'flow_ended' });
    await bench.port.complete(running);
    for (const name of ['b', 'c']) await flow.complete(name);
    expect(await flow.describe()).toMatchObject({ state: 'cancelled', counts: { completed: 3 } });
  });

  it('may be cancelled with a stronger policy later, but not once it has finished', async () => {
    const flow = await submitFlow(bench, CHAIN);
    await flow.claim('a');
    await bench.engine.flows.cancel(flow.flowId, { ...WHY, policy: 'cancel_pending', wait: 'members' });
    const again = await bench.engine.flows.cancel(flow.flowId, { ...WHY, wait: 'end' });
    expect(again).toMatchObject({ outcome: 'cancelled', policy: 'cancel_all' });
    const done = await submitFlow(bench, [{ name: 'a' }]);
    await done.complete('a');
    expect(await bench.engine.flows.cancel(done.flowId, WHY)).toEqual({
      outcome: 'already_ended',
      state: 'completed',
    });
    const nobody = flow.flowId.replace(/.{4}$/, 'ffff');
    expect(await bench.engine.flows.cancel(nobody, WHY)).toEqual({ outcome: 'not_found' });
  });

  it('is announced even if the call is aborted once the cancellation is stored', async () => {
    const { engine, context } = await openEngine({ databaseUrl: bench.database.url, listen: 'off' });
    const flow = await openFlow(bench, ['a', 'b']);
    const { signal } = new AbortController();
    const gone = new Error('the caller went away');
    // Aborted between the check before the cancellation and the one after it.
    signal.throwIfAborted = vi.fn<() => void>().mockImplementationOnce(() => undefined);
    vi.mocked(signal.throwIfAborted).mockImplementation(() => {
      throw gone;
    });
    const ring = vi.fn<(hint: Hint) => void>();
    const stir = vi.fn<() => void>();
    const announced = Object.assign(Object.create(context) as EngineContext, {
      doorbell: { ring },
      flowWork: { stir },
    });
    await expect(
      cancelFlow(announced, flow.flowId, { ...WHY, policy: 'let_finish', wait: 'members', signal }),
    ).rejects.toBe(gone);
    expect(await flow.state()).toBe('cancelling');
    expect(ring.mock.calls.map(([hint]) => hint)).toMatchObject([{ routes: 'all' }]);
    expect(stir).toHaveBeenCalledTimes(1);
    await engine.close();
  });

  it('is refused without a reason, with an unknown policy, or with an unknown wait', async () => {
    const flow = await submitFlow(bench, CHAIN);
    for (const [request, field] of [
      [{}, 'request.reason'],
      [{ ...WHY, policy: 'all' }, 'request.policy'],
      [{ ...WHY, wait: 'long' }, 'request.wait'],
    ] as const)
      await expect(bench.engine.flows.cancel(flow.flowId, request as never)).rejects.toMatchObject({
        code: 'invalid_input',
        field,
      });
    expect(await flow.state()).toBe('running');
  });
});

describe('a replay', () => {
  it('of a failed member re-opens everything it blocked', async () => {
    const flow = await submitFlow(bench, CHAIN);
    await flow.fail('a');
    expect(await flow.state()).toBe('failed');
    await bench.engine.executions.replay(flow.members['a']!, WHY);
    expect(await flow.states()).toEqual({ a: 'waiting', b: 'waiting_children', c: 'waiting_children' });
    expect(await flow.state()).toBe('running');
    for (const name of ['a', 'b', 'c']) await flow.complete(name);
    expect(await flow.describe()).toMatchObject({ state: 'completed', counts: { completed: 3 } });
  });

  it('re-opens only members whose join may still be satisfied', async () => {
    const flow = await submitFlow(bench, [{ name: 'a' }, { name: 'b' }, { name: 'both', after: ['a', 'b'] }]);
    await flow.fail('a');
    await flow.fail('b');
    await bench.engine.executions.replay(flow.members['a']!, WHY);
    expect((await flow.states())['both']).toBe('skipped');
    await bench.engine.executions.replay(flow.members['b']!, WHY);
    expect((await flow.states())['both']).toBe('waiting_children');
    await flow.complete('a');
    await flow.complete('b');
    await flow.complete('both');
    expect(await flow.state()).toBe('completed');
  });

  it('of a skipped member runs it whatever the state of its join, and re-opens what comes after it', async () => {
    const flow = await submitFlow(bench, CHAIN);
    await flow.fail('a');
    await bench.engine.executions.replay(flow.members['b']!, WHY);
    expect(await flow.states()).toEqual({ a: 'failed', b: 'waiting', c: 'waiting_children' });
    await flow.complete('b');
    await flow.complete('c');
    expect(await flow.state()).toBe('completed');
  });

  it('does not fire a satisfied join again, nor count an edge twice', async () => {
    const flow = await submitFlow(bench, [{ name: 'a' }, { name: 'b' }, { name: 'both', after: ['a', 'b'] }]);
    await flow.complete('a');
    await bench.engine.executions.replay(flow.members['a']!, WHY);
    await flow.complete('a');
    expect((await flow.states())['both']).toBe('waiting_children');
    await flow.complete('b');
    await flow.complete('both');
    await bench.engine.executions.replay(flow.members['b']!, WHY);
    await flow.complete('b');
    expect(await flow.describe()).toMatchObject({ state: 'completed', counts: { completed: 3 } });
  });
});

describe('the reconcilers of flows', () => {
  it('report what they did with the joins they found', async () => {
    const { engine, context } = await openEngine({ databaseUrl: bench.database.url, listen: 'off' });
    const none = { dispatched: 0, orphaned: 0, skippedForReconciler: 0, skippedLocked: 0, errors: 0 };
    expect(await dispatchSiblings(context)).toEqual(none);
    const flow = await submitFlow(bench, [
      { name: 'x' },
      { name: 'y' },
      { name: 'best', after: ['x', 'y'], join: { kind: 'any' } },
    ]);
    const { rows } = await bench.database.query<{ f: string; d: string; p: number }>(
      `SELECT flow_id AS f, downstream_eid AS d, partition_key AS p FROM ff_edge_group g
       WHERE $1 LIKE '%' || flow_id::text`,
      [flow.flowId],
    );
    const { f, d, p } = rows[0]!;
    const enqueue = (downstream: string) =>
      bench.database.query('INSERT INTO ff_pending_cancel_groups VALUES ($1, $2, $3, 0)', [p, f, downstream]);
    await enqueue(d);
    expect(await dispatchSiblings(context)).toEqual({ ...none, skippedForReconciler: 1 });
    expect(await reconcileSiblings(context.database, 50)).toEqual({ stale: 1, drained: 0, live: 0 });
    await enqueue('018f0000-0000-7000-8000-00000000eeee');
    expect(await dispatchSiblings(context)).toEqual({ ...none, orphaned: 1 });
    await engine.close();
  });
});

describe('a finished flow', () => {
  it('is kept with all its members until its retention is over', async () => {
    const { engine, context } = await openEngine({ databaseUrl: bench.database.url, listen: 'off' });
    await setRetention(context, 24 * 3_600_000);
    const flow = await submitFlow(bench, [{ name: 'a' }, { name: 'b', after: ['a'] }]);
    await flow.complete('a');
    await bench.database.moveClock(25 * 3_600_000);
    await runPass(context, retention(), 500, new AbortController().signal);
    expect(await flow.states()).toMatchObject({ a: 'completed', b: 'waiting' });
    await flow.complete('b');
    // A postponed flow is checked again after an hour.
    await bench.database.moveClock(50 * 3_600_000);
    await runPass(context, retention(), 500, new AbortController().signal);
    expect(await bench.engine.flows.describe(flow.flowId)).toBeNull();
    for (const table of ['ff_edge', 'ff_edge_group', 'ff_member', 'ff_flow_progress']) {
      const left = await bench.database.query(`SELECT 1 FROM ${table} WHERE $1 LIKE '%' || flow_id::text`, [
        flow.flowId,
      ]);
      expect(left.rows).toEqual([]);
    }
    await engine.close();
  });
});

describe('a replay of several members', () => {
  it('makes a skipped member wait again for the one it was skipped because of', async () => {
    const flow = await submitFlow(bench, [
      { name: 'a' },
      { name: 'b', after: [{ from: 'a', as: 'a' }] },
      { name: 'c', after: ['b'] },
    ]);
    await flow.fail('a');
    const ids = ['a', 'b', 'c'].map((name) => flow.members[name]!);
    const outcomes = await bench.engine.executions.replay(ids, WHY);
    expect(outcomes.map(({ outcome }) => outcome)).toEqual(['replayed', 'replayed', 'replayed']);
    expect(await flow.states()).toEqual({ a: 'waiting', b: 'waiting_children', c: 'waiting_children' });
    await flow.complete('a', 7);
    expect((await flow.claim('b')).payload).toEqual({ a: 7 });
  });

  it('hands over results that arrived after the join had become impossible', async () => {
    const flow = await submitFlow(bench, [
      { name: 'a' },
      { name: 'b' },
      {
        name: 'both',
        after: [
          { from: 'a', as: 'a' },
          { from: 'b', as: 'b' },
        ],
      },
    ]);
    await flow.fail('a');
    await flow.complete('b', 2);
    await bench.engine.executions.replay(flow.members['a']!, WHY);
    await flow.complete('a', 1);
    expect((await flow.claim('both')).payload).toEqual({ a: 1, b: 2 });
  });
});

describe('a flow with a failed member', () => {
  it.each([
    [
      'a clean-up that was never reached',
      [
        { name: 'a' },
        { name: 'b', after: ['a'] },
        { name: 'undo', after: [{ from: 'b', on: 'failure' as const }] },
      ],
      'failed',
    ],
    ['a fallback that was not needed', [{ name: 'a', fallback: 'b' }, { name: 'b' }], 'failed'],
    [
      'a clean-up that ran',
      [{ name: 'a' }, { name: 'undo', after: [{ from: 'a', on: 'failure' as const }] }],
      'completed',
    ],
  ])('is judged after %s', async (_, members, expected) => {
    const flow = await submitFlow(bench, members);
    await flow.fail('a');
    if (expected === 'completed') await flow.complete('undo');
    expect(await flow.state()).toBe(expected);
  });
});
