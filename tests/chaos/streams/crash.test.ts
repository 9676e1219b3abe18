/**
 * Postgres crashes while a stream is written and followed, on a separate server that syncs to disk as in production:
 * acknowledged durable frames are there, and every follower reads each of them once.
 */
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { connect } from '../../../src/connect/connect.ts';
import type { Connection } from '../../../src/connect/connection.ts';
import type { Claim } from '../../../src/contract/protocol.ts';
import { isEngineError } from '../../../src/contract/errors.ts';
import type { StreamItem } from '../../../src/contract/streams.ts';
import { startEmbedded } from '../../../src/embedded/index.ts';
import { migrate } from '../../../src/engine/database/migrations/migrate.ts';
import { newKind, SOON } from '../../worker/crew.ts';
import { workerPort } from '../../../src/connect/port.ts';
import { patiently } from '../../setup/patience.ts';

const LEASE_MS = 600_000;
const LIMIT_MS = patiently(60_000);

async function claimed(engine: Connection): Promise<Claim> {
  const kind = newKind();
  await engine.executions.submit({ kind });
  const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: [kind], limit: 1, leaseMs: LEASE_MS };
  return (await workerPort(engine).claim(request)).claims[0]!;
}

/** Payloads of the frames a tail yields, until it ends. */
async function follow(items: AsyncIterable<StreamItem>, seen: string[]): Promise<void> {
  for await (const item of items) if (item.type === 'frame') seen.push(item.frame.payload as string);
}

test('a Postgres crash loses no frame, and readers get each once', { timeout: LIMIT_MS }, async () => {
  const parent = await mkdtemp(join(tmpdir(), 'flowfabric-stream-'));
  // Run by root, the server drops to another account, which must be able to enter its directory.
  await chmod(parent, 0o755);
  let server = await startEmbedded({ dataDir: join(parent, 'postgres') });
  onTestFinished(async () => {
    await server.stop('immediate');
    await rm(parent, { recursive: true, force: true, maxRetries: 3 });
  });
  await migrate({ databaseUrl: server.url });
  const engine = await connect({ databaseUrl: server.url, poolSize: 4, reconcile: 'off', defaultPolicy: {} });
  try {
    const claim = await claimed(engine);
    const seen: string[] = [];
    const following = follow(
      engine.streams.tail(claim.executionId, { visibility: 'exclude_best_effort' }),
      seen,
    );
    const acknowledged: string[] = [];
    const write = async (payload: string, mode: 'durable' | 'best_effort'): Promise<void> => {
      const outcome = await workerPort(engine).appendFrames(claim, [{ payload, mode }]);
      expect(outcome.outcome).toBe('appended');
      if (mode === 'durable') acknowledged.push(payload);
    };
    let n = 0;
    const writing = async (until: () => boolean): Promise<void> => {
      for (; !until(); n += 1) {
        await write(`live ${n}`, 'best_effort').catch(ignoreOutage);
        await write(`${n}`, 'durable').catch(ignoreOutage);
      }
    };
    let isBack = false;
    const all = writing(() => isBack);
    await expect.poll(() => acknowledged.length, SOON).toBeGreaterThan(50);
    await server.stop('immediate');
    server = await startEmbedded({ dataDir: server.dataDir });
    const before = acknowledged.length;
    await expect
      .poll(() => acknowledged.length, { ...SOON, timeout: patiently(40_000) })
      .toBeGreaterThan(before + 20);
    isBack = true;
    await all;
    await workerPort(engine).complete(claim);
    await following;
    expect(seen.filter((payload) => acknowledged.includes(payload))).toEqual(acknowledged);
    expect(new Set(seen).size).toBe(seen.length);
  } finally {
    await engine.close();
  }
});

function ignoreOutage(error: unknown): void {
  if (!isEngineError(error) || error.code !== 'unavailable') throw error;
}
