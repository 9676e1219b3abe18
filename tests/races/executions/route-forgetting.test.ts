/**
 * Races between forgetting a route or a lane and using it: whichever comes first, no execution is left with a missing
 * route, and no route without its lane. The same races on a simpler implementation find both.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, type Connection, type SubmitResult } from '../../../src/index.ts';
import type { EngineContext } from '../../../src/engine/kit/context.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { unusedRoutes } from '../../../src/engine/upkeep/unused-routes.ts';
import { internRoutes } from '../../../src/engine/executions/claiming/routes.sql.ts';
import {
  RaceFailure,
  runRace,
  stepValue,
  type RaceSpec,
  type StepLike,
} from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { patiently } from '../../setup/patience.ts';
import { workerPort } from '../../../src/connect/port.ts';

const IDLE_MS = 26 * 3_600_000;
/** Three sessions of three steps have 1,680 orders. */
const MANY_ORDERS = { timeout: patiently(600_000) };

let database: TestDatabase;
let engine: Connection;
let context: EngineContext;
let closeContext: () => Promise<void>;

beforeAll(async () => {
  database = await testDatabase();
  const options = { databaseUrl: database.url, reconcile: 'off', listen: 'off', retention: '0s' } as const;
  engine = await connect({ ...options, defaultPolicy: {} });
  const opened = await openEngine({ databaseUrl: database.url, listen: 'off' });
  context = opened.context;
  closeContext = () => opened.engine.close();
});

afterAll(async () => {
  await closeContext?.();
  await engine?.close();
  await database?.drop();
});

interface Plan extends Record<string, unknown> {
  kind: string;
  lane: string;
  chore: ReturnType<typeof unusedRoutes>;
}

/** A separate route that no execution uses. */
async function unused(): Promise<Plan> {
  const plan = { kind: randomUUID(), lane: randomUUID(), chore: unusedRoutes() };
  await internRoutes(context.database, [{ ...plan, capabilities: [] }]);
  return plan;
}

async function idle(): Promise<Plan> {
  const plan = await unused();
  await database.moveClock(IDLE_MS);
  return plan;
}

const submitting: StepLike<Plan> = {
  name: 'call',
  run: (session, { kind, lane }) =>
    engine.executions.submit(
      { kind, lane, namespace: kind },
      { executor: (text, params) => session.query(text, params) },
    ),
};
const moving: StepLike<Plan> = { name: 'move', run: () => database.moveClock(IDLE_MS) };
const pass = (name: string): StepLike<Plan> => ({
  name,
  run: (_, { chore }) => chore.run(context, new AbortController().signal),
});
/** Delays the end of a pass: what it has listed, it forgets in the next one. */
const writing: StepLike<Plan>[] = ['BEGIN', 'SELECT pg_current_xact_id()', 'COMMIT'];

async function checkRoutes({ kind, lane }: Plan): Promise<void> {
  const dangling = await database.query(
    'SELECT FROM ff_execution LEFT JOIN ff_route USING (route_id) WHERE namespace = $1 AND kind IS NULL',
    [kind],
  );
  expect(dangling.rowCount, 'executions without a route').toBe(0);
  const homeless = await database.query(
    'SELECT FROM ff_route LEFT JOIN ff_lane USING (lane) WHERE lane = $1 AND paused IS NULL',
    [lane],
  );
  expect(homeless.rowCount, 'routes without a lane').toBe(0);
  const request = { kinds: [kind], lanes: [lane], leaseMs: 60_000, workerId: 'w', workerInstanceId: 'w-1' };
  const { claims } = await workerPort(engine).claim({ ...request, limit: 10 });
  expect(claims, 'claims').toHaveLength(1);
}

type Race = Pick<RaceSpec<Plan>, 'setup' | 'sessions' | 'permutations'>;

function race(spec: Race) {
  return runRace<Plan>({
    ...spec,
    connect: () => database.connect(),
    check: async (outcome, plan) => {
      expect(stepValue<SubmitResult>(outcome, 'a.call').outcome).toBe('submitted');
      expect(outcome.waited).toEqual([]);
      await checkRoutes(plan);
    },
  });
}

describe('an unused route', () => {
  it('is forgotten during a submit to it, before or after its term is over', MANY_ORDERS, async () => {
    await race({
      setup: unused,
      sessions: {
        a: ['BEGIN', submitting, 'COMMIT'],
        b: [moving, pass('first'), pass('second')],
        c: writing,
      },
    });
  });

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])(
    'is forgotten during a submit to it whose snapshot still has it: %s',
    async (isolation) => {
      await race({
        setup: idle,
        sessions: {
          a: [`BEGIN ISOLATION LEVEL ${isolation}`, 'SELECT FROM ff_route', submitting, 'COMMIT'],
          b: [pass('first'), pass('second')],
        },
      });
    },
  );

  const unreferenced = 'NOT EXISTS (SELECT FROM ff_execution e WHERE e.route_id = r.route_id)';
  const naively = (condition: string): StepLike<Plan> => ({
    name: 'forget',
    run: (session, { kind }) =>
      session.query(`DELETE FROM ff_route r WHERE kind = $1 AND ${condition}`, [kind]),
  });

  it.each([
    ['checking for executions only', naively(unreferenced)],
    ['checking the end of its term as well', naively(`${unreferenced} AND usable_until_ms < ff_now_ms()`)],
  ])('would be missing for an execution when forgotten by %s', async (_, forgetting) => {
    const failure: unknown = await race({
      setup: unused,
      sessions: { a: ['BEGIN', submitting, 'COMMIT'], b: [moving, forgetting] },
    }).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RaceFailure);
    expect((failure as RaceFailure).message).toMatch(/executions without a route: expected 1 to be \+0/);
  });
});

describe('a lane without routes', () => {
  /** A separate lane whose only route is gone, and another route to be created in it. */
  const empty = async (): Promise<Plan> => {
    const plan = await idle();
    await database.query('DELETE FROM ff_route WHERE kind = $1', [plan.kind]);
    return plan;
  };
  const interning: StepLike<Plan> = {
    name: 'intern',
    run: (session, { kind, lane }) =>
      session.query('SELECT FROM ff_intern_routes($1, 10000)', [
        JSON.stringify([{ lane, kind, capabilities: [] }]),
      ]),
  };
  const lanes = (name: string, sql: string) => async () => {
    await runRace<Plan>({
      connect: () => database.connect(),
      setup: empty,
      sessions: {
        a: ['BEGIN', interning, 'COMMIT'],
        b: ['BEGIN', { name, run: (session) => session.query(sql) }, 'COMMIT'],
      },
      check: async (outcome, plan) => {
        expect(outcome.results).not.toMatchObject({ 'a.intern': { ok: false } });
        await engine.executions.submit({ kind: plan.kind, lane: plan.lane, namespace: plan.kind });
        await checkRoutes(plan);
      },
    });
  };

  it('is forgotten while a route is created in it, which finds it or creates it anew', async () => {
    await lanes('forget', 'SELECT ff_forget_lanes(0, 1000)')();
  });

  it('would be missing if it were checked and forgotten in one statement', async () => {
    const failure: unknown = await lanes(
      'forget',
      'DELETE FROM ff_lane l WHERE NOT EXISTS (SELECT FROM ff_route r WHERE r.lane = l.lane)',
    )().catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RaceFailure);
    expect((failure as RaceFailure).message).toMatch(/routes without a lane: expected 1 to be \+0/);
  });
});
