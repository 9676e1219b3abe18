/**
 * The interleaving tester against a real Postgres: it enumerates every order, distinguishes a blocked step from a slow
 * one, and reports what a race did. Enumeration alone is also checked without a database.
 */

import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  MAX_PERMUTATIONS,
  RaceFailure,
  runRace,
  stepValue,
  tablesWaitedOn,
} from '../../src/testing/stepper.ts';
import type { Interleaving, RaceSpec, StepLike } from '../../src/testing/stepper.ts';
import { countMerges, mergeAll } from '../../src/testing/stepper-permutations.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { emptyDatabase } from '../setup/database.ts';

// Roles belong to the whole server, which other files and runs may share.
const PLAIN_ROLE = `plain_${randomUUID().replaceAll('-', '')}`;
const PLAIN_PASSWORD = randomUUID();
const SCHEMA = `
CREATE TABLE account (id int PRIMARY KEY, balance int NOT NULL);
CREATE TABLE invoice (id int PRIMARY KEY, account_id int REFERENCES account);
CREATE TABLE job (id int, lane int, PRIMARY KEY (lane, id)) PARTITION BY LIST (lane);
CREATE TABLE job_1 PARTITION OF job FOR VALUES IN (1);
CREATE ROLE ${PLAIN_ROLE} LOGIN PASSWORD '${PLAIN_PASSWORD}';
GRANT ALL ON ALL TABLES IN SCHEMA public TO ${PLAIN_ROLE};`;

let database: TestDatabase;
let admin: pg.Client;

async function connect(): Promise<pg.Client> {
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  return client;
}

async function setup(): Promise<Record<string, unknown>> {
  await admin.query(`
    TRUNCATE account, invoice, job;
    INSERT INTO account VALUES (1, 100), (2, 100);
    INSERT INTO job VALUES (1, 1)`);
  return {};
}

async function balance(): Promise<number> {
  return (await admin.query('SELECT balance FROM account WHERE id = 1')).rows[0].balance;
}

async function otherConnections(): Promise<number> {
  const sql = `SELECT count(*)::int AS n FROM pg_stat_activity
               WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`;
  return (await admin.query(sql)).rows[0].n;
}

/** The same list for both sessions, in all orders, without a check unless one is given. */
function both(steps: StepLike[], rest: Partial<RaceSpec> = {}): Promise<Interleaving[]> {
  return runRace({ connect, setup, sessions: { a: steps, b: steps }, check: () => {}, ...rest });
}

async function failureOf(race: Promise<unknown>): Promise<RaceFailure> {
  const error = await race.catch((cause: unknown) => cause);
  if (error instanceof RaceFailure) return error;
  throw new Error('the race did not fail as a race', { cause: error });
}

/** Both sessions take 10 from what they read, so that a lost update leaves 90 instead of 80. */
function withdrawals(read: string): Record<string, StepLike[]> {
  const remember: StepLike = {
    name: 'read',
    run: async (session, memory) => {
      memory[session.name] = (await session.query(read)).rows[0].balance;
    },
  };
  const write: StepLike = {
    name: 'write',
    run: (session, memory) =>
      session.query('UPDATE account SET balance = $1 WHERE id = 1', [Number(memory[session.name]) - 10]),
  };
  const steps = ['BEGIN', remember, write, 'COMMIT'];
  return { a: steps, b: steps };
}

beforeAll(async () => {
  database = await emptyDatabase();
  admin = await connect();
  await admin.query(SCHEMA);
});

afterAll(async () => {
  await admin?.query(`DROP OWNED BY ${PLAIN_ROLE}; DROP ROLE ${PLAIN_ROLE}`);
  await admin?.end();
  await database?.drop();
});

describe('the orders of a race', () => {
  test('match the multinomial coefficient, are all different, and keep each list in order', () => {
    for (const lengths of [[1], [3, 3], [2, 2, 2], [1, 4, 2]]) {
      const lists = lengths.map((length, list) => Array.from({ length }, (_, at) => `${list}.${at}`));
      const merges = mergeAll(lists);
      expect(merges).toHaveLength(countMerges(lengths));
      expect(new Set(merges.map(String)).size).toBe(merges.length);
      for (const merge of merges) {
        expect(
          lists.every((list) => String(merge.filter((one) => list.includes(one))) === String(list)),
        ).toBe(true);
      }
    }
    expect(countMerges([2, 2, 2])).toBe(90);
  });

  test('are all run when nothing blocks', async () => {
    const outcomes = await both(['SELECT 1', 'SELECT 2', 'SELECT 3']);
    expect(outcomes).toHaveLength(20);
    expect(new Set(outcomes.map((outcome) => outcome.order.join())).size).toBe(20);
    expect(outcomes.flatMap((outcome) => outcome.waited)).toEqual([]);
  });

  test('are refused, before anything connects, when there are too many', async () => {
    const steps = Array.from({ length: 8 }, (_, index) => `SELECT ${index}`);
    const connectNever = () => Promise.reject(new Error('connected'));
    const race = both(steps, { connect: connectNever });
    await expect(race).rejects.toMatchObject({ code: 'too_many', field: 'permutations' });
    await expect(race).rejects.toThrow(`the limit is ${MAX_PERMUTATIONS}`);
  });

  test('can be given, and one that is not a merge of the lists is refused', async () => {
    const order = ['b.SELECT 1', 'a.SELECT 1', 'a.SELECT 2', 'b.SELECT 2'];
    const [outcome, ...others] = await both(['SELECT 1', 'SELECT 2'], { permutations: [order] });
    expect(others).toEqual([]);
    expect(outcome?.order).toEqual(order);
    for (const bad of [order.toReversed(), order.slice(1), [...order, 'c.SELECT 1']]) {
      const race = both(['SELECT 1', 'SELECT 2'], { permutations: [bad] });
      await expect(race).rejects.toMatchObject({ code: 'invalid_input', field: 'permutations[0]' });
    }
  });

  test('need steps with distinct names within a session', async () => {
    await expect(both(['SELECT 1', 'SELECT  1'])).rejects.toMatchObject({ code: 'invalid_input' });
  });
});

describe('a read-modify-write race', () => {
  test('loses an update in some orders when the row is read without a lock', async () => {
    const balances: number[] = [];
    await runRace({
      connect,
      setup,
      sessions: withdrawals('SELECT balance FROM account WHERE id = 1'),
      check: async () => void balances.push(await balance()),
    });
    expect(balances).toHaveLength(70);
    expect(new Set(balances)).toEqual(new Set([80, 90]));
  });

  test('loses none with FOR UPDATE, where the second reader waits for the first to commit', async () => {
    const outcomes = await runRace({
      connect,
      setup,
      sessions: withdrawals('SELECT balance FROM account WHERE id = 1 FOR UPDATE'),
      check: async (outcome) => {
        expect(await balance()).toBe(80);
        expect(Object.values(outcome.results).every((result) => result.ok)).toBe(true);
      },
    });
    expect(outcomes).toHaveLength(70);
    expect(tablesWaitedOn(outcomes)).toEqual(['account']);
    const orders = outcomes.filter((outcome) => outcome.waited.length > 0).map((outcome) => outcome.order);
    for (const order of orders) {
      const [winner, loser] = order.indexOf('a.read') < order.indexOf('b.read') ? ['a', 'b'] : ['b', 'a'];
      expect(order.indexOf(`${winner}.COMMIT`)).toBeLessThan(order.indexOf(`${loser}.write`));
    }
  });

  test('fails with the order that broke it, which replays to the same failure', async () => {
    const spec: RaceSpec = {
      connect,
      setup,
      sessions: withdrawals('SELECT balance FROM account WHERE id = 1'),
      check: async () => expect(await balance()).toBe(80),
    };
    const first = await failureOf(runRace(spec));
    expect(first.message).toContain(first.outcome.order.join(', '));
    expect(first.message).toContain(JSON.stringify([first.outcome.order]));
    expect(first.cause).toMatchObject({ actual: 90, expected: 80 });
    const again = await failureOf(runRace({ ...spec, permutations: [first.outcome.order] }));
    expect(again.outcome.order).toEqual(first.outcome.order);
    expect(await otherConnections()).toBe(0);
  });
});

describe('a wait', () => {
  const serial = (write: string, session: string) => ({ name: 'write', sql: write.replace('$s', session) });
  const waitsOf = async (write: string) => {
    const list = (session: string) => ['BEGIN', serial(write, session), 'COMMIT'];
    const order = ['a.BEGIN', 'b.BEGIN', 'a.write', 'b.write', 'b.COMMIT', 'a.COMMIT'];
    const spec = { connect, setup, check: () => {}, permutations: [order] };
    const [outcome] = await runRace({ ...spec, sessions: { a: list('1'), b: list('2') } });
    expect(outcome?.waited).toEqual(['b.write']);
    expect(outcome?.order).toEqual(['a.BEGIN', 'b.BEGIN', 'a.write', 'b.write', 'a.COMMIT', 'b.COMMIT']);
    return outcome?.waitsOn['b.write'] ?? [];
  };

  test('for a row names its table', async () => {
    const [wait] = await waitsOf('UPDATE account SET balance = 0 WHERE id = 1');
    expect(wait).toMatchObject({ locktype: 'transactionid', table: 'account', blockedBy: ['a'] });
  });

  test('for a row of a partition names the partitioned table', async () => {
    const [wait] = await waitsOf('SELECT FROM job WHERE id = 1 FOR UPDATE');
    expect(wait).toMatchObject({ table: 'job', relation: 'job_1' });
  });

  test('for a whole table names it', async () => {
    const [wait] = await waitsOf('LOCK TABLE invoice IN EXCLUSIVE MODE');
    expect(wait).toMatchObject({ locktype: 'relation', table: 'invoice', mode: 'ExclusiveLock' });
  });

  test('for the row behind a foreign key names the referenced table', async () => {
    const delete1 = { name: 'write', sql: 'DELETE FROM account WHERE id = 1' };
    const refer = { name: 'write', sql: 'INSERT INTO invoice VALUES (1, 1)' };
    const [outcome] = await runRace({
      connect,
      setup,
      check: () => {},
      permutations: [['a.BEGIN', 'a.write', 'b.write', 'a.COMMIT']],
      sessions: { a: ['BEGIN', delete1, 'COMMIT'], b: [refer] },
    });
    expect(outcome?.waitsOn['b.write']?.[0]).toMatchObject({ table: 'account', blockedBy: ['a'] });
    expect(outcome?.results['b.write']).toMatchObject({ ok: false, code: '23503' });
  });

  test('for another insert of the same key names the table as the likely one', async () => {
    const [wait] = await waitsOf('INSERT INTO account VALUES (7, $s)');
    expect(wait).toMatchObject({ locktype: 'transactionid', table: null, likely: ['account'] });
  });

  test('for an advisory lock names its key', async () => {
    const [wait] = await waitsOf('SELECT pg_advisory_xact_lock(3, 4)');
    expect(wait).toMatchObject({ locktype: 'advisory', table: null, key: '3:4' });
  });

  test('is not reported for SKIP LOCKED, NOWAIT or a slow statement', async () => {
    const outcomes = await both([
      'BEGIN',
      { name: 'take', sql: 'SELECT id FROM account ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED' },
      { name: 'slow', sql: 'SELECT pg_sleep(0.002)' },
      'COMMIT',
    ]);
    expect(outcomes.flatMap((outcome) => outcome.waited)).toEqual([]);
    const refused = await both(['BEGIN', 'SELECT FROM account FOR UPDATE NOWAIT', 'COMMIT']);
    expect(refused.flatMap((outcome) => outcome.waited)).toEqual([]);
    const codes = refused.flatMap((one) =>
      Object.values(one.results).map((result) => !result.ok && result.code),
    );
    expect(new Set(codes)).toEqual(new Set([false, '55P03']));
  });
});

describe('a deadlock', () => {
  const lock = (id: number) => ({
    name: `lock ${id}`,
    sql: `SELECT FROM account WHERE id = ${id} FOR UPDATE`,
  });
  const sessions = { a: ['BEGIN', lock(1), lock(2), 'COMMIT'], b: ['BEGIN', lock(2), lock(1), 'COMMIT'] };

  test('is counted, fails the transaction of one side and happens exactly when both hold their first lock', async () => {
    const outcomes = await runRace({ connect, setup, sessions, check: () => {} });
    expect(outcomes).toHaveLength(70);
    for (const { order, deadlocks, results, waited } of outcomes) {
      const at = (step: string) => order.indexOf(step);
      const crossed = at('a.lock 1') < at('b.lock 1') && at('b.lock 2') < at('a.lock 2');
      const failed = Object.values(results).filter((result) => !result.ok);
      expect(failed).toHaveLength(deadlocks);
      expect(deadlocks).toBe(crossed ? 1 : 0);
      if (!crossed) continue;
      expect(failed[0]).toMatchObject({ code: '40P01' });
      expect(waited.toSorted()).toEqual(['a.lock 2', 'b.lock 1']);
    }
    expect(outcomes.some((outcome) => outcome.deadlocks === 1)).toBe(true);
  });

  test('is found under a role that may not shorten the deadlock timeout', async () => {
    const asPlain = async () => {
      const url = new URL(database.url);
      url.username = PLAIN_ROLE;
      url.password = PLAIN_PASSWORD;
      const client = new pg.Client({ connectionString: url.href });
      await client.connect();
      return client;
    };
    const order = [
      'a.BEGIN',
      'b.BEGIN',
      'a.lock 1',
      'b.lock 2',
      'a.lock 2',
      'b.lock 1',
      'a.COMMIT',
      'b.COMMIT',
    ];
    const race = runRace({ connect: asPlain, setup, sessions, check: () => {}, permutations: [order] });
    expect((await race)[0]?.deadlocks).toBe(1);
  });

  test('handled by the code under test is counted too', async () => {
    const second = (id: number): StepLike => ({
      name: 'second',
      run: (session) => session.query(lock(id).sql).catch(() => 'handled'),
    });
    const [outcome] = await runRace({
      connect,
      setup,
      check: () => {},
      sessions: { a: ['BEGIN', lock(1), second(2)], b: ['BEGIN', lock(2), second(1)] },
      permutations: [['a.BEGIN', 'b.BEGIN', 'a.lock 1', 'b.lock 2', 'a.second', 'b.second']],
    });
    expect(outcome?.deadlocks).toBe(1);
    expect(outcome?.results).toMatchObject({ 'a.second': { ok: true }, 'b.second': { ok: true } });
  });
});

describe('a race', () => {
  test('rolls back a session that ends with its transaction open, even when another waits for it', async () => {
    const hold = 'UPDATE account SET balance = 0 WHERE id = 1';
    const [outcome] = await runRace({
      connect,
      setup,
      sessions: { a: ['BEGIN', hold], b: [{ name: 'add', sql: 'UPDATE account SET balance = balance + 1' }] },
      permutations: [['a.BEGIN', `a.${hold}`, 'b.add']],
      check: async () => expect(await balance()).toBe(101),
    });
    expect(outcome).toMatchObject({ waited: ['b.add'], rolledBack: ['a'] });
  });

  test('passes what setup returned to its steps and its check, and runs functions on the connection', async () => {
    const outcomes = await runRace({
      connect,
      setup: async () => ({ ...(await setup()), id: 2, seen: [] as string[] }),
      sessions: {
        a: [
          { name: 'text', sql: 'SELECT balance FROM account WHERE id = $1', params: (memory) => [memory.id] },
          {
            name: 'code',
            run: async (on, memory) => memory.seen.push((await on.client.query('SELECT 1')).command),
          },
        ],
      },
      check: (outcome, memory) => {
        expect(stepValue(outcome, 'a.text').rows).toEqual([{ balance: 100 }]);
        expect(stepValue<number>(outcome, 'a.code')).toBe(1);
        expect(memory.seen).toEqual(['SELECT']);
        expect(() => stepValue(outcome, 'a.txet')).toThrow('did not run');
      },
    });
    expect(outcomes).toHaveLength(1);
  });

  test('continues with a new connection when a step has broken one', async () => {
    const kill: StepLike = {
      name: 'die',
      run: (on) => on.query('SELECT pg_terminate_backend(pg_backend_pid())'),
    };
    const outcomes = await both([kill]);
    expect(outcomes).toHaveLength(2);
    const results = outcomes.flatMap((outcome) => Object.values(outcome.results));
    expect(results.map((result) => !result.ok && result.code)).toEqual(['57P01', '57P01', '57P01', '57P01']);
  });

  test('blocked by an outside session reports which session waits on what, and leaves no connection behind', async () => {
    const stranger = await connect();
    await stranger.query('BEGIN; LOCK TABLE invoice');
    const race = runRace({
      connect,
      check: () => {},
      timeoutMs: 100,
      setup: async () => ({}),
      sessions: { a: ['SELECT FROM invoice', 'SELECT 2'] },
    });
    const { message } = await failureOf(race);
    expect(message).toContain('a: in a.SELECT FROM invoice; waits for AccessShareLock on relation (invoice)');
    expect(message).toContain('held by a stranger');
    expect(message).toContain('not started: a.SELECT 2');
    await stranger.end();
    await expect.poll(otherConnections).toBe(0);
  });
});
