/**
 * Calls are prepared on the engine's own connections, and go on unprepared as soon as a server process refuses a name,
 * as behind a pooler that shares server processes. Every engine here has one connection, so that its statements and
 * those of the test run in one server process.
 */
import { afterAll, afterEach, beforeAll, expect, it } from 'vitest';
import pg from 'pg';
import { run, type Database } from '../../../src/engine/database/database.ts';
import { MAX_STATEMENT_NAMES } from '../../../src/engine/database/statement-names.ts';
import { openEngine, type OpenedEngine } from '../../../src/engine/open.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';

let database: TestDatabase;
const opened: OpenedEngine[] = [];

beforeAll(async () => {
  database = await testDatabase();
});
afterEach(async () => {
  await Promise.all(opened.splice(0).map(({ engine }) => engine.close()));
});
afterAll(() => database.drop());

async function open(): Promise<OpenedEngine> {
  const engine = await openEngine({ databaseUrl: database.url, poolSize: 1, listen: 'off' });
  opened.push(engine);
  return engine;
}

/** Directly on the engine's connection. */
async function onConnection(db: Database, text: string): Promise<unknown[]> {
  return (await db.pool.query({ text, values: [], types: undefined })).rows;
}

async function preparedOn(db: Database): Promise<{ name: string; text: string }[]> {
  const rows = await onConnection(
    db,
    'SELECT name, statement AS text FROM pg_prepared_statements ORDER BY 1',
  );
  return rows as { name: string; text: string }[];
}

async function nameOfCall(db: Database, call: string): Promise<string | undefined> {
  return (await preparedOn(db)).find(({ text }) => text.includes(call))?.name;
}

const CLAIM = { workerId: 'w', workerInstanceId: 'w-1', kinds: ['named'], limit: 1, leaseMs: 30_000 };

/** One execution from submit to completion; each call has its own statement. */
async function runOne({ engine }: OpenedEngine): Promise<void> {
  const { executionId } = await engine.executions.submit({ kind: 'named' });
  const { claims } = await engine.worker.claim(CLAIM);
  expect(claims).toMatchObject([{ executionId }]);
  expect(await engine.worker.complete(claims[0]!, 1)).toEqual({ outcome: 'completed', repeated: false });
}

it('a call is prepared once per connection, under a name of its own', async () => {
  const engine = await open();
  await runOne(engine);
  await runOne(engine);
  const prepared = await preparedOn(engine.context.database);
  for (const call of ['ff_submit_one(', 'ff_claim(', 'ff_complete('])
    expect(prepared.filter(({ text }) => text.includes(call))).toHaveLength(1);
  expect(new Set(prepared.map(({ name }) => name)).size).toBe(prepared.length);
});

it('the name depends on the text alone', async () => {
  const [one, other] = [await open(), await open()];
  await runOne(one);
  await runOne(other);
  const name = await nameOfCall(one.context.database, 'ff_claim(');
  expect(name).toMatch(/^ff_[0-9a-f]{24}$/);
  expect(await nameOfCall(other.context.database, 'ff_claim(')).toBe(name);
});

it('calls go on when another server process answers, which does not know their names', async () => {
  const engine = await open();
  await runOne(engine);
  await onConnection(engine.context.database, 'DEALLOCATE ALL');
  await runOne(engine);
  await onConnection(engine.context.database, 'DEALLOCATE ALL');
  await runOne(engine);
  expect(await preparedOn(engine.context.database)).toEqual([]);
});

it('each of several calls that are refused at the same time is performed once', async () => {
  const engine = await open();
  await runOne(engine);
  await onConnection(engine.context.database, 'DEALLOCATE ALL');
  const { executions, worker } = engine.engine;
  const ids = await Promise.all(
    ['a', 'b', 'c'].map((key) => executions.submit({ kind: 'named', tags: { key } })),
  );
  const { claims } = await worker.claim({ ...CLAIM, limit: 10 });
  expect(claims.map((claim) => claim.executionId).toSorted()).toEqual(
    ids.map((made) => made.executionId).toSorted(),
  );
  await Promise.all(claims.map((claim) => worker.complete(claim, 1)));
});

it('calls go on when somebody else has given the server process a statement of that name', async () => {
  const first = await open();
  await runOne(first);
  const name = await nameOfCall(first.context.database, 'ff_claim(');
  const second = await open();
  await onConnection(second.context.database, `PREPARE ${name} AS SELECT 1`);
  await runOne(second);
  await runOne(second);
  expect(await nameOfCall(second.context.database, 'ff_claim(')).toBeUndefined();
});

it('a call returns the new columns after a migration has replaced its function', async () => {
  const { context } = await open();
  const db = context.database;
  const define = (columns: string, body: string): Promise<unknown[]> =>
    onConnection(
      db,
      `DROP FUNCTION IF EXISTS ${db.prefix}ff_probe();
       CREATE FUNCTION ${db.prefix}ff_probe() RETURNS TABLE (${columns}) LANGUAGE sql AS $$ ${body} $$`,
    );
  const probe = {
    doing: 'probing',
    text: `SELECT a FROM ${db.prefix}ff_probe()`,
    params: [],
    repeatable: 'no' as const,
  };
  await define('a integer', 'SELECT 1');
  expect(await run(db, probe)).toEqual([{ a: 1 }]);
  expect(await nameOfCall(db, 'ff_probe')).toBeDefined();
  await define('a text', "SELECT 'one'");
  expect(await run(db, probe)).toEqual([{ a: 'one' }]);
});

it('an error of the call itself is reported as it is, and its name stays', async () => {
  const { context } = await open();
  const db = context.database;
  const call = {
    doing: 'dividing',
    text: `SELECT 1 / $1::integer AS a FROM ${db.prefix}ff_now_ms()`,
    repeatable: 'no',
  } as const;
  await expect(run(db, { ...call, params: [0] })).rejects.toMatchObject({ sqlState: '22012' });
  expect(await run(db, { ...call, params: [1] })).toEqual([{ a: 1 }]);
  expect(await nameOfCall(db, '1 / $1')).toBeDefined();
});

it('only calls have names, and no more than the limit', async () => {
  const { context } = await open();
  const db = context.database;
  const ask = (text: string): Promise<unknown[]> =>
    run(db, { doing: 'asking', text, params: [1], repeatable: 'yes' });
  await ask('SELECT $1::integer AS a');
  await ask(`SELECT $1::integer AS a FROM ${db.prefix}ff_now_ms() now WHERE now > 0`);
  await ask(`SELECT $1::integer AS a FROM ${db.prefix}ff_route, ${db.prefix}ff_now_ms()`);
  expect(await preparedOn(db)).toEqual([]);
  for (let n = 0; n < MAX_STATEMENT_NAMES + 5; n += 1)
    await ask(`SELECT $1::integer AS a${n} FROM ${db.prefix}ff_now_ms()`);
  expect(await preparedOn(db)).toHaveLength(MAX_STATEMENT_NAMES);
});

it('the connections of an application get no names', async () => {
  const pool = new pg.Pool({ connectionString: database.url, max: 1 });
  const { engine } = await openEngine({ pool: pool as never, listen: 'off' });
  await engine.executions.submit({ kind: 'unnamed' });
  expect((await pool.query('SELECT FROM pg_prepared_statements')).rows).toEqual([]);
  await engine.close();
  await pool.end();
});
