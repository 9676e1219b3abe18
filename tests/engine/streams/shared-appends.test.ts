/**
 * Appends to different streams that are made together: they share statements, each gets its own answer, and one that is
 * refused, repeated, too large or locked affects no other.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import { LIMITS } from '../../../src/contract/limits.ts';
import type { FrameRequest } from '../../../src/contract/streams.ts';
import type { PoolLike } from '../../../src/engine/database/database.ts';
import { workerPort, type Claim, type WorkerPort } from '../../../src/protocol/index.ts';
import { newKind, useBench } from '../../conformance/open.ts';
import { uuidOf } from '../../worker/crew.ts';

const bench = useBench();
const clients: pg.Client[] = [];
const MANY = 50;

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end()));
});

/** A writer that notes the statements that append. */
async function writer(): Promise<{ port: WorkerPort; statements: string[] }> {
  const pool = new pg.Pool({ connectionString: bench.database.url, max: 10 });
  const statements: string[] = [];
  const noting: PoolLike = {
    query(config) {
      statements.push(...(config.text.match(/ff_append_(?:frames?|streams)(?=\()/g) ?? []));
      return pool.query(config as pg.QueryConfig);
    },
  };
  const connection = await bench.another({ databaseUrl: undefined, pool: noting, listen: 'off' } as never);
  onTestFinished(async () => {
    await connection.close();
    await pool.end();
  });
  return { port: workerPort(connection), statements };
}

async function running(count: number): Promise<Claim[]> {
  const kind = newKind();
  for (let n = 0; n < count; n += 1) await bench.submit({ kind });
  return bench.claim({ kinds: [kind], limit: count });
}

async function payloadsOf({ executionId }: Claim): Promise<unknown[]> {
  const { frames } = await bench.engine.streams.read(executionId);
  return frames.map((frame) => frame.payload);
}

const says = (payload: string): FrameRequest => ({ payload });
const live = (payload: string): FrameRequest => ({ payload, mode: 'best_effort' });
const patch = (payload: Record<string, string>): FrameRequest => ({ payload, mode: 'summary' });

describe('appends made together', () => {
  it('share statements, also those that create their streams', async () => {
    const { port, statements } = await writer();
    const claims = await running(MANY);
    for (const text of ['first', 'second']) {
      const answers = await Promise.all(claims.map((claim) => port.appendFrames(claim, [says(text)])));
      expect(answers.map((answer) => answer.outcome)).toEqual(claims.map(() => 'appended'));
    }
    expect(statements.length).toBeLessThanOrEqual(6);
    for (const claim of claims) expect(await payloadsOf(claim)).toEqual(['first', 'second']);
  });

  it('leave in two statements when they are many, and in one when they are few', async () => {
    const { port, statements } = await writer();
    const claims = await running(MANY);
    const together = (some: Claim[]) =>
      Promise.all(some.map((claim) => port.appendFrames(claim, [says('x')])));
    await together(claims);
    expect(statements.splice(0)).toEqual(['ff_append_streams', 'ff_append_streams']);
    await together(claims.slice(0, 20));
    expect(statements).toEqual(['ff_append_streams']);
  });

  it('get the ids, counts and versions of their own stream', async () => {
    const claims = await running(4);
    await bench.port.appendFrames(claims[1]!, [says('before'), patch({ a: '1' })]);
    const answers = await Promise.all([
      bench.port.appendFrames(claims[0]!, [says('ab'), says('c')]),
      bench.port.appendFrames(claims[1]!, [patch({ b: '2' }), says('x'), patch({ c: '3' })]),
      bench.port.appendFrames(claims[2]!, [says('a'), live('b')]),
      bench.port.appendFrames(claims[3]!, [live('l')]),
    ]);
    expect(answers).toMatchObject([
      { frameCount: 2, totalBytes: 3, summaryVersion: null },
      { frameCount: 5, summaryVersion: 3 },
      { frameCount: 2, totalBytes: 2 },
      { frameCount: 1, totalBytes: 1 },
    ]);
    expect(await bench.engine.streams.readSummary(claims[1]!.executionId)).toMatchObject({
      document: { a: '1', b: '2', c: '3' },
      version: 3,
    });
    const { frames } = await bench.engine.streams.read(claims[1]!.executionId);
    expect(frames.map((frame) => frame.summaryVersion)).toEqual([null, 1, 2, null, 3]);
  });

  it('are refused and repeated one by one', async () => {
    const [good, ended, repeated, large, last] = await running(5);
    await bench.port.complete(ended!, null);
    const appendId = randomUUID();
    const first = await bench.port.appendFrames(repeated!, [says('once')], { appendId });
    const fill = Object.fromEntries(
      Array.from({ length: 20 }, (_, n) => [`k${n}`, 'x'.repeat(LIMITS.frameBytes - 100)]),
    );
    const patches = Object.entries(fill).map(([key, value]) => patch({ [key]: value }));
    const told = await Promise.allSettled([
      bench.port.appendFrames(good!, [says('a')]),
      bench.port.appendFrames(ended!, [says('late')]),
      bench.port.appendFrames(repeated!, [says('once')], { appendId }),
      bench.port.appendFrames(large!, patches),
      bench.port.appendFrames(last!, [patch({ a: '1' })], { bestEffort: { floor: 7 } }),
    ]);
    expect(
      told.map((one) => (one.status === 'fulfilled' ? one.value : (one.reason as { code: string }).code)),
    ).toMatchObject([
      { outcome: 'appended' },
      { outcome: 'not_active' },
      first,
      'payload_too_large',
      { outcome: 'appended', summaryVersion: 1 },
    ]);
    expect(await payloadsOf(large!)).toEqual([]);
    expect(await payloadsOf(repeated!)).toEqual(['once']);
  });

  it('do not wait for one whose execution another transaction has locked', async () => {
    const claims = await running(4);
    const client = await bench.database.connect();
    clients.push(client);
    await client.query('BEGIN');
    await client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [
      uuidOf(claims[1]!.executionId),
    ]);
    const answers = claims.map((claim) => bench.port.appendFrames(claim, [says('a')]));
    const behind = bench.port.appendFrames(claims[1]!, [says('b')]);
    const others = await Promise.all(answers.filter((_, n) => n !== 1));
    expect(others.every(({ outcome }) => outcome === 'appended')).toBe(true);
    await client.query('COMMIT');
    expect(await answers[1]).toMatchObject({ outcome: 'appended' });
    expect(await behind).toMatchObject({ outcome: 'appended' });
    expect(await payloadsOf(claims[1]!)).toEqual(['a', 'b']);
  });
});
