/**
 * Streams while their writers, connections or hosts break: every acknowledged frame is read once and in order by every
 * follower, whichever process is killed, cut off or has a wrong clock. A crashed Postgres is in crash.test.ts.
 */
import { existsSync } from 'node:fs';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import type { Claim } from '../../../src/contract/protocol.ts';
import type { StreamItem } from '../../../src/contract/streams.ts';
import { startFaultProxy } from '../../../src/testing/fault-proxy.ts';
import { AGAIN, newKind, SOON, useCrew } from '../../worker/crew.ts';
import { startStreamProcess } from './processes.ts';
import { workerPort } from '../../../src/connect/port.ts';

const LEASE_MS = 60_000;
const crew = useCrew();

async function claimOne(engine: Connection, kind: string): Promise<Claim> {
  const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: [kind], limit: 1, leaseMs: LEASE_MS };
  const { claims } = await workerPort(engine).claim(request);
  return claims[0]!;
}

async function running(engine: Connection): Promise<Claim> {
  const kind = newKind();
  await engine.executions.submit({ kind, policy: AGAIN });
  return claimOne(engine, kind);
}

/** Payloads of the frames a tail yields, until it ends. */
async function follow(items: AsyncIterable<StreamItem>, seen: string[] = []): Promise<string[]> {
  for await (const item of items) if (item.type === 'frame') seen.push(item.frame.payload as string);
  return seen;
}

const idOrder = (id: string): number[] => id.split('-').map(Number);
function isAscending(ids: readonly string[]): boolean {
  return ids.every((id, index) => {
    if (index === 0) return true;
    const [before, after] = [idOrder(ids[index - 1]!), idOrder(id)];
    return before[0]! <= after[0]! && before[1]! < after[1]!;
  });
}

test('50 readers miss nothing when a writer is killed midway and another takes over', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const { executionId } = await engine.executions.submit({ kind, policy: AGAIN });
  const { url } = crew.database;
  const readers = startStreamProcess({ url, name: 'readers', readers: 50, executionId });
  const doomed = startStreamProcess({ url, name: 'doomed', kind, frames: 1_000_000 });
  await expect.poll(() => readers.said.filter(({ begun }) => begun !== undefined).length, SOON).toBe(50);
  await expect.poll(() => doomed.acknowledged().length, SOON).toBeGreaterThan(50);
  await doomed.kill();
  await crew.database.moveClock(LEASE_MS + 1);
  // It notices when it begins.
  await crew.connect({ reconcile: 'on' });
  await expect.poll(async () => (await engine.executions.describe(executionId))?.attemptIndex, SOON).toBe(1);
  const heir = startStreamProcess({ url, name: 'heir', kind, frames: 50 });
  expect(await heir.ended()).toBe(0);
  expect(await readers.ended()).toBe(0);
  const digests = readers.said.flatMap(({ digest }) => digest ?? []);
  expect(digests).toHaveLength(50);
  expect(new Set(digests).size).toBe(1);
  const first = readers.said.flatMap(({ seen }) => seen ?? []);
  for (const [attempt, acknowledged] of [doomed.acknowledged(), heir.acknowledged()].entries()) {
    const own = first.filter((frame) => frame.attempt === attempt);
    // One more may have been written without anybody left to receive the response.
    expect(own.map(({ payload }) => payload).slice(0, acknowledged.length)).toEqual(acknowledged);
    expect(own.length - acknowledged.length).toBeLessThanOrEqual(1);
    expect(isAscending(own.map(({ id }) => id))).toBe(true);
  }
});

test('1,000 parked tails survive a cut of the listener', async () => {
  const proxy = await startFaultProxy({ targetPort: Number(new URL(crew.database.url).port) });
  onTestFinished(() => proxy.close());
  const direct = await crew.connect();
  const claims = await Promise.all(Array.from({ length: 20 }, () => running(direct)));
  const engine = await crew.connect({ databaseUrl: proxy.url(crew.database.url) });
  const seen: string[][] = [];
  const tails = Array.from({ length: 1_000 }, (_, n) => {
    const own: string[] = [];
    seen.push(own);
    return follow(engine.streams.tail(claims[n % claims.length]!.executionId), own);
  });
  const write = async (payload: string): Promise<void> => {
    await Promise.all(claims.map((claim) => workerPort(direct).appendFrames(claim, [{ payload }])));
  };
  const told = async (count: number): Promise<void> => {
    await expect.poll(() => seen.filter((own) => own.length >= count).length, SOON).toBe(1_000);
  };
  await write('before');
  await told(1);
  proxy.cutAll();
  await write('while cut');
  await told(2);
  proxy.cutAll();
  await write('after');
  await Promise.all(claims.map((claim) => workerPort(direct).complete(claim)));
  for (const own of await Promise.all(tails)) expect(own).toEqual(['before', 'while cut', 'after']);
});

test.each(['before', 'after'] as const)(
  'a connection cut %s the commit of an append loses and duplicates nothing',
  async (when) => {
    const proxy = await startFaultProxy({ targetPort: Number(new URL(crew.database.url).port) });
    onTestFinished(() => proxy.close());
    const engine = await crew.connect({ databaseUrl: proxy.url(crew.database.url), listen: 'off' });
    const claim = await running(engine);
    const struck = when === 'before' ? proxy.cutBefore('ff_append_frame') : proxy.cutAfter('ff_append_frame');
    const calls = ['a', 'b', 'c'].map((payload) => workerPort(engine).appendFrames(claim, [{ payload }]));
    const outcomes = await Promise.all(calls);
    await struck;
    const { frames } = await engine.streams.read(claim.executionId);
    expect(frames.map(({ payload }) => payload)).toEqual(['a', 'b', 'c']);
    expect(outcomes).toMatchObject(
      frames.map(({ id }) => ({ outcome: 'appended', firstId: id, lastId: id })),
    );
    await engine.close();
  },
);

const FAKETIME = [
  '/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1',
  '/usr/lib/aarch64-linux-gnu/faketime/libfaketime.so.1',
  '/usr/lib/faketime/libfaketime.so.1',
].find((path) => existsSync(path));

describe.skipIf(FAKETIME === undefined)('hosts whose clocks are two minutes apart', () => {
  const host = (offset: string): Record<string, string> => ({
    LD_PRELOAD: FAKETIME!,
    FAKETIME: offset,
    FAKETIME_DONT_FAKE_MONOTONIC: '1',
  });

  test('write to one stream, and followers miss nothing', async () => {
    const engine = await crew.connect();
    const claim = await running(engine);
    const lease = {
      executionId: claim.executionId,
      attemptIndex: claim.attemptIndex,
      leaseEpoch: claim.leaseEpoch,
    };
    const following = follow(engine.streams.tail(claim.executionId));
    const options = { url: crew.database.url, lease, frames: 60 };
    const ahead = startStreamProcess({ ...options, name: 'ahead' }, host('+60s'));
    const behind = startStreamProcess({ ...options, name: 'behind' }, host('-60s'));
    expect([await ahead.ended(), await behind.ended()]).toEqual([0, 0]);
    expect(ahead.said[0]!.host! - behind.said[0]!.host!).toBeGreaterThan(60_000);
    await workerPort(engine).complete(claim);
    const seen = await following;
    expect(seen).toHaveLength(120);
    for (const { name, written } of [
      { name: 'ahead', written: ahead.acknowledged() },
      { name: 'behind', written: behind.acknowledged() },
    ])
      expect(seen.filter((payload) => payload.startsWith(name))).toEqual(written);
    const { frames } = await engine.streams.read(claim.executionId);
    expect(isAscending(frames.map(({ id }) => id))).toBe(true);
  });
});
