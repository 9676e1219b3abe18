/**
 * The stores the contenders run on: one Postgres with its default durability, and a Redis if one is installed. Both are
 * in a directory that is removed after the run. A server given by its address is used and left unchanged.
 */
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { createServer, connect as connectSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import pg from 'pg';
import { startEmbedded } from '../../dist/embedded/index.js';

const SETTINGS = {
  fsync: 'on',
  synchronous_commit: 'on',
  shared_buffers: '1GB',
  max_wal_size: '4GB',
  max_connections: '200',
};
/** The settings written into the results, as the server reports them. */
const REPORTED = [...Object.keys(SETTINGS), 'full_page_writes', 'autovacuum', 'wal_level', 'jit', 'work_mem'];
const EVERYBODY_MAY_ENTER = 0o755;
const REDIS_WAIT_MS = 5_000;
const REDIS_STOP_MS = 5_000;
const POLL_MS = 20;

/**
 * @typedef {object} PostgresServer
 * @property {string} url
 * @property {number | null} pid
 * @property {string | null} binDir
 * @property {string} version
 * @property {Record<string, string>} settings
 * @property {() => Promise<void>} stop
 */

/** @returns {Promise<PostgresServer>} */
export async function openPostgres({ url, binaries }) {
  if (url !== null)
    return { url, pid: null, binDir: null, stop: async () => undefined, ...(await factsOf(url)) };
  const parent = await mkdtemp(join(tmpdir(), 'flowfabric-bench-'));
  const remove = () => rm(parent, { recursive: true, force: true });
  try {
    // Run by root, the server drops to another account, which must be able to enter its directory.
    await chmod(parent, EVERYBODY_MAY_ENTER);
    const server = await startEmbedded({ dataDir: join(parent, 'postgres'), binaries, settings: SETTINGS });
    const stop = async () => {
      await server.stop('immediate');
      await remove();
    };
    const facts = await factsOf(server.url);
    return { url: server.url, pid: server.pid, binDir: server.binDir, stop, ...facts };
  } catch (error) {
    await remove();
    throw error;
  }
}

async function factsOf(url) {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const { rows } = await client.query(
      'SELECT name, current_setting(name) AS value FROM pg_settings WHERE name = ANY ($1)',
      [[...REPORTED, 'server_version']],
    );
    const { server_version: version, ...settings } = Object.fromEntries(
      rows.map((row) => [row.name, row.value]),
    );
    return { version, settings };
  } finally {
    await client.end();
  }
}

/** The version of the installed Redis, or undefined. */
export function redisVersion() {
  const answer = spawnSync('redis-server', ['--version'], { encoding: 'utf8' });
  return answer.status === 0 ? /v=(\S+)/.exec(answer.stdout)?.[1] : undefined;
}

/** Starts a separate Redis on loopback. */
export async function openRedis() {
  const directory = await mkdtemp(join(tmpdir(), 'flowfabric-bench-redis-'));
  const port = await freePort();
  const settings = { appendonly: 'yes', appendfsync: 'everysec', save: '' };
  const args = Object.entries({ ...settings, dir: directory, port, bind: '127.0.0.1' });
  const child = spawn(
    'redis-server',
    args.flatMap(([name, value]) => [`--${name}`, String(value)]),
    { stdio: 'ignore' },
  );
  const stop = async () => {
    child.kill('SIGTERM');
    if (child.exitCode === null) await Promise.race([once(child, 'exit'), delay(REDIS_STOP_MS)]);
    child.kill('SIGKILL');
    await rm(directory, { recursive: true, force: true });
  };
  try {
    await untilOpen(port);
  } catch (error) {
    await stop();
    throw error;
  }
  return { url: `redis://127.0.0.1:${port}`, version: redisVersion(), settings, stop };
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

async function untilOpen(port) {
  const deadline = Date.now() + REDIS_WAIT_MS;
  for (;;) {
    const socket = connectSocket(port, '127.0.0.1');
    try {
      await once(socket, 'connect');
      return;
    } catch (error) {
      if (Date.now() > deadline) throw error;
    } finally {
      socket.destroy();
    }
    await delay(POLL_MS);
  }
}
