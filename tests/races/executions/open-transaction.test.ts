/**
 * What an open transaction of an application blocks. It has submitted to a lane and a task that were never used before,
 * or with a key: only submits with the same key wait for it, and no longer than they are allowed to.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import {
  connect,
  type Connection,
  type PoolLike,
  type SubmitRequest,
  type SubmitResult,
} from '../../../src/index.ts';
import { runRace, stepValue, type Interleaving, type StepLike } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { workerPort } from '../../../src/connect/port.ts';

let database: TestDatabase;
let engine: Connection;
const clients: pg.Client[] = [];

beforeAll(async () => {
  database = await testDatabase();
  engine = await connect({ databaseUrl: database.url, reconcile: 'off', listen: 'off', defaultPolicy: {} });
});

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end()));
});

afterAll(async () => {
  await engine?.close();
  await database?.drop();
});

interface Plan extends Record<string, unknown> {
  fresh: SubmitRequest;
  known: SubmitRequest;
}

/** An unused lane and task, or only an unused task, and a task that is known. */
const planned = (lane: 'new lane' | 'known lane') => async (): Promise<Plan> => {
  const known = { kind: 'known' };
  await engine.executions.submit(known);
  return {
    fresh: { kind: `z-${randomUUID()}`, lane: lane === 'new lane' ? randomUUID() : 'default' },
    known,
  };
};

const inside = (isolation = 'READ COMMITTED'): StepLike<Plan> => ({
  name: 'call',
  run: async (session, { fresh }) => {
    await session.query(`BEGIN ISOLATION LEVEL ${isolation}`);
    return engine.executions.submit(fresh, { executor: (text, params) => session.query(text, params) });
  },
});

const outcomesOf = (outcome: Interleaving, step: string): string[] =>
  [stepValue<SubmitResult | SubmitResult[]>(outcome, step)].flat().map((answer) => answer.outcome);

async function routesOf({ fresh }: Plan): Promise<number> {
  return (await database.query('SELECT FROM ff_route WHERE kind = $1', [fresh.kind])).rowCount ?? 0;
}

async function claimed({ fresh }: Plan): Promise<number> {
  const request = { kinds: [fresh.kind], limit: 10, leaseMs: 60_000, workerId: 'w', workerInstanceId: 'w-1' };
  await workerPort(engine).claim({ ...request, limit: 1 });
  return (await workerPort(engine).claim(request)).claims.length + 1;
}

describe.each(['new lane', 'known lane'] as const)(
  'an open transaction that is the first to use a task (%s)',
  (lane) => {
    it.each(['COMMIT', 'ROLLBACK'] as const)('blocks no submit to the same task (%s)', async (end) => {
      await runRace<Plan>({
        connect: () => database.connect(),
        setup: planned(lane),
        sessions: {
          a: [inside(), end],
          b: [{ name: 'call', run: (_, { fresh }) => engine.executions.submit(fresh) }],
          c: [inside(), 'COMMIT'],
        },
        check: async (outcome, plan) => {
          expect(outcome.waited).toEqual([]);
          for (const step of ['a.call', 'b.call', 'c.call'])
            expect(outcomesOf(outcome, step)).toEqual(['submitted']);
          expect(await routesOf(plan)).toBe(1);
          expect(await claimed(plan)).toBe(end === 'COMMIT' ? 3 : 2);
        },
      });
    });

    it('blocks no submit that shares a statement with one to the same task', async () => {
      await runRace<Plan>({
        connect: () => database.connect(),
        setup: planned(lane),
        sessions: {
          a: [inside(), 'COMMIT'],
          b: [
            {
              name: 'call',
              run: (_, { fresh, known }) =>
                Promise.all([known, fresh, known].map((request) => engine.executions.submit(request))),
            },
          ],
        },
        check: (outcome) => expect(outcomesOf(outcome, 'b.call')).toEqual(Array(3).fill('submitted')),
      });
    });

    it('blocks no claim, spawn or flow', async () => {
      await runRace<Plan>({
        connect: () => database.connect(),
        setup: planned(lane),
        sessions: {
          a: [inside(), 'ROLLBACK'],
          b: [
            {
              name: 'call',
              run: async (_, { fresh, known }) => {
                const request = { limit: 1, leaseMs: 60_000, workerId: 'w', workerInstanceId: 'w-1' };
                const none = await workerPort(engine).claim({ ...request, kinds: [fresh.kind] });
                const { claims } = await workerPort(engine).claim({ ...request, kinds: [known.kind] });
                const spawned = await workerPort(engine).spawn(claims[0]!, [fresh]);
                const flow = await engine.flows.submit({ name: 'f', members: [{ name: 'm', ...fresh }] });
                return [none.claims.length, spawned.outcome, flow.outcome];
              },
            },
          ],
        },
        check: (outcome) => expect(stepValue(outcome, 'b.call')).toEqual([0, 'spawned', 'submitted']),
      });
    });
  },
);

it('a transaction that cannot see the route created for it submits all the same', async () => {
  await runRace<Plan>({
    connect: () => database.connect(),
    setup: planned('new lane'),
    sessions: {
      a: [inside('REPEATABLE READ'), 'COMMIT'],
      b: [inside('SERIALIZABLE'), 'COMMIT'],
    },
    check: async (outcome, plan) => {
      expect(outcome.waited).toEqual([]);
      for (const step of ['a.call', 'b.call']) expect(outcomesOf(outcome, step)).toEqual(['submitted']);
      expect(await claimed(plan)).toBe(2);
    },
  });
});

async function begin(): Promise<pg.Client> {
  const client = await database.connect();
  clients.push(client);
  await client.query('BEGIN');
  return client;
}

type Named = Pick<SubmitRequest, 'idempotencyKey' | 'executionId'>;

const NAMES: [string, () => Named][] = [
  ['key', () => ({ idempotencyKey: randomUUID() })],
  ['id', () => ({ executionId: `{fp:9}:${randomUUID()}` as never })],
];

describe.each(NAMES)('an open transaction that has used a %s', (_, name) => {
  it('blocks submits with the same one, and no other that shares their statement', async () => {
    const client = await begin();
    const held = { kind: 'held', ...name() };
    await engine.executions.submit(held, { executor: (text, params) => client.query(text, params) });
    const told: string[] = [];
    const submit = async (who: string, request: SubmitRequest | SubmitRequest[]) => {
      const answer: unknown = await engine.executions
        .submit(request as SubmitRequest)
        .catch((error: unknown) => error);
      told.push(who);
      return answer;
    };
    const others = Array.from({ length: 20 }, () => ({ kind: 'held', ...name() }));
    const [alone, among, ...answers] = await Promise.all([
      submit('held', held),
      submit('held', [{ kind: 'held', ...name() }, held]),
      ...others.map((request) => submit('other', request)),
    ]);
    expect(answers).toMatchObject(others.map(() => ({ outcome: 'submitted' })));
    const message = expect.stringMatching(/has not ended within 2 seconds\. Submit again/) as string;
    expect(alone).toMatchObject({ code: 'contention', field: `request.${Object.keys(held)[1]!}`, message });
    expect(among).toMatchObject({ code: 'contention', field: 'requests', message });
    expect(told.slice(-2)).toEqual(['held', 'held']);
    await client.query('ROLLBACK');
    expect(await engine.executions.submit(held)).toMatchObject({ outcome: 'submitted' });
  });

  it('unblocks those when it commits, with its execution', async () => {
    const client = await begin();
    const held = { kind: 'held', ...name() };
    const executor = (text: string, params: unknown[]) => client.query(text, params);
    const { executionId } = await engine.executions.submit(held, { executor });
    const waiting = engine.executions.submit(held);
    await engine.executions.submit({ kind: 'held', ...name() });
    await client.query('COMMIT');
    expect(await waiting).toEqual({ executionId, outcome: 'duplicate' });
  });
});

it('an open transaction that has used many keys makes no statement block others for long', async () => {
  const pool = new pg.Pool({ connectionString: database.url });
  const patience: number[] = [];
  const query = pool.query.bind(pool) as PoolLike['query'];
  const watched: PoolLike = {
    query(statement) {
      const { text, values } = statement;
      if (text.includes('ff_submit_each('))
        patience.push(Number(values.at(-1)) * String(values[2]).split(',').length);
      return query(statement);
    },
  };
  const shared = await connect({ pool: watched, reconcile: 'off', listen: 'off' });
  const named = (count: number): SubmitRequest[] =>
    Array.from({ length: count }, () => ({ kind: 'held', idempotencyKey: randomUUID() }));
  const [held, free] = [named(120), named(20)];
  const client = await begin();
  await engine.executions.submit(held, { executor: (text, params) => client.query(text, params) });
  const waiting = Promise.allSettled(held.map((request) => shared.executions.submit(request)));
  const through = await Promise.all(free.map((request) => shared.executions.submit(request)));
  expect(through).toMatchObject(free.map(() => ({ outcome: 'submitted' })));
  await client.query('ROLLBACK');
  await waiting;
  await shared.close();
  await pool.end();
  expect(Math.max(...patience)).toBeGreaterThan(0);
  expect(Math.max(...patience)).toBeLessThanOrEqual(50);
});

describe('a pool that the application shares with the engine', () => {
  it('and whose last connection it holds: a submit to a new task must retry, and succeeds then', async () => {
    const pool = new pg.Pool({ connectionString: database.url, max: 1 });
    const shared = await connect({ pool, reconcile: 'off', listen: 'off' });
    const kind = randomUUID();
    const inTransaction = async (): Promise<SubmitResult> => {
      const client = await pool.connect();
      try {
        await client.query('BEGIN');
        const answer = await shared.executions.submit(
          { kind },
          { executor: (text, params) => client.query(text, params) },
        );
        await client.query('COMMIT');
        return answer;
      } catch (error) {
        await client.query('ROLLBACK');
        throw error;
      } finally {
        client.release();
      }
    };
    await expect(inTransaction()).rejects.toMatchObject({
      code: 'retry_transaction',
      message: expect.stringMatching(
        /no free connection within 2 seconds.*Roll back and try again/,
      ) as string,
    });
    expect(await inTransaction()).toMatchObject({ outcome: 'submitted' });
    await shared.close();
    await pool.end();
  });
});
