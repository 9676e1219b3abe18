/**
 * Nothing the engine sends is compiled to machine code: that takes seconds, and Postgres does it for any statement it
 * estimates to be expensive. Every statement of the store and of the functions is run, on a server with a compiler
 * where this system has one; the estimated costs are checked everywhere.
 */
import { mkdtemp, chmod, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { availableBinaries } from '../../src/embedded/binaries.ts';
import { startEmbedded } from '../../src/embedded/index.ts';
import { migrate } from '../../src/engine/database/migrations/migrate.ts';
import { createTestDatabase, type TestDatabase } from '../../src/testing/test-database.ts';
import { findFunctions } from '../tidy/functions.ts';
import { askStore } from './asked.ts';
import { openRecorder, type RecordedPlan, type Recorder } from './plan-recorder.ts';
import { compiled } from './plan-rules.ts';
import { walk } from './walk.ts';

const ENGINE = new URL('../../src/engine/', import.meta.url);
/** Files that contain statements. */
const STATEMENTS = /^database\/|\.sql\.ts$/;
/** Functions that send statements on behalf of others. */
const CARRIERS = [
  'run',
  'runInside',
  'runNamed',
  'runForPerson',
  'readUncompiled',
  'readRows',
  'readOne',
  'readLarge',
];
/** Functions that send no statement with a plan, or use their own connections. */
const WITHOUT_PLANS = ['planMigration', 'echoHint', 'readAnsweringPids'];

let url: string;
let hasCompiler: boolean;
const cleanUps: (() => Promise<unknown>)[] = [];

/** The system's own server, if there is one; it may have a compiler, which the packaged one lacks. */
async function openServer(): Promise<string> {
  if (!(await availableBinaries()).includes('system')) return inject('testServer').url;
  const parent = await mkdtemp(join(tmpdir(), 'flowfabric-compiling-'));
  cleanUps.push(() => rm(parent, { recursive: true, force: true }));
  await chmod(parent, 0o755);
  const settings = { fsync: 'off', jit: 'on' };
  const server = await startEmbedded({ dataDir: join(parent, 'postgres'), binaries: 'system', settings });
  cleanUps.push(() => server.stop('immediate'));
  return server.url;
}

beforeAll(async () => {
  url = await openServer();
});
afterAll(async () => {
  for (const cleanUp of cleanUps.toReversed()) await cleanUp();
});

/** The functions of the store that send a statement, by their name. */
async function sendingFunctions(): Promise<string[]> {
  const files = (await readdir(ENGINE, { recursive: true })).filter(
    (name) => STATEMENTS.test(name) && name.endsWith('.ts') && !name.endsWith('.test.ts'),
  );
  const texts = await Promise.all(files.map((name) => readFile(new URL(name, ENGINE), 'utf8')));
  const sends = new RegExp(`(?:^|[^\\w.])(?:${CARRIERS.join('|')})[<(]`);
  return texts
    .flatMap((text) => {
      const lines = text.split('\n');
      return findFunctions(text).filter(({ line, lines: count }) =>
        sends.test(lines.slice(line, line - 1 + count).join('\n')),
      );
    })
    .map(({ name }) => name)
    .filter((name) => !CARRIERS.includes(name) && !WITHOUT_PLANS.includes(name));
}

/** Records which functions send statements: those on the stack of each call. */
function noteSenders(recorder: Recorder, senders: Set<string>): Recorder {
  // The function that sends is below what retries and names statements.
  Error.stackTraceLimit = 50;
  const note = (): void => {
    const frames = `${new Error('sent').stack}`.matchAll(/at (?:async )?(?:\w+\.)*(\w+) /g);
    for (const frame of frames) senders.add(frame[1]!);
  };
  const noting = <Sends extends object>(sends: Sends, query: (...args: unknown[]) => unknown): Sends =>
    Object.assign(Object.create(sends) as Sends, {
      query: (...args: unknown[]) => {
        note();
        return query(...args);
      },
    });
  const { client, database } = recorder;
  const pool = noting(database.pool, database.pool.query as (...args: unknown[]) => unknown);
  return {
    ...recorder,
    client: noting(client, client.query.bind(client) as (...args: unknown[]) => unknown),
    database: { ...database, pool },
  };
}

describe('on tables without statistics', () => {
  const senders = new Set<string>();
  let test: TestDatabase;
  let plans: RecordedPlan[];

  beforeAll(async () => {
    test = await createTestDatabase({ serverUrl: url, template: 'template1' });
    await migrate({ databaseUrl: test.url });
    hasCompiler = (await test.query<{ yes: boolean }>('SELECT pg_jit_available() AS yes')).rows[0]!.yes;
    const [walker, rival] = [await openRecorder(test, 'counted'), await openRecorder(test, 'planned')];
    const noted = noteSenders(walker, senders);
    plans = await walker.record(async () => {
      await askStore(noted);
      await walk(noted, rival, 1);
    });
  });
  afterAll(() => test?.drop());

  it('every statement of the store is seen', async () => {
    const sending = await sendingFunctions();
    expect(sending.length).toBeGreaterThan(80);
    expect(sending.filter((name) => !senders.has(name))).toEqual([]);
  });

  it('no statement is compiled', () => {
    expect(plans.length).toBeGreaterThan(500);
    expect(compiled(plans)).toEqual([]);
  });

  it('a statement that expensive is compiled where there is a compiler', async () => {
    const recorder = await openRecorder(test, 'counted');
    const many = ['a', 'b', 'c', 'd'].map((name) => `jsonb_array_elements('[1]') ${name}`);
    const dear = `SELECT count(*) FROM ${many.join(', ')}`;
    const found = await recorder.record(() => recorder.client.query(dear));
    expect(compiled(found)).toHaveLength(1);
    expect(found[0]).toMatchObject({ isCompiled: hasCompiler, mayCompile: true });
  });
});
