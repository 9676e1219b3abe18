/**
 * One of two busy worker processes is terminated: its work is released and resumes in the other at once, from the last
 * finished step, and no attempt is spent. Leases are far longer than the test.
 */
import { beforeAll, expect, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import type { ExecutionId } from '../../../src/contract/ids.ts';
import { newKind, SOON, useCrew } from '../../worker/crew.ts';
import { faultsOf } from '../checker.ts';
import { createEffects, effectsOf, startTaskProcess } from './task-processes.ts';

const HELD = 10;
const crew = useCrew();

beforeAll(() => createEffects(crew.database));

/** Without retries: a spent attempt would fail the execution. */
async function submitMany(engine: Connection, kind: string, count: number): Promise<ExecutionId[]> {
  const submitted = await engine.executions.submit(
    Array.from({ length: count }, () => ({ kind, policy: { retry: { maxRetries: 0 } } })),
  );
  return submitted.map(({ executionId }) => executionId);
}

async function checkUnspent(engine: Connection, kind: string, ids: readonly ExecutionId[]): Promise<void> {
  for (const id of ids) {
    expect(await engine.executions.wait(id)).toMatchObject({ outcome: 'success' });
    expect(await engine.executions.describe(id)).toMatchObject({
      attemptIndex: 0,
      retryCount: 0,
      reclaimCount: 0,
    });
  }
  expect(await faultsOf(crew.database.url, kind)).toEqual([]);
}

test('the work of a terminated worker is released and resumes elsewhere in the same attempt', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const process = { url: crew.database.url, mode: 'threeSteps', kinds: [kind], concurrency: HELD } as const;
  const leaving = startTaskProcess({ ...process, name: 'leaving', hold: true });
  const ids = await submitMany(engine, kind, HELD);
  await expect.poll(() => leaving.started().length, SOON).toBe(HELD);
  startTaskProcess({ ...process, name: 'staying' });
  ids.push(...(await submitMany(engine, kind, 5 * HELD)));
  leaving.terminate();
  await leaving.ended();
  expect(leaving.fate).toBe(0);
  expect(leaving.said.at(-1)).toMatchObject({ stats: { released: HELD, completed: 0, lost: 0 } });
  await checkUnspent(engine, kind, ids);
  for (const id of leaving.started() as ExecutionId[]) {
    const events = (await crew.eventsOf(id)).filter((event) => event !== 'lease.renewed');
    expect(events).toEqual(['lease.acquired', 'lease.released', 'lease.acquired', 'completion.success']);
    const steps = (await effectsOf(crew.database, id)).map(({ step }) => step);
    expect(steps).toEqual(['first', 'second', 'third']);
  }
});

test('terminating workers one after another amid claims and reports spends no attempt', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const start = (name: string) =>
    startTaskProcess({ url: crew.database.url, mode: 'threeSteps', kinds: [kind], concurrency: 4, name });
  const ids: ExecutionId[] = [];
  start('staying');
  for (let round = 1; round <= 3; round += 1) {
    const leaving = start(`leaving-${round}`);
    await expect.poll(() => leaving.said.some(({ ready }) => ready !== undefined), SOON).toBe(true);
    ids.push(...(await submitMany(engine, kind, 150)));
    await expect.poll(() => leaving.started().length, SOON).toBeGreaterThan(5);
    leaving.terminate();
    await leaving.ended();
    expect(leaving.fate).toBe(0);
  }
  await checkUnspent(engine, kind, ids);
  const lost = await crew.database.query(
    `SELECT event_type FROM ff_event JOIN ff_route USING (route_id)
     WHERE kind = $1 AND event_type IN ('expired', 'revoked', 'reclaimed')`,
    [kind],
  );
  expect(lost.rows).toEqual([]);
});
