/**
 * Wide flows: a thousand members before one and after one, and two thousand cancelled by a process that is killed at
 * it. Each ends once, and none is forgotten.
 */
import { expect, test } from 'vitest';
import type { Claim } from '../../../src/contract/protocol.ts';
import type { MemberRequest } from '../../../src/contract/flows.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { flowFaults, flowLeftovers } from '../../races/flows/invariants.ts';
import { newKind, useBench } from '../../conformance/open.ts';
import { plainDatabase } from '../../setup/database.ts';
import { startFlowProcess } from './processes.ts';
import { workerPort } from '../../../src/connect/port.ts';

const WIDE = 1_000;
const SINGLY = 100;
const CANCELLED = 2_000;
const PLACES = Array.from({ length: WIDE }, (_, n) => n);
// Without the assertions, which check every row that changes.
const bench = useBench(plainDatabase);
const through = (text: string, params?: unknown[]) => bench.database.query(text, params);

async function submitted(members: (kind: string) => MemberRequest[]) {
  const kind = newKind();
  const flow = await bench.engine.flows.submit({ name: 'wide', members: members(kind) });
  return { kind, flowId: flow.flowId, uuid: parseExecutionId(flow.flowId).uuid };
}

const claim = (kind: string, limit: number): Promise<Claim[]> => bench.claim({ kinds: [kind], limit });

async function expectSound(uuid: string): Promise<void> {
  expect(await flowFaults(through, [uuid])).toEqual([]);
  expect(await flowLeftovers(through, [uuid])).toEqual([]);
}

test('a thousand members before one unblock it once, in batches and singly', async () => {
  const { kind, flowId, uuid } = await submitted((base) => [
    ...PLACES.map((n) => ({ name: `m${n}`, kind: `${base}.many` })),
    {
      name: 'one',
      kind: `${base}.one`,
      after: PLACES.map((n) => ({ from: `m${n}`, as: 'parts', list: true })),
    },
  ]);
  const claims = await claim(`${kind}.many`, WIDE);
  expect(claims).toHaveLength(WIDE);
  const complete = async (one: Claim, n: number) =>
    expect(await bench.port.complete(one, n)).toMatchObject({ outcome: 'completed' });
  await Promise.all(claims.slice(SINGLY).map((one, n) => complete(one, n)));
  for (const [n, one] of claims.slice(0, SINGLY).entries()) {
    expect(await claim(`${kind}.one`, 1)).toEqual([]);
    await complete(one, n);
  }
  const [one, ...others] = await claim(`${kind}.one`, 2);
  expect(others).toEqual([]);
  expect((one!.payload as { parts: number[] }).parts).toHaveLength(WIDE);
  await bench.port.complete(one!);
  expect(await bench.engine.flows.describe(flowId)).toMatchObject({
    state: 'completed',
    counts: { completed: WIDE + 1 },
  });
  await expectSound(uuid);
});

test.each(['completes', 'fails'] as const)('a thousand after one are resolved when it %s', async (end) => {
  const { kind, flowId, uuid } = await submitted((base) => [
    { name: 'one', kind: `${base}.one` },
    ...PLACES.map((n) => ({ name: `m${n}`, kind: `${base}.many`, after: ['one'] })),
  ]);
  const [one] = await claim(`${kind}.one`, 1);
  if (end === 'completes') await bench.port.complete(one!);
  else await bench.port.fail(one!, { message: 'no', retry: 'never' });
  await bench.port.fireTimers();
  expect(await bench.engine.flows.describe(flowId)).toMatchObject(
    end === 'completes'
      ? { state: 'running', counts: { completed: 1, waiting: WIDE } }
      : { state: 'failed', counts: { failed: 1, skipped: WIDE } },
  );
  await expectSound(uuid);
});

test('two thousand members are cancelled although the cancelling process is killed', async () => {
  const { flowId, uuid } = await submitted((base) =>
    Array.from({ length: CANCELLED }, (_, n) => ({ name: `m${n}`, kind: `${base}.many` })),
  );
  // The flow, and two chunks of its members.
  const doomed = startFlowProcess({ url: bench.database.url, flowId, dieAt: 4 });
  expect(await doomed.ended()).toMatchObject({ fate: 'SIGKILL' });
  const half = (await bench.engine.flows.describe(flowId))!;
  expect(half).toMatchObject({
    state: 'cancelling',
    counts: { cancelled: CANCELLED / 2, waiting: CANCELLED / 2 },
  });
  expect(await flowFaults(through, [uuid])).toEqual([]);
  const heir = await bench.another();
  await workerPort(heir).fireTimers();
  expect(await heir.flows.describe(flowId)).toMatchObject({
    state: 'cancelled',
    counts: { cancelled: CANCELLED },
  });
  await expectSound(uuid);
});

test('ten thousand members are submitted at once, and submitting them again adds none', async () => {
  const members = Array.from({ length: 10_000 }, (_, n) => ({
    name: `m${n}`,
    kind: 'never-run',
    ...(n < 10 ? {} : { after: n % 3 === 0 ? [`m${n - 10}`, `m${n - 7}`] : [`m${n - 10}`] }),
  }));
  const flow = await bench.engine.flows.submit({ name: 'large', members });
  expect(Object.keys(flow.members)).toHaveLength(10_000);
  const again = await bench.engine.flows.submit({ name: 'large', flowId: flow.flowId, members });
  expect(again).toEqual({ ...flow, outcome: 'duplicate' });
  expect(await bench.engine.flows.describe(flow.flowId)).toMatchObject({
    nodeCount: 10_000,
    state: 'running',
    counts: { waiting: 10, waiting_children: 9_990 },
  });
});
