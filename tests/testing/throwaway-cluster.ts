/**
 * A Postgres cluster for one test file: made in a temporary directory, listening on 127.0.0.1 only, gone when
 * stopped. Durability is off because nothing in it outlives the test.
 * Schema and rows are the business of the test that uses it.
 */

import { execFile } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

const BIN_DIR = process.env['FLOWFABRIC_TEST_PG_BIN'] ?? '/usr/lib/postgresql/15/bin';
const SETTINGS = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  fsync: 'off',
  max_connections: '50',
  shared_buffers: '16MB',
};

const run = promisify(execFile);

export interface ThrowawayCluster {
  port: number;
  url: string;
  stop(): Promise<void>;
}

export async function startThrowawayCluster(): Promise<ThrowawayCluster> {
  const dir = await mkdtemp(join(tmpdir(), 'throwaway-cluster-'));
  const data = join(dir, 'data');
  const removeDir = () => rm(dir, { recursive: true, force: true });
  try {
    if (isRoot()) await run('chown', ['postgres', dir]);
    await asServerUser('initdb', ['-D', data, '-U', 'postgres', '-A', 'trust', '-E', 'UTF8', '--no-sync']);
    const port = await freePort();
    const settings = Object.entries({ ...SETTINGS, port }).map(([name, value]) => `-c ${name}='${value}'`);
    await asServerUser('pg_ctl', [
      'start',
      '-w',
      '-D',
      data,
      '-l',
      join(dir, 'log'),
      '-o',
      settings.join(' '),
    ]);
    const stop = async () => {
      await asServerUser('pg_ctl', ['stop', '-w', '-m', 'immediate', '-D', data]);
      await removeDir();
    };
    return { port, url: `postgres://postgres@127.0.0.1:${port}/postgres`, stop };
  } catch (error) {
    await removeDir();
    throw error;
  }
}

function isRoot(): boolean {
  return process.getuid?.() === 0;
}

/** Postgres refuses to run as root. */
async function asServerUser(program: string, args: string[]): Promise<void> {
  const path = join(BIN_DIR, program);
  const options = { cwd: tmpdir() };
  if (isRoot()) await run('runuser', ['-u', 'postgres', '--', path, ...args], options);
  else await run(path, args, options);
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer().once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}
