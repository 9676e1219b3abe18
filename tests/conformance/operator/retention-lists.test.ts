/**
 * The order in which finished executions are found to be forgotten: list by list, a list for each namespace and
 * outcome. None of them keeps another from its turn, however many there are.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { EngineContext } from '../../../src/engine/kit/context.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { runPass } from '../../../src/engine/upkeep/pass.ts';
import { retention } from '../../../src/engine/upkeep/retention.ts';
import { setRetention } from '../../../src/engine/upkeep/retention-setting.ts';
import type { ExecutionId } from '../../../src/index.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();
const DAY_MS = 86_400_000;
const WHY = { reason: 'not needed' };
const signal = new AbortController().signal;
let context: EngineContext;
let close: () => Promise<void>;

beforeAll(async () => {
  const opened = await openEngine({ databaseUrl: bench.database.url, listen: 'off', poolSize: 2 });
  context = opened.context;
  close = () => opened.engine.close();
  await setRetention(context, DAY_MS);
});

afterAll(() => close?.());

async function cancelled(namespace: string, retentionMs?: number): Promise<ExecutionId> {
  const policy = retentionMs === undefined ? {} : { policy: { retention: retentionMs } };
  const id = await bench.submit({ namespace, ...policy });
  await bench.database.moveClock(1);
  await bench.engine.cancel(id, WHY);
  return id;
}

async function completed(namespace: string): Promise<ExecutionId> {
  const claim = await bench.running({ namespace });
  await bench.database.moveClock(1);
  await bench.port.complete(claim);
  return claim.executionId;
}

const leftOf = async (ids: readonly ExecutionId[]): Promise<ExecutionId[]> => {
  const found = await Promise.all(ids.map((id) => bench.engine.executions.describe(id)));
  return found.flatMap((snapshot) => (snapshot === null ? [] : [snapshot.executionId]));
};

it('what finished first is forgotten first, whatever its namespace and outcome', async () => {
  const [one, other] = [newKind(), newKind()];
  const inOrder = [
    await cancelled(other),
    await completed(one),
    await cancelled(one),
    await completed(other),
    await cancelled(other),
  ];
  await bench.database.moveClock(DAY_MS);
  const { due, act } = retention();
  for (const id of inOrder) {
    const items = await due(context, 1);
    expect(items.map(({ uuid }) => uuid)).toEqual([id.slice(id.lastIndexOf(':') + 1)]);
    await act(context, items);
  }
  expect(await leftOf(inOrder)).toEqual([]);
});

it('what is kept for longer does not delay what is kept by default', async () => {
  const namespace = newKind();
  const longer = [await cancelled(namespace, 9 * DAY_MS), await cancelled(namespace, 9 * DAY_MS)];
  const byDefault = await cancelled(namespace);
  await bench.database.moveClock(DAY_MS);
  expect(await runPass(context, retention(), 1, signal)).toMatchObject({ acted: 1, skipped: 0 });
  expect(await leftOf([...longer, byDefault])).toEqual(longer);
});

it('among more lists than one pass walks, each has its turn', async () => {
  const id = await cancelled('zzz');
  await bench.database.moveClock(DAY_MS);
  // Not due, in namespaces that come before.
  await bench.database.query(
    `INSERT INTO ff_attempt_history (execution_id, partition_key, attempt_index, lease_epoch, ended_at_ms,
       terminal_outcome, namespace)
     SELECT gen_random_uuid(), 0, 0, 0, ff_now_ms(), 'success', 'aaa-' || n FROM generate_series(1, 1500) n`,
  );
  const reconciler = retention();
  await runPass(context, reconciler, 500, signal);
  expect(await leftOf([id])).toEqual([id]);
  expect(await runPass(context, reconciler, 500, signal)).toMatchObject({ acted: 1 });
  expect(await leftOf([id])).toEqual([]);
});
