/**
 * Pending work of flows that something else overtook: none of it may be lost, and none of it may block the rest.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import type { EngineContext } from '../../../src/engine/kit/context.ts';
import { workOnFlows } from '../../../src/engine/flows/work.ts';
import { openEngine, type Engine } from '../../../src/engine/open.ts';
import { reconcileSiblings } from '../../../src/engine/flows/work.sql.ts';
import { submitFlow } from '../../conformance/flows/kit.ts';
import { useBench, WAIT } from '../../conformance/open.ts';

const bench = useBench();
let engine: Engine;
let context: EngineContext;

beforeAll(async () => {
  ({ engine, context } = await openEngine({ databaseUrl: bench.database.url, listen: 'off' }));
});
afterAll(() => engine?.close());

/** Forgets all members at once, as if their retention were over. */
async function forget(members: Record<string, string>): Promise<void> {
  const keys = Object.values(members).map((id) => parseExecutionId(id));
  await bench.database.query('SELECT ff_forget($1, $2, -1, 0)', [
    keys.map(({ uuid }) => uuid),
    keys.map(({ partition }) => partition),
  ]);
}

async function expectOthersGoOn(): Promise<void> {
  const flow = await submitFlow(bench, [{ name: 'a' }, { name: 'b', after: ['a'] }]);
  await bench.engine.cancel(flow.members['a']!, { reason: 'why' });
  await expect.poll(async () => (await flow.states())['b'], WAIT).toBe('skipped');
}

it('a cancel of a flow that is forgotten meanwhile blocks no other flow', async () => {
  const flow = await submitFlow(bench, [{ name: 'a' }]);
  const claim = await flow.claim('a');
  const { partition, uuid } = parseExecutionId(flow.flowId);
  await bench.database.query(`SELECT ff_cancel_flow($1, $2, 'cancel_pending', 'why', 'me')`, [
    uuid,
    partition,
  ]);
  await bench.port.complete(claim);
  await forget(flow.members);
  expect(await bench.engine.flows.describe(flow.flowId)).toBeNull();
  await expectOthersGoOn();
});

it('an outcome whose downstream members are forgotten is dropped, once', async () => {
  const flow = await submitFlow(bench, [
    { name: 'a' },
    { name: 'b', after: ['a'] },
    { name: 'c', after: ['a'] },
  ]);
  for (const name of ['b', 'c', 'a']) {
    const { partition, uuid } = parseExecutionId(flow.members[name]!);
    // By SQL: the process that cancels would resolve the edges at once.
    await bench.database.query(`SELECT ff_cancel($1, $2, 'why', 'me')`, [[uuid], [partition]]);
  }
  await bench.database.query('SELECT ff_tell_ends(100, 1)');
  await bench.database.query('SELECT ff_tell_ends(100, 0)');
  await forget({ b: flow.members['b']!, c: flow.members['c']! });
  await workOnFlows(context);
  const { rows } = await bench.database.query('SELECT 1 FROM ff_flow_job');
  expect(rows).toEqual([]);
  await expectOthersGoOn();
});

it('a ticket of a join that is just being decided is not treated as stale', async () => {
  const flow = await submitFlow(bench, [
    { name: 'x' },
    { name: 'y' },
    { name: 'best', after: ['x', 'y'], join: { kind: 'any' } },
  ]);
  const { partition, uuid } = parseExecutionId(flow.flowId);
  const [x, best] = [await flow.claim('x'), parseExecutionId(flow.members['best']!).uuid];
  await bench.database.query('INSERT INTO ff_pending_cancel_groups VALUES ($1, $2, $3, 0)', [
    partition,
    uuid,
    best,
  ]);
  const client = await bench.database.connect();
  await client.query('BEGIN');
  await client.query('SELECT ff_complete($1, $2, $3, $4, $5)', [
    [parseExecutionId(x.executionId).uuid],
    [partition],
    [x.attemptIndex],
    [x.leaseEpoch],
    ['1'],
  ]);
  expect(await reconcileSiblings(context.database, 50)).toEqual({ stale: 0, drained: 0, live: 1 });
  await client.query('COMMIT');
  await client.end();
  await workOnFlows(context);
  expect((await flow.states())['y']).toBe('cancelled');
});

it('a replay before an outcome was propagated takes back the cancel of the flow', async () => {
  const flow = await submitFlow(bench, [{ name: 'a' }]);
  const { partition, uuid } = parseExecutionId(flow.flowId);
  await bench.database.query(`SELECT ff_cancel_flow($1, $2, 'cancel_all', 'why', 'me')`, [uuid, partition]);
  await bench.database.query('SELECT ff_cancel_members($1, 10)', [uuid]);
  await bench.engine.executions.replay(flow.members['a']!, { reason: 'why' });
  await flow.complete('a');
  expect(await flow.state()).toBe('completed');
});

it('a replay of several takes back the edge from one to another that still waits', async () => {
  const flow = await submitFlow(bench, [
    { name: 'u' },
    { name: 'v' },
    { name: 'w' },
    { name: 'd', after: ['u', 'v', 'w'], join: { kind: 'quorum', k: 2, onSatisfied: 'let_run' } },
  ]);
  await flow.fail('u');
  await bench.engine.executions.replay([flow.members['u']!, flow.members['d']!], { reason: 'why' });
  await flow.complete('u');
  await flow.complete('v');
  expect((await flow.states())['d']).toBe('waiting');
});
