/**
 * Two servers for tests of reading beside the primary: a primary, and a streaming standby that began as a copy of its
 * files. The copy is made while the primary is stopped, so that no other program than the server itself is needed.
 */
import { execFile } from 'node:child_process';
import { appendFile, chmod, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { expect } from 'vitest';
import { startEmbedded, type EmbeddedServer } from '../../src/embedded/index.ts';
import { migrate } from '../../src/engine/database/migrations/migrate.ts';
import { patiently } from '../setup/patience.ts';

const copy = promisify(execFile);
const SOON = { timeout: patiently(30_000), interval: 20 };
/** Both are thrown away. */
const SETTINGS = { fsync: 'off' };

export interface ServerPair {
  primary: EmbeddedServer;
  standby: EmbeddedServer;
  /** Resolves when the standby has everything that was committed on the primary before the call. */
  caughtUp(): Promise<void>;
  onPrimary(sql: string): Promise<Record<string, unknown>[]>;
  onStandby(sql: string): Promise<Record<string, unknown>[]>;
  stop(): Promise<void>;
}

export async function startPair(): Promise<ServerPair> {
  const parent = await mkdtemp(join(tmpdir(), 'flowfabric-standby-'));
  // Run by root, the servers drop to another account, which must be able to enter their directories.
  await chmod(parent, 0o755);
  const start = (name: string) =>
    startEmbedded({
      dataDir: join(parent, name),
      binaries: process.env['FLOWFABRIC_TEST_BINARIES'] ?? 'auto',
      settings: SETTINGS,
    });
  const first = await start('primary');
  await migrate({ databaseUrl: first.url });
  await first.stop();
  await mkdir(join(parent, 'standby'), { mode: 0o755 });
  for (const name of ['pgdata', 'password'])
    await copy('cp', ['-a', join(first.dataDir, name), join(parent, 'standby', name)]);
  const primary = await start('primary');
  await follow(join(parent, 'standby', 'pgdata'), new URL(primary.url));
  const standby = await start('standby');
  const ask = async (server: EmbeddedServer, sql: string) => {
    const client = new pg.Client({ connectionString: server.url });
    await client.connect();
    return client.query<Record<string, unknown>>(sql).finally(() => client.end());
  };
  const onPrimary = async (sql: string) => (await ask(primary, sql)).rows;
  const onStandby = async (sql: string) => (await ask(standby, sql)).rows;
  return {
    primary,
    standby,
    onPrimary,
    onStandby,
    async caughtUp() {
      const [at] = await onPrimary('SELECT pg_current_wal_lsn()::text AS lsn');
      const behind = `SELECT pg_last_wal_replay_lsn() >= '${String(at!['lsn'])}' AS done`;
      await expect.poll(() => onStandby(behind), SOON).toEqual([{ done: true }]);
    },
    async stop() {
      await standby.stop('immediate');
      await primary.stop('immediate');
      await rm(parent, { recursive: true, force: true, maxRetries: 3 });
    },
  };
}

/** Makes a copy of a server's files start as its standby. */
async function follow(pgdata: string, primary: URL): Promise<void> {
  const { hostname, port, username, password } = primary;
  const from = `host=${hostname} port=${port} user=${username} password=${password}`;
  await appendFile(join(pgdata, 'postgresql.auto.conf'), `primary_conninfo = '${from}'\n`);
  await writeFile(join(pgdata, 'standby.signal'), '');
}
