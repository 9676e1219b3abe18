/**
 * The moments in which an event can slip between a notification and a poll: committed after the subscription began and
 * before its first poll, after a poll and before the wait, during the wait, and while it cannot be notified. Nothing is
 * written afterwards that could help, and the subscription gets it all the same.
 */
import { randomUUID } from 'node:crypto';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { connect } from '../../../src/connect/connect.ts';
import type { EventSubscription, FeedEvent } from '../../../src/index.ts';
import type { PoolLike } from '../../../src/engine/database/database.ts';
import { sequenceEvents } from '../../../src/engine/feed/events.sql.ts';
import { hintChannel } from '../../../src/engine/database/names.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase } from '../../setup/database.ts';
import type { Ask } from '../calls.ts';
import { BY_POSITION, storeOn } from './log-reader.ts';
import { patiently } from '../../setup/patience.ts';

const SOON = { timeout: patiently(20_000), interval: 15 };
const READ = /ff_read_events\(/;
const LOOK = /ff_sequence\(/;

let database: TestDatabase;
const through: Ask = (text, params) => database.query(text, params);

beforeAll(async () => {
  database = await plainDatabase();
});
afterAll(() => database?.drop());

/** Commits an event directly, without a notification. */
async function commitEvent(): Promise<string> {
  const name = `w-${randomUUID()}`;
  await database.query(
    `SELECT ff_tell('worker', '{registered}', ARRAY[$1], ARRAY[jsonb_build_object('worker_id', $1)])`,
    [name],
  );
  return name;
}

/** As another process would: it assigns the position, and all listeners are notified. */
async function commitAndStamp(): Promise<string> {
  const name = await commitEvent();
  await sequenceEvents(storeOn(through), 'wait');
  return name;
}

type Moment = 'before' | 'after';

interface WatchedPool extends PoolLike {
  /** The next matching statement is held at this moment until the work is done. */
  at(moment: Moment, statement: RegExp, work: () => Promise<unknown>): Promise<void>;
}

function watchedPool(): WatchedPool {
  const pool = new pg.Pool({ connectionString: database.url });
  pool.on('error', () => undefined);
  onTestFinished(() => pool.end());
  const traps: { moment: Moment; statement: RegExp; spring: () => Promise<void> }[] = [];
  const spring = async (moment: Moment, text: string): Promise<void> => {
    const index = traps.findIndex((trap) => trap.moment === moment && trap.statement.test(text));
    if (index >= 0) await traps.splice(index, 1)[0]!.spring();
  };
  return {
    async query(config) {
      await spring('before', config.text);
      const answer = await pool.query(config as pg.QueryConfig);
      await spring('after', config.text);
      return answer;
    },
    at: (moment, statement, work) =>
      new Promise((resolve, reject) => {
        traps.push({ moment, statement, spring: () => work().then(() => resolve(), reject) });
      }),
  };
}

interface Subscriber {
  pool: WatchedPool;
  subscription: EventSubscription<FeedEvent>;
}

/** Subscribed from now, and listening. */
async function subscribe(): Promise<Subscriber> {
  const pool = watchedPool();
  const engine = await connect({ pool, listenUrl: database.url, reconcile: 'off' });
  onTestFinished(() => engine.close());
  await expect.poll(async () => (await listeners()).length, SOON).toBe(1);
  return { pool, subscription: await engine.events.subscribe() };
}

async function listeners(): Promise<number[]> {
  const { rows } = await database.query(
    `SELECT pid FROM pg_stat_activity WHERE datname = current_database()
     AND application_name = 'flowfabric listener' AND query LIKE 'LISTEN%' AND state = 'idle'`,
  );
  return rows.map((row) => row['pid'] as number);
}

/** What comes next, as text. */
async function nextOf(subscription: EventSubscription<FeedEvent>): Promise<string> {
  const { value, done } = await subscription.next();
  if (done === true) return 'the end';
  if (value.type === 'disconnected') return 'disconnected';
  return 'workerInstanceId' in value ? value.workerInstanceId! : value.type;
}

const COMMITS = [
  ['and nobody tells', commitEvent],
  ['and another process gives it its position', commitAndStamp],
] as const;

describe.each(COMMITS)('an event is committed %s', (_, commit) => {
  test('after the subscription began and before it is read from', async () => {
    const { subscription } = await subscribe();
    const name = await commit();
    expect(await nextOf(subscription)).toBe(name);
  });

  test('right before the first poll', async () => {
    const { pool, subscription } = await subscribe();
    let name = '';
    const committed = pool.at('before', READ, async () => void (name = await commit()));
    const item = await nextOf(subscription);
    await committed;
    expect(item).toBe(name);
  });

  test('after a poll that found nothing and before the wait', async () => {
    const { pool, subscription } = await subscribe();
    let name = '';
    const committed = pool.at('after', READ, async () => void (name = await commit()));
    const item = await nextOf(subscription);
    await committed;
    expect(item).toBe(name);
  });

  test('while the subscription waits, between two polls for positions', async () => {
    const { pool, subscription } = await subscribe();
    const waits = pool.at('after', READ, async () => undefined);
    const item = nextOf(subscription);
    await waits;
    await pool.at('after', LOOK, async () => undefined);
    const name = await commit();
    expect(await item).toBe(name);
  });
});

describe('a subscription whose listener is killed', () => {
  test('reports it, and then yields what was committed meanwhile', async () => {
    const { pool, subscription } = await subscribe();
    const waits = pool.at('after', READ, async () => undefined);
    const first = nextOf(subscription);
    await waits;
    let letGo = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    // From here on it can neither be notified nor poll.
    const names: string[] = [];
    let looks!: Promise<void>;
    const isDeaf = new Promise<void>((resolve, reject) => {
      looks = pool.at('before', LOOK, async () => {
        const pids = await listeners();
        for (const pid of pids) await database.query('SELECT pg_terminate_backend($1)', [pid]);
        names.push(await commitEvent(), await commitEvent());
        resolve();
        await held;
      });
      looks.catch(reject);
    });
    await isDeaf;
    expect(await first).toBe('disconnected');
    letGo();
    await looks;
    expect([await nextOf(subscription), await nextOf(subscription)]).toEqual(names);
    await expect.poll(async () => (await listeners()).length, SOON).toBe(1);
    const later = await commitAndStamp();
    expect(await nextOf(subscription)).toBe(later);
  });
});

describe('a follower that polls first and listens afterwards', () => {
  /** The hints it receives before a marker that is sent once it listens. */
  async function heardBy(listenFirst: 'listen first' | 'look first') {
    const client = await database.connect();
    const heard: string[] = [];
    client.on('notification', ({ payload }) => heard.push(payload ?? ''));
    const listen = () => client.query(`LISTEN "${hintChannel(database.schema)}"`);
    const ask: Ask = (text, params) => client.query(text, params);
    const start = await BY_POSITION.now(ask);
    if (listenFirst === 'listen first') await listen();
    const looked = await BY_POSITION.read(ask, start);
    await commitAndStamp();
    if (listenFirst === 'look first') await listen();
    await database.query('SELECT pg_notify($1, $2)', [hintChannel(database.schema), 'the word']);
    await expect.poll(() => heard, SOON).toContain('the word');
    const missed = (await BY_POSITION.read(ask, start)).seen.length - looked.seen.length;
    await client.end();
    return { hints: heard.filter((payload) => payload.includes('events')).length, missed };
  }

  test('misses a hint sent in between, and one that listens first does not', async () => {
    expect(await heardBy('look first')).toEqual({ hints: 0, missed: 1 });
    expect(await heardBy('listen first')).toEqual({ hints: 1, missed: 1 });
  });
});
