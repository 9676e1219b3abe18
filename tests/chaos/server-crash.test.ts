/**
 * Postgres itself crashes under load, on a separate server that syncs to disk as in production: every acknowledged
 * submit ends exactly once.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connect } from '../../src/connect/connect.ts';
import type { Connection } from '../../src/connect/connection.ts';
import { isEngineError } from '../../src/contract/errors.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import { startEmbedded, type EmbeddedServer } from '../../src/embedded/index.ts';
import { migrate } from '../../src/engine/database/migrations/migrate.ts';
import { task } from '../../src/define/task.ts';
import { handle } from '../../src/define/handlers.ts';
import { startWorker } from '../../src/connect/worker.ts';
import type { Worker } from '../../src/worker/options.ts';
import { newKind, resultOf } from '../worker/crew.ts';
import { faultsOf } from './checker.ts';
import { patiently } from '../setup/patience.ts';

const CRASHES = 2;
const PER_CRASH = 150;
const RECOVERED = { timeout: patiently(40_000), interval: 25 };
const LIMIT_MS = patiently(60_000);

let parent: string;
let server: EmbeddedServer;

beforeAll(async () => {
  parent = await mkdtemp(join(tmpdir(), 'flowfabric-crash-'));
  // Run by root, the server drops to another account, which must be able to enter its directory.
  await chmod(parent, 0o755);
  server = await startEmbedded({ dataDir: join(parent, 'postgres') });
  await migrate({ databaseUrl: server.url });
}, LIMIT_MS);

afterAll(async () => {
  await server.stop('immediate');
  await rm(parent, { recursive: true, force: true, maxRetries: 3 });
}, LIMIT_MS);

/** Submits one after another until told to stop; keeps the acknowledged ids. */
async function submitting(
  engine: Connection,
  kind: string,
  acknowledged: ExecutionId[],
  stop: AbortSignal,
): Promise<void> {
  const policy = { retry: { maxRetries: 1_000, backoff: { type: 'fixed', delay: 10 } } } as const;
  while (!stop.aborted) {
    try {
      const submitted = await engine.executions.submit(
        [1, 2, 3].map((payload) => ({ kind, payload, policy })),
      );
      acknowledged.push(...submitted.map(({ executionId }) => executionId));
    } catch (error) {
      if (!isEngineError(error) || error.code !== 'unavailable') throw error;
    }
  }
}

test(
  'a Postgres crash loses nothing acknowledged, and nothing is done twice',
  { timeout: LIMIT_MS },
  async () => {
    const kind = newKind();
    const engines = await Promise.all([1, 2].map(() => connect({ databaseUrl: server.url, poolSize: 4 })));
    const workers: Worker[] = engines.map((engine) =>
      startWorker(engine, {
        log: 'silent',
        concurrency: 5,
        lease: 3_000,
        poll: 200,
        handlers: [handle(task<number>(kind), (input) => input * 2)],
      }),
    );
    const stop = new AbortController();
    const acknowledged: ExecutionId[] = [];
    const submitters = engines.map((engine) => submitting(engine, kind, acknowledged, stop.signal));
    try {
      for (let crash = 1; crash <= CRASHES; crash += 1) {
        const before = acknowledged.length;
        await expect.poll(() => acknowledged.length, RECOVERED).toBeGreaterThan(before + PER_CRASH);
        await server.stop('immediate');
        server = await startEmbedded({ dataDir: server.dataDir });
      }
      const after = acknowledged.length;
      await expect.poll(() => acknowledged.length, RECOVERED).toBeGreaterThan(after + PER_CRASH);
      stop.abort();
      await Promise.all(submitters);
      await expect.poll(() => faultsOf(server.url, kind), RECOVERED).toEqual([]);
      for (const id of acknowledged) expect(await resultOf(engines[0]!, id)).toBe('success');
      expect(new Set(acknowledged).size).toBe(acknowledged.length);
    } finally {
      stop.abort();
      await Promise.allSettled(submitters);
      await Promise.all(workers.map((worker) => worker.stop({ deadline: 0 })));
      await Promise.all(engines.map((engine) => engine.close()));
    }
  },
);
