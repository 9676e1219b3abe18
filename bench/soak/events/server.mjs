/**
 * The server of a soak: private, synced to disk as in production, and removed afterwards. A crash is an immediate stop,
 * after which the next start recovers from the WAL.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { startEmbedded } from '../../../dist/embedded/index.js';

const SETTINGS = {
  fsync: 'on',
  synchronous_commit: 'on',
  max_connections: '200',
  max_prepared_transactions: '16',
  max_wal_size: '4GB',
};
// Run by root, the server drops to another account, which must be able to enter its directory.
const EVERYBODY_MAY_ENTER = 0o755;

/** @param {string} binaries which Postgres: `auto`, `system`, `packaged` or a directory with its programs */
export async function openServer(binaries) {
  const parent = await mkdtemp(join(tmpdir(), 'flowfabric-soak-'));
  const dataDir = join(parent, 'postgres');
  const start = () => startEmbedded({ dataDir, binaries, settings: SETTINGS });
  const remove = () => rm(parent, { recursive: true, force: true, maxRetries: 3 });
  let server;
  let restarting;
  let isOver = false;
  try {
    await chmod(parent, EVERYBODY_MAY_ENTER);
    server = await start();
  } catch (error) {
    await remove();
    throw error;
  }
  const restart = async () => {
    await server.stop('immediate');
    if (!isOver) server = await start();
  };
  return {
    // A restart keeps the port, so this address stays valid.
    url: server.url,
    version: server.version,
    port: server.port,
    async crash() {
      restarting = restart();
      await restarting;
    },
    async stop() {
      isOver = true;
      await restarting?.catch(() => undefined);
      await server.stop('immediate');
      await remove();
    },
  };
}
