/**
 * Stale pointers that no claim or firing comes across are swept; valid ones stay.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { EngineContext } from '../../src/engine/kit/context.ts';
import { openEngine } from '../../src/engine/open.ts';
import { stalePointers } from '../../src/engine/upkeep/stale-pointers.ts';
import { newKind, useBench } from '../conformance/open.ts';

const bench = useBench();
const YEAR_MS = 365 * 86_400_000;
const signal = new AbortController().signal;
let context: EngineContext;
let close: () => Promise<void>;

beforeAll(async () => {
  const opened = await openEngine({ databaseUrl: bench.database.url, listen: 'off', poolSize: 2 });
  context = opened.context;
  close = () => opened.engine.close();
});

afterAll(() => close?.());

async function pointers(): Promise<{ queued: number; timers: number }> {
  const { rows } = await bench.database.query<{ queued: number; timers: number }>(
    `SELECT (SELECT count(*)::integer FROM ff_ready) AS queued, (SELECT count(*)::integer FROM ff_timer) AS timers`,
  );
  return rows[0]!;
}

it('pointers left by priority changes and cancels are removed, and valid ones stay', async () => {
  const kind = newKind();
  const moved = await bench.submit({ kind });
  for (const priority of [1, 2, 3]) await bench.engine.executions.changePriority(moved, { priority });
  const cancelled = [await bench.submit({ kind }), await bench.submit({ kind, delay: YEAR_MS })];
  await bench.engine.cancel(cancelled, { reason: 'not wanted' });
  await bench.submit({ kind, delay: YEAR_MS, policy: { deadline: YEAR_MS } });
  const before = await pointers();
  expect(await stalePointers().run(context, signal)).toBe(3 + 1 + 1);
  const after = await pointers();
  expect({ queued: before.queued - after.queued, timers: before.timers - after.timers }).toEqual({
    queued: 4,
    timers: 1,
  });
  expect(await stalePointers().run(context, signal)).toBe(0);
  expect((await bench.claim({ kinds: [kind] })).map((claim) => claim.executionId)).toEqual([moved]);
  await bench.database.moveClock(YEAR_MS);
  await bench.port.fireTimers();
  expect((await pointers()).timers).toBe(0);
});

it('a sweep resumes where it stopped and starts over at the end', async () => {
  const sweep = stalePointers();
  const kind = newKind();
  const id = await bench.submit({ kind });
  expect(await sweep.run(context, signal)).toBe(0);
  await bench.engine.cancel(id, { reason: 'not wanted' });
  // Behind the place where it stopped: found in the next round, not in this one.
  const removed = [await sweep.run(context, signal), await sweep.run(context, signal)];
  expect(removed.reduce((sum, one) => sum + one, 0)).toBe(1);
});
