/**
 * Runs once around the whole test run: one throw-away Postgres (or the server DATABASE_URL names) with two migrated
 * template databases that test files copy. Durability is off because its data does not outlive the run; a test about
 * surviving a crash starts its own server.
 */
import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import type { TestProject } from 'vitest/node';
import { startEmbedded } from '../../src/embedded/index.ts';
import { migrate } from '../../src/engine/database/migrations/migrate.ts';
import { createTestDatabase, type TestDatabase } from '../../src/testing/test-database.ts';

export interface TestServer {
  /** Connection string of a superuser, to the maintenance database. */
  url: string;
  /** Process id and directory of the throw-away server; null when the server is external. */
  pid: number | null;
  dataDir: string | null;
  /** Migrated, with the movable clock and the assertions. */
  template: string;
  /** Migrated as production is: the database's clock, no assertions. */
  plainTemplate: string;
}

declare module 'vitest' {
  export interface ProvidedContext {
    testServer: TestServer;
  }
}

type Server = Pick<TestServer, 'url' | 'pid' | 'dataDir'> & { stop: () => Promise<void> };

const SETTINGS = {
  fsync: 'off',
  // Page images after a checkpoint would make the counted WAL depend on when one happens.
  full_page_writes: 'off',
  max_connections: '200',
  shared_buffers: '128MB',
  deadlock_timeout: '200ms',
};
const EVERYBODY_MAY_ENTER = 0o755;
/** A server told to go needs a moment, during which it may still create files. */
const REMOVED = { recursive: true, force: true, maxRetries: 20, retryDelay: 50 };

const cleanups: (() => Promise<void>)[] = [];

export async function setup(project: TestProject): Promise<void> {
  try {
    const { stop, ...server } = await openServer();
    cleanups.push(stop);
    // On a shared server, two concurrent runs must not collide.
    const suffix = server.pid === null ? `_${randomUUID().slice(0, 8)}` : '';
    const template = `ff_template${suffix}`;
    const plainTemplate = `ff_template_plain${suffix}`;
    await leaveBehind(await createTestDatabase({ serverUrl: server.url, name: template }));
    const plain = await createTestDatabase({
      serverUrl: server.url,
      name: plainTemplate,
      template: 'template1',
    });
    await migrate({ databaseUrl: plain.url });
    await leaveBehind(plain);
    project.provide('testServer', { ...server, template, plainTemplate });
  } catch (error) {
    await teardown();
    throw error;
  }
}

export async function teardown(): Promise<void> {
  for (const cleanUp of cleanups.splice(0).toReversed()) await cleanUp();
}

/** A template must have no connections; it is dropped when the run ends. */
async function leaveBehind(database: TestDatabase): Promise<void> {
  cleanups.push(() => database.drop());
  const client = new pg.Client({ connectionString: database.url });
  await client.connect();
  await client.query('VACUUM ANALYZE');
  await client.end();
}

async function openServer(): Promise<Server> {
  const url = process.env['DATABASE_URL'];
  if (url !== undefined && url !== '') return { url, pid: null, dataDir: null, stop: async () => undefined };
  const parent = await mkdtemp(join(tmpdir(), 'flowfabric-tests-'));
  const remove = () => rm(parent, REMOVED);
  try {
    // Run by root, the server drops to another account, which must be able to enter its directory.
    await chmod(parent, EVERYBODY_MAY_ENTER);
    const server = await startEmbedded({
      dataDir: join(parent, 'postgres'),
      binaries: process.env['FLOWFABRIC_TEST_BINARIES'] ?? 'auto',
      settings: SETTINGS,
    });
    const leave = onExit(() => {
      process.kill(server.pid, 'SIGQUIT');
      rmSync(parent, REMOVED);
    });
    const stop = async () => {
      leave();
      await server.stop('immediate');
      await remove();
    };
    return { url: server.url, pid: server.pid, dataDir: server.dataDir, stop };
  } catch (error) {
    await remove();
    throw error;
  }
}

/**
 * What is done when the process ends without a teardown: a signal is answered with an exit that awaits nothing, while the server, in a
 * process group of its own, would run on. Returns what calls it off.
 */
function onExit(cleanUp: () => void): () => void {
  const hangUp = () => process.exit();
  process.once('exit', cleanUp);
  process.once('SIGHUP', hangUp);
  return () => {
    process.off('exit', cleanUp);
    process.off('SIGHUP', hangUp);
  };
}
