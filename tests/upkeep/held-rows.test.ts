/**
 * Rows locked by another transaction during a reconciler's pass: the pass does not wait for them, yet acts on them soon
 * after they are released.
 */
import { afterEach, expect, test } from 'vitest';
import { LIMITS } from '../../src/contract/limits.ts';
import type { EngineContext } from '../../src/engine/kit/context.ts';
import { openEngine, type Engine } from '../../src/engine/open.ts';
import { dueTimers } from '../../src/engine/upkeep/due-timers.ts';
import { expiredLeases } from '../../src/engine/upkeep/expired-leases.ts';
import { runPass, type PassReport } from '../../src/engine/upkeep/pass.ts';
import type { Reconciler } from '../../src/engine/upkeep/reconciler.ts';
import { newKind, useCrew } from '../worker/crew.ts';

const LEASE_MS = 10_000;
const crew = useCrew();
const opened: Engine[] = [];

afterEach(() => Promise.all(opened.splice(0).map((engine) => engine.close())));

async function open(): Promise<{ engine: Engine; context: EngineContext }> {
  const found = await openEngine({ databaseUrl: crew.database.url, listen: 'off', poolSize: 2 });
  opened.push(found.engine);
  return found;
}

function pass(context: EngineContext, reconciler: Reconciler<never>): Promise<PassReport> {
  return runPass(context, reconciler, reconciler.batch, new AbortController().signal);
}

/** Two executions of which the first is locked; `letGo` releases it. */
async function oneOfTwoHeld(kind: string): Promise<{ letGo(): Promise<void> }> {
  const holder = await crew.database.connect();
  await holder.query('BEGIN');
  const held = await holder.query(
    `SELECT FROM ff_execution WHERE route_id = (SELECT route_id FROM ff_route WHERE kind = $1) LIMIT 1 FOR UPDATE`,
    [kind],
  );
  expect(held.rowCount).toBe(1);
  return {
    async letGo() {
      await holder.query('ROLLBACK');
      await holder.end();
    },
  };
}

/** Makes something due now for both executions of the kind. */
const DUE = {
  'expired-leases': async (engine: Engine, kind: string) => {
    await engine.executions.submit([{ kind }, { kind }]);
    const worker = { workerId: 'gone', workerInstanceId: 'gone-1' };
    await engine.worker.claim({ ...worker, kinds: [kind], limit: 2, leaseMs: LEASE_MS });
    await crew.database.moveClock(LEASE_MS);
  },
  'due-timers': async (engine: Engine, kind: string) => {
    await engine.executions.submit([
      { kind, delay: LEASE_MS },
      { kind, delay: LEASE_MS },
    ]);
    await crew.database.moveClock(LEASE_MS);
  },
};

const RECONCILERS = [expiredLeases, dueTimers] as unknown as (Reconciler<never> & {
  name: keyof typeof DUE;
})[];

test.each(RECONCILERS)('a pass of $name acts on rows released while it runs', async (reconciler) => {
  const { engine, context } = await open();
  const kind = newKind();
  await DUE[reconciler.name](engine, kind);
  const holder = await oneOfTwoHeld(kind);
  const seen: number[] = [];
  const letGoAfterOneLook: Reconciler<never> = {
    ...reconciler,
    act: async (on, items) => {
      seen.push(items.length);
      const acted = await reconciler.act(on, items);
      if (seen.length === 1) await holder.letGo();
      return acted;
    },
  };
  expect(await pass(context, letGoAfterOneLook)).toMatchObject({ acted: 2, skipped: 0 });
  expect(seen).toEqual([2, 1]);
});

test.each(RECONCILERS)(
  'a pass of $name leaves rows locked for long to the next pass, after a number of tries',
  async (reconciler) => {
    const { engine, context } = await open();
    const kind = newKind();
    await DUE[reconciler.name](engine, kind);
    const holder = await oneOfTwoHeld(kind);
    let looks = 0;
    const counting: Reconciler<never> = {
      ...reconciler,
      due: (on, limit) => {
        looks += 1;
        return reconciler.due(on, limit);
      },
    };
    expect(await pass(context, counting)).toMatchObject({ acted: 1, skipped: 1, unfinished: 0 });
    expect(looks).toBe(1 + LIMITS.passPolls);
    await holder.letGo();
    expect(await pass(context, reconciler)).toMatchObject({ acted: 1, skipped: 0 });
  },
);

test('lapsed leases that somebody holds for long do not keep the others from being listed', async () => {
  const { engine, context } = await open();
  const kind = newKind();
  await engine.executions.submit(Array.from({ length: 6 }, () => ({ kind })));
  const worker = { workerId: 'gone', workerInstanceId: 'gone-2' };
  await engine.worker.claim({ ...worker, kinds: [kind], limit: 6, leaseMs: LEASE_MS });
  await crew.database.moveClock(LEASE_MS);
  const holder = await crew.database.connect();
  await holder.query('BEGIN');
  await holder.query(
    `SELECT FROM ff_execution WHERE route_id = (SELECT route_id FROM ff_route WHERE kind = $1)
     ORDER BY execution_id LIMIT 2 FOR UPDATE`,
    [kind],
  );
  let acted = 0;
  for (let look = 0; look < 8 && acted < 4; look += 1)
    acted += (await runPass(context, expiredLeases, 2, new AbortController().signal)).acted;
  expect(acted).toBe(4);
  await holder.query('ROLLBACK');
  await holder.end();
});
