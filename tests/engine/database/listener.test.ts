/**
 * The listening connection when it breaks: closed by the server, or silently dead. It reconnects by itself, reports
 * that, so that everything polls once, and receives hints from then on.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { hintChannel } from '../../../src/engine/database/names.ts';
import {
  LISTENER_HEARTBEAT,
  listenForHints,
  type Heartbeat,
  type Listener,
} from '../../../src/engine/database/notify.ts';
import { startFaultProxy, type FaultProxy } from '../../../src/testing/fault-proxy.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase } from '../../setup/database.ts';
import { patiently } from '../../setup/patience.ts';

const SOON = { timeout: patiently(20_000), interval: 15 };
const OFTEN: Heartbeat = { everyMs: 20, answerMs: 2_000 };
/** Longer than any test runs. */
const NEVER: Heartbeat = { everyMs: 3_600_000, answerMs: 3_600_000 };

let database: TestDatabase;
const listeners: Listener[] = [];
const proxies: FaultProxy[] = [];

beforeAll(async () => {
  database = await plainDatabase();
});
afterEach(async () => {
  await Promise.all(listeners.splice(0).map((listener) => listener.close()));
  await Promise.all(proxies.splice(0).map((proxy) => proxy.close()));
});
afterAll(() => database.drop());

async function newProxy(): Promise<FaultProxy> {
  const proxy = await startFaultProxy({ targetPort: Number(new URL(database.url).port) });
  proxies.push(proxy);
  return proxy;
}

interface Ear {
  /** How often the channel was opened. */
  opened: number;
  heard: string[];
  listener: Listener;
}

/** Listens, and returns once the channel is open. */
async function listen(url: string, heartbeat?: Heartbeat): Promise<Ear> {
  const ear: Omit<Ear, 'listener'> = { opened: 0, heard: [] };
  const events = { hint: (payload: string) => void ear.heard.push(payload), open: () => void ear.opened++ };
  const listener = listenForHints(url, database.schema, events, heartbeat);
  listeners.push(listener);
  await expect.poll(() => ear.opened, SOON).toBe(1);
  return Object.assign(ear, { listener });
}

async function say(payload: string): Promise<void> {
  await database.query('SELECT pg_notify($1, $2)', [hintChannel(database.schema), payload]);
}

interface Backend {
  pid: number;
  /** The start of its last statement. */
  at: string;
}

async function backends(): Promise<Backend[]> {
  const found = await database.query<Backend>(
    `SELECT pid, query_start::text AS at FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'flowfabric listener' ORDER BY backend_start`,
  );
  return found.rows;
}

describe('a healthy connection', () => {
  test('is checked repeatedly and stays the same', async () => {
    const ear = await listen(database.url, OFTEN);
    const [first] = await backends();
    let last = first!.at;
    for (let beats = 0; beats < 3; beats += 1) {
      await expect.poll(async () => (await backends())[0]!.at, SOON).not.toBe(last);
      last = (await backends())[0]!.at;
    }
    await say('between beats');
    await expect.poll(() => ear.heard, SOON).toEqual(['between beats']);
    expect((await backends()).map(({ pid }) => pid)).toEqual([first!.pid]);
    expect(ear.opened).toBe(1);
  });

  test('is gone from the server once the listener is closed', async () => {
    const ear = await listen(database.url);
    expect(await backends()).toHaveLength(1);
    await ear.listener.close();
    await expect.poll(backends, SOON).toEqual([]);
  });
});

describe('a connection that the server terminates', () => {
  test('is reopened each time, and receives hints', async () => {
    const ear = await listen(database.url);
    for (let round = 1; round <= 3; round += 1) {
      const [backend] = await backends();
      await database.query('SELECT pg_terminate_backend($1)', [backend!.pid]);
      await expect.poll(() => ear.opened, SOON).toBe(1 + round);
      await say(`round ${round}`);
      await expect.poll(() => ear.heard.at(-1), SOON).toBe(`round ${round}`);
    }
    expect(await backends()).toHaveLength(1);
  });
});

describe('a connection that died silently', () => {
  test('is noticed within ten seconds by default', () => {
    expect(LISTENER_HEARTBEAT.everyMs + LISTENER_HEARTBEAT.answerMs).toBeLessThan(10_000);
  });

  test('is noticed by the heartbeat, and by nothing else', async () => {
    const [beating, silent] = [await newProxy(), await newProxy()];
    const [withBeat, without] = [
      await listen(beating.url(database.url), { everyMs: 20, answerMs: 500 }),
      await listen(silent.url(database.url), NEVER),
    ];
    const dead = await backends();
    beating.stall();
    silent.stall();
    // A second connection attempt shows that the first connection was abandoned.
    await expect.poll(() => beating.connectionCount, SOON).toBeGreaterThanOrEqual(2);
    for (const { pid } of dead) await database.query('SELECT pg_terminate_backend($1)', [pid]);
    await expect
      .poll(async () => (await backends()).filter(({ pid }) => dead.some((one) => one.pid === pid)), SOON)
      .toEqual([]);
    await say('nobody hears this');
    beating.resume();
    await expect.poll(() => withBeat.opened, SOON).toBe(2);
    await say('after');
    await expect.poll(() => withBeat.heard, SOON).toEqual(['after']);
    expect({ opened: without.opened, heard: without.heard, tries: silent.connectionCount }).toEqual({
      opened: 1,
      heard: [],
      tries: 1,
    });
    silent.resume();
    await expect.poll(() => without.opened, SOON).toBe(2);
  });

  test('is noticed every time it happens', async () => {
    const proxy = await newProxy();
    const ear = await listen(proxy.url(database.url), { everyMs: 20, answerMs: 500 });
    for (let round = 1; round <= 3; round += 1) {
      const tries = proxy.connectionCount;
      proxy.stall();
      await expect.poll(() => proxy.connectionCount, SOON).toBeGreaterThan(tries);
      proxy.resume();
      await expect.poll(() => ear.opened, SOON).toBe(1 + round);
      // Whatever the old connection still delivers is ignored.
      await say(`round ${round}`);
      await expect.poll(() => ear.heard.at(-1), SOON).toBe(`round ${round}`);
      await expect.poll(async () => (await backends()).length, SOON).toBe(1);
    }
    expect(ear.heard).toEqual(['round 1', 'round 2', 'round 3']);
  });

  test.each([
    ['with its default heartbeat', undefined],
    ['during a heartbeat', OFTEN],
    ['without a heartbeat', NEVER],
  ])('does not delay the closing of a listener, %s', async (_, heartbeat) => {
    const proxy = await newProxy();
    const ear = await listen(proxy.url(database.url), heartbeat);
    proxy.stall();
    await ear.listener.close();
    expect(ear.opened).toBe(1);
  });

  test('does not delay the closing of a listener that is connecting', async () => {
    const proxy = await newProxy();
    proxy.stall();
    const events = { hint: () => undefined, open: () => expect.unreachable('it never connected') };
    const listener = listenForHints(proxy.url(database.url), database.schema, events);
    await expect.poll(() => proxy.connectionCount, SOON).toBe(1);
    await listener.close();
    await listener.close();
  });
});

test('an abandoned listener does not reconnect', async () => {
  const proxy = await newProxy();
  const events: string[] = [];
  const listener = listenForHints(proxy.url(database.url), database.schema, {
    hint: () => undefined,
    open: () => void events.push('open'),
    lost: () => void events.push('lost, to be opened again'),
  });
  listeners.push(listener);
  await expect.poll(() => events, SOON).toEqual(['open']);
  listener.abandon();
  await expect.poll(() => proxy.connectionCount, SOON).toBe(0);
  expect(events).toEqual(['open']);
});

test('closing ends the connection even while it is being opened', async () => {
  const listener = listenForHints(database.url, database.schema, {
    hint: () => undefined,
    open: () => undefined,
  });
  await listener.close();
  await expect.poll(backends, SOON).toEqual([]);
});
