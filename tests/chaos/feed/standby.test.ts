/**
 * The event feed read from a streaming standby: the same events at the same positions, cursors that are good on both
 * servers, nothing written, writes refused with the reason, and a promotion that readers survive.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { connect, type ConnectOptions } from '../../../src/connect/connect.ts';
import type { Connection } from '../../../src/connect/connection.ts';
import { startWorker } from '../../../src/connect/worker.ts';
import { handle } from '../../../src/define/handlers.ts';
import { task } from '../../../src/define/task.ts';
import { workerPort } from '../../../src/connect/port.ts';
import type { FeedEvent } from '../../../src/contract/events.ts';
import type { ExecutionId } from '../../../src/contract/ids.ts';
import type { Claim } from '../../../src/contract/protocol.ts';
import { migrate } from '../../../src/engine/database/migrations/migrate.ts';
import { take } from '../../conformance/feed/following.ts';
import { patiently } from '../../setup/patience.ts';
import { newKind } from '../../worker/crew.ts';
import { startPair, type ServerPair } from '../standby.ts';

const SOON = { timeout: patiently(30_000), interval: 20 };
const QUIET = { reconcile: 'off', listen: 'off' } as const;

let servers: ServerPair;
let primary: Connection;
let standby: Connection;
const opened: Connection[] = [];

beforeAll(async () => {
  servers = await startPair();
  primary = await open('primary', QUIET);
  standby = await open('standby', QUIET);
});

afterAll(async () => {
  await Promise.all(opened.map((connection) => connection.close()));
  await servers?.stop();
});

async function open(where: 'primary' | 'standby', options: ConnectOptions): Promise<Connection> {
  const connection = await connect({ databaseUrl: servers[where].url, poolSize: 4, ...options });
  opened.push(connection);
  return connection;
}

/** Runs executions to their end: two events each. */
async function finish(on: Connection, count: number): Promise<ExecutionId[]> {
  const kind = newKind();
  const submitted = await on.executions.submit(Array.from({ length: count }, () => ({ kind })));
  const port = workerPort(on);
  const request = { kinds: [kind], workerId: 'w', workerInstanceId: 'w-1', limit: count, leaseMs: 60_000 };
  await expect
    .poll(async () => {
      const { claims } = await port.claim(request);
      await Promise.all(claims.map((claim) => port.complete(claim)));
      return (await on.executions.describe(submitted.at(-1)!.executionId))?.state;
    }, SOON)
    .toBe('completed');
  return submitted.map(({ executionId }) => executionId);
}

/** Everything that has a position; on the primary everything gets one. */
async function allOf(on: Connection): Promise<FeedEvent[]> {
  const events: FeedEvent[] = [];
  for await (const event of await on.events.subscribe({ from: 'beginning', until: 'now' }))
    if (event.type !== 'disconnected') events.push(event);
  return events;
}

/** How often the standby has refused a statement because it would have written. */
async function refusals(): Promise<number> {
  const log = await readFile(join(servers.standby.dataDir, 'server.log'), 'utf8');
  return log.split('cannot execute').length - 1;
}

describe('reading the feed from a standby', () => {
  afterEach(async () => expect(await refusals()).toBe(0));

  it('returns what the primary stamped, at the same positions', async () => {
    await finish(primary, 300);
    const events = await allOf(primary);
    expect(events).toHaveLength(600);
    const subscription = await standby.events.subscribe({ from: 'beginning' });
    expect(await take(subscription, 600)).toEqual(events);
    await subscription.close();
  });

  it('follows: events arrive when somebody stamps them on the primary', async () => {
    const subscription = await standby.events.subscribe();
    const next = take(subscription, 4);
    const follower = await primary.events.subscribe();
    const seen = take(follower, 4);
    await finish(primary, 2);
    expect(await next).toEqual(await seen);
    await Promise.all([subscription.close(), follower.close()]);
  });

  it('follows many writers and rival stampers without a loss, a double or another order', async () => {
    const writers = await Promise.all([1, 2, 3].map(() => open('primary', QUIET)));
    const rounds = 5;
    const each = 40;
    const count = writers.length * rounds * each * 2;
    const rivals = await Promise.all(writers.map((writer) => writer.events.subscribe()));
    const subscription = await standby.events.subscribe();
    const next = take(subscription, count);
    const seen = Promise.all(rivals.map((rival) => take(rival, count)));
    const write = async (writer: Connection): Promise<void> => {
      for (let round = 0; round < rounds; round += 1) await finish(writer, each);
    };
    await Promise.all(writers.map(write));
    const events = await next;
    for (const others of await seen) expect(others).toEqual(events);
    expect((await allOf(primary)).slice(-count)).toEqual(events);
    await Promise.all([subscription, ...rivals].map((reader) => reader.close()));
  });

  it('gives no position to an event that has none, although it is there', async () => {
    const before = await allOf(primary);
    const ids = await finish(primary, 1);
    await servers.caughtUp();
    const uuid = ids[0]!.slice(ids[0]!.indexOf(':', 4) + 1);
    const kept = `SELECT count(*)::integer AS n FROM flowfabric.ff_execution WHERE execution_id = '${uuid}'`;
    expect(await servers.onStandby(kept)).toEqual([{ n: 1 }]);
    expect(await allOf(standby)).toEqual(before);
    const after = await allOf(primary);
    expect(after).toHaveLength(before.length + 2);
    await servers.caughtUp();
    expect(await allOf(standby)).toEqual(after);
  });

  it('continues with a cursor of the primary, and the primary with one of the standby', async () => {
    await finish(primary, 10);
    const events = await allOf(primary);
    await servers.caughtUp();
    const first = await primary.events.subscribe({ from: 'beginning' });
    const begun = await take(first, 5);
    const second = await standby.events.subscribe({ from: first.cursor });
    const continued = await take(second, 5);
    const third = await primary.events.subscribe({ from: second.cursor });
    const ended = await take(third, events.length - 10);
    expect([...begun, ...continued, ...ended]).toEqual(events);
    await Promise.all([first, second, third].map((subscription) => subscription.close()));
  });

  it('waits for the standby when a cursor is ahead of it', async () => {
    await servers.onStandby('SELECT pg_wal_replay_pause()');
    await expect
      .poll(() => servers.onStandby('SELECT pg_get_wal_replay_pause_state() AS state'), SOON)
      .toEqual([{ state: 'paused' }]);
    await finish(primary, 5);
    const cursor = (await allOf(primary)).at(-1)!.cursor;
    const subscription = await standby.events.subscribe({ from: cursor });
    const next = take(subscription, 2);
    const [id] = await finish(primary, 1);
    await allOf(primary);
    await servers.onStandby('SELECT pg_wal_replay_resume()');
    expect(await next).toMatchObject([
      { executionId: id, type: 'acquired' },
      { executionId: id, type: 'success' },
    ]);
    await subscription.close();
  });

  it('refuses a cursor whose events are no longer kept', async () => {
    await servers.onPrimary('UPDATE flowfabric.ff_sequencer SET floor_position = 3');
    await servers.caughtUp();
    const [event] = await allOf(standby);
    expect(event?.position).toBe(3n);
    const early = await primary.events.subscribe({ from: 'beginning' });
    await servers.onPrimary('UPDATE flowfabric.ff_sequencer SET floor_position = 5');
    await servers.caughtUp();
    await expect(standby.events.subscribe({ from: early.cursor })).rejects.toMatchObject({
      code: 'cursor_expired',
    });
    await early.close();
  });
});

describe('a standby', () => {
  it('serves other reads as well', async () => {
    const [id] = await finish(primary, 1);
    await servers.caughtUp();
    expect(await standby.executions.describe(id!)).toEqual(await primary.executions.describe(id!));
    expect(await standby.executions.wait(id!)).toMatchObject({ outcome: 'success' });
    expect(await standby.executions.explain(id!)).toMatchObject({ outcome: 'explained', executionId: id });
    const listed = await standby.executions.list({ filter: { states: ['completed'] } });
    expect(listed.executions.map(({ executionId }) => executionId)).toContain(id);
    expect(await standby.consumers.list()).toEqual(await primary.consumers.list());
    expect(await standby.lanes.list()).toEqual(await primary.lanes.list());
    expect(await standby.flows.list()).toEqual(await primary.flows.list());
  });

  it('lets a stream be followed to its end', async () => {
    const kind = newKind();
    const { executionId } = await primary.executions.submit({ kind });
    const port = workerPort(primary);
    const claims: Claim[] = [];
    const request = { kinds: [kind], workerId: 'w', workerInstanceId: 'w-1', limit: 1, leaseMs: 60_000 };
    await expect.poll(async () => claims.push(...(await port.claim(request)).claims), SOON).toBe(1);
    await servers.caughtUp();
    const items: string[] = [];
    const tail = (async () => {
      for await (const item of standby.streams.tail(executionId)) items.push(item.type);
    })();
    await port.appendFrames(claims[0]!, [{ payload: 'a' }, { payload: 'b' }]);
    await port.complete(claims[0]!);
    await tail;
    expect(items).toEqual(['frame', 'frame', 'closed']);
  });

  it('refuses to write, with the reason', async () => {
    const [id] = await finish(primary, 1);
    await servers.caughtUp();
    const refusal = {
      code: 'unavailable',
      sqlState: '25006',
      message: expect.stringMatching(/it is a standby.*connect to the primary/) as string,
    };
    await expect(standby.executions.submit({ kind: newKind() })).rejects.toMatchObject(refusal);
    await expect(standby.cancel(id!, { reason: 'why' })).rejects.toMatchObject(refusal);
    await expect(standby.executions.replay(id!, { reason: 'why' })).rejects.toMatchObject(refusal);
    await expect(open('standby', { retention: '1d' })).rejects.toMatchObject(refusal);
    await expect(migrate({ databaseUrl: servers.standby.url })).rejects.toMatchObject(refusal);
    expect(await refusals()).toBeGreaterThan(0);
  });

  it('gives a worker nothing to do, and the reason', async () => {
    const errors: unknown[] = [];
    const worker = startWorker(standby, {
      log: 'silent',
      handlers: [handle(task<null>(newKind()), () => null)],
      onError: (error) => errors.push(error),
    });
    await expect.poll(() => errors[0], SOON).toMatchObject({ code: 'unavailable', sqlState: '25006' });
    await worker.stop();
  });

  it('refuses a consumer, known or new, and names what to use instead', async () => {
    const known = await primary.events.consume('known', async () => undefined);
    await known.stop();
    await servers.caughtUp();
    for (const name of ['known', 'new'])
      await expect(standby.events.consume(name, async () => undefined)).rejects.toMatchObject({
        code: 'unavailable',
        message: expect.stringMatching(/is a standby.*events\.subscribe/) as string,
      });
  });

  it('is read by a connection with every default, which polls instead of listening', async () => {
    const usual = await open('standby', {});
    const subscription = await usual.events.subscribe();
    const next = take(subscription, 2);
    const [id] = await finish(primary, 1);
    await allOf(primary);
    expect(await next).toMatchObject([{ executionId: id }, { executionId: id }]);
    await subscription.close();
  });
});

it('a promoted standby gives out positions, and its readers go on with their cursors', async () => {
  const events = await allOf(primary);
  await servers.caughtUp();
  const last = events.at(-1)!;
  const subscription = await standby.events.subscribe({ from: events.at(-3)!.cursor });
  expect(await take(subscription, 2)).toEqual(events.slice(-2));
  const next = take(subscription, 2);
  expect(await servers.onStandby('SELECT pg_promote() AS done')).toEqual([{ done: true }]);
  const [id] = await finish(standby, 1);
  const fresh = await next;
  expect(fresh).toMatchObject([{ executionId: id }, { executionId: id }]);
  // What the old primary may have assigned beyond the copy is never assigned again.
  expect(fresh[0]!.position).toBeGreaterThan(last.position + 2n ** 32n);
  const again = await standby.events.subscribe({ from: last.cursor });
  expect(await take(again, 2)).toEqual(fresh);
  await Promise.all([subscription.close(), again.close()]);
});
