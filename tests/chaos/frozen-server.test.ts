/**
 * A process can stop whatever state its database is in: frozen, cut off or gone. Everything that runs stops by its
 * deadline, and the process exits by itself while the database is still away.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import pg from 'pg';
import { startEmbedded, type EmbeddedServer } from '../../src/embedded/index.ts';
import { migrate } from '../../src/engine/database/migrations/migrate.ts';
import { startFaultProxy } from '../../src/testing/fault-proxy.ts';
import { patiently } from '../setup/patience.ts';

const FIXTURE = fileURLToPath(new URL('./fixtures/stopping-process.mjs', import.meta.url));
const LIMIT_MS = patiently(60_000);
const DEADLINE_MS = 300;

let parent: string;
let server: EmbeddedServer;

beforeAll(async () => {
  parent = await mkdtemp(join(tmpdir(), 'flowfabric-frozen-'));
  // Run by root, the server drops to another account, which must be able to enter its directory.
  await chmod(parent, 0o755);
  server = await startEmbedded({ dataDir: join(parent, 'postgres'), settings: { fsync: 'off' } });
}, LIMIT_MS);

afterAll(async () => {
  await server?.stop('immediate');
  await rm(parent, { recursive: true, force: true, maxRetries: 3 });
}, LIMIT_MS);

/** A separate, migrated database. */
async function database(name: string): Promise<string> {
  const client = new pg.Client({ connectionString: server.url });
  await client.connect();
  await client.query(`CREATE DATABASE ${name}`);
  await client.end();
  const url = new URL(server.url);
  url.pathname = `/${name}`;
  await migrate({ databaseUrl: url.href });
  return url.href;
}

interface Stopping {
  ready: Promise<void>;
  /** Tells it to stop; returns what it printed until it exited. */
  stop(): Promise<string[]>;
}

function start(url: string): Stopping {
  const child = spawn(process.execPath, [FIXTURE, JSON.stringify({ url, deadlineMs: DEADLINE_MS })], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await exited;
  });
  const said: string[] = [];
  const ready = new Promise<void>((resolve) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (line === 'ready') resolve();
      else said.push(line);
    });
  });
  return {
    ready,
    async stop() {
      child.kill('SIGTERM');
      await exited;
      return said;
    },
  };
}

/** The server with all its processes, to stop and continue. */
async function processes(): Promise<number[]> {
  const client = new pg.Client({ connectionString: server.url });
  await client.connect();
  const { rows } = await client.query<{ pid: number }>(
    'SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()',
  );
  await client.end();
  return [server.pid, ...rows.map(({ pid }) => pid)];
}

function signalAll(pids: readonly number[], signal: 'SIGSTOP' | 'SIGCONT'): void {
  for (const pid of pids)
    try {
      process.kill(pid, signal);
    } catch {
      // It has exited since it was listed.
    }
}

const EVERYTHING = ['subscription', 'tail', 'consumer', 'worker', 'connection'];

it('a process stops while its server is frozen', { timeout: LIMIT_MS }, async () => {
  const child = start(await database('frozen'));
  await child.ready;
  const pids = await processes();
  onTestFinished(() => signalAll(pids, 'SIGCONT'));
  signalAll(pids, 'SIGSTOP');
  expect(await child.stop()).toEqual(EVERYTHING);
});

it('a process stops while it is cut off from its server', { timeout: LIMIT_MS }, async () => {
  const proxy = await startFaultProxy({ targetPort: server.port });
  onTestFinished(() => proxy.close());
  const child = start(proxy.url(await database('cut_off')));
  await child.ready;
  proxy.stall();
  expect(await child.stop()).toEqual(EVERYTHING);
});

it('a process stops while its server is down', { timeout: LIMIT_MS }, async () => {
  const child = start(await database('down'));
  await child.ready;
  await server.stop('immediate');
  expect(await child.stop()).toEqual(EVERYTHING);
});
