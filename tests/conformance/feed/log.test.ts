/**
 * Positions of events: dense, stable, the same for every reader, and never given out a second time, also when the log was
 * restored on another server or its server lost the newest part. How old events go is in retention.test.ts.
 */
import { randomUUID } from 'node:crypto';
import { describe, expect, it, onTestFinished } from 'vitest';
import { decodeCursor, encodeCursor } from '../../../src/index.ts';
import { openEngine } from '../../../src/engine/open.ts';
import { sequenceEvents } from '../../../src/engine/feed/events.sql.ts';
import {
  consecutive,
  namesOf,
  plantWorkers,
  positionsOf,
  promote,
  restore,
  take,
  TELL_LATE,
  useLog,
  walk,
} from './following.ts';

const JUMP = 2n ** 32n;
const log = useLog();

async function sequencer(): Promise<{ epoch: number; foreign_to_ev_id: number }> {
  const found = await log.database.query<{ epoch: number; foreign_to_ev_id: number }>(
    'SELECT epoch, foreign_to_ev_id FROM ff_sequencer',
  );
  return found.rows[0]!;
}

/** Jumps, and how many events the runs hold. */
async function runs(): Promise<{ jumps: number; events: number }> {
  const found = await log.database.query<{ jumps: number; events: number }>(
    `SELECT count(*) FILTER (WHERE ev_from IS NULL AND seq_from > 0) AS jumps,
            coalesce(sum(n) FILTER (WHERE ev_from IS NOT NULL), 0)::int AS events FROM ff_event_run`,
  );
  return found.rows[0]!;
}

/** Every event of the log has exactly one position. */
async function expectEachOnce(): Promise<void> {
  const found = await log.database.query(
    `SELECT e.ev_id, count(r.*) AS n FROM ff_event e LEFT JOIN ff_event_run r
       ON r.slot = e.slot AND e.ev_id >= r.ev_from AND e.ev_id < r.ev_from + r.n
     GROUP BY e.ev_id HAVING count(r.*) <> 1`,
  );
  expect(found.rows).toEqual([]);
}

describe('positions', () => {
  it('begin at one and are dense, whatever gaps there are between ids', async () => {
    const rolledBack = await log.database.connect();
    const names: string[] = [];
    for (let round = 0; round < 4; round += 1) {
      names.push(...(await plantWorkers(log.database, 2)));
      await rolledBack.query('BEGIN');
      await rolledBack.query(`SELECT ff_tell('worker', '{lost,lost}', '{x,y}', '{"{}","{}"}')`);
      await rolledBack.query('ROLLBACK');
      names.push(...(await plantWorkers(log.database, 1)));
      if (round % 2 === 1) await log.last();
    }
    const events = await log.walk(0n);
    expect(positionsOf(events)).toEqual(consecutive(1n, 12));
    expect(namesOf(events)).toEqual(names);
    const ids = await log.database.query<{ span: number }>(
      'SELECT max(ev_id) - min(ev_id) + 1 AS span FROM ff_event',
    );
    expect(ids.rows[0]!.span).toBeGreaterThan(12);
    await expectEachOnce();
  });

  it('are the same event for every reader, and stay so as more come', async () => {
    const other = await openEngine({ databaseUrl: log.database.url, listen: 'off' });
    await plantWorkers(log.database, 20);
    const seen = await log.walk(0n);
    for (let round = 0; round < 3; round += 1) {
      await plantWorkers(log.database, 5);
      await log.last();
      expect((await walk(other.context.feed, 0n)).slice(0, 20)).toEqual(seen);
      expect((await walk(other.context.feed, 7n)).slice(0, 13)).toEqual(seen.slice(7));
    }
    await other.engine.close();
  });

  it('go to a writer that commits late when it does, behind what was committed meanwhile', async () => {
    const late = await log.database.connect();
    await late.query('BEGIN');
    await late.query(TELL_LATE);
    const before = await plantWorkers(log.database, 3);
    expect(namesOf(await log.walk(0n))).toEqual(before);
    const after = await plantWorkers(log.database, 2);
    expect(await log.last()).toBe(5n);
    await late.query('COMMIT');
    expect(namesOf(await log.walk(0n))).toEqual([...before, ...after, 'late']);
    await expectEachOnce();
  });

  it('are given out as few runs, not a row for every event', async () => {
    await plantWorkers(log.database, 500);
    await log.last();
    const found = await log.database.query('SELECT count(*) AS n FROM ff_event_run');
    expect(found.rows).toEqual([{ n: 2 }]);
  });

  it('are not touched by looking when there is nothing new', async () => {
    await plantWorkers(log.database, 1);
    await log.last();
    const before = await log.database.query('SELECT *, xmin::text FROM ff_event_run ORDER BY seq_from');
    expect(await sequenceEvents(log.context.database, 'wait')).toEqual({
      last: 1n,
      floor: 1n,
      stamped: 0,
    });
    await log.database.query('SELECT pg_current_xact_id()');
    expect(await sequenceEvents(log.context.database, 'skip')).toMatchObject({ last: 1n, stamped: 0 });
    expect(
      (await log.database.query('SELECT *, xmin::text FROM ff_event_run ORDER BY seq_from')).rows,
    ).toEqual(before.rows);
  });

  it('cannot be given out from inside a transaction that has written', async () => {
    const client = await log.database.connect();
    await client.query('BEGIN; SELECT pg_current_xact_id()');
    await expect(client.query('SELECT ff_sequence(true, NULL)')).rejects.toMatchObject({ code: 'FF006' });
    await client.query('ROLLBACK');
  });
});

describe('a log that was restored on another server', () => {
  const FAR = 1_000_000_000n;

  it.each([
    ['far ahead', FAR],
    ['a little ahead', 40n],
    ['behind', -5n],
  ])('with transaction ids %s, gives every event one position, and goes on', async (_, shift) => {
    const old = await plantWorkers(log.database, 6);
    const before = await log.walk(0n);
    const unstamped = await plantWorkers(log.database, 4);
    await restore(log.database, shift);
    const adopted = await log.walk(0n);
    expect(adopted.slice(0, 6)).toEqual(before);
    expect(namesOf(adopted)).toEqual([...old, ...unstamped]);
    expect(positionsOf(adopted.slice(6))).toEqual(consecutive(6n + JUMP + 1n, 4));
    // Transaction ids of new events pass those the old rows carry.
    const fresh: string[] = [];
    for (let round = 0; round < 50; round += 1) fresh.push(...(await plantWorkers(log.database, 1)));
    const all = await log.walk(0n);
    expect(namesOf(all)).toEqual([...old, ...unstamped, ...fresh]);
    expect(positionsOf(all.slice(6))).toEqual(consecutive(6n + JUMP + 1n, 54));
    expect(await sequencer()).toMatchObject({ epoch: 1 });
    expect(await runs()).toEqual({ jumps: 1, events: 60 });
    await expectEachOnce();
  });

  it('is read from an old cursor without a gap, by a subscription that never heard of it', async () => {
    await plantWorkers(log.database, 3);
    await log.last();
    await restore(log.database, FAR);
    const names = await plantWorkers(log.database, 2);
    const subscription = await log.engine.events.subscribe({ from: encodeCursor(2n) });
    const events = await take(subscription, 3);
    expect(positionsOf(events)).toEqual([3n, ...consecutive(3n + JUMP + 1n, 2)]);
    expect(namesOf(events.slice(1))).toEqual(names);
    await subscription.close();
  });

  it('finds an event that was not visible to the last stamp among those that were', async () => {
    const late = await log.database.connect();
    await late.query('BEGIN');
    await late.query(TELL_LATE);
    const names = await plantWorkers(log.database, 3);
    await log.last();
    await late.query('COMMIT');
    await restore(log.database, FAR);
    expect(namesOf(await log.walk(0n))).toEqual([...names, 'late']);
    await expectEachOnce();
  });

  it('again and again jumps each time and loses nothing', async () => {
    const names: string[] = [];
    for (const round of [1, 2, 3]) {
      names.push(...(await plantWorkers(log.database, 2)));
      if (round !== 2) await log.last();
      names.push(...(await plantWorkers(log.database, 1)));
      await restore(log.database, FAR, `other-${round}/00000001`);
      await log.last();
    }
    const events = await log.walk(0n);
    expect(namesOf(events)).toEqual(names);
    expect(await sequencer()).toMatchObject({ epoch: 3 });
    expect(await log.last()).toBe(9n + 3n * JUMP);
    await expectEachOnce();
  });

  it('while nothing had a position yet', async () => {
    const names = await plantWorkers(log.database, 3);
    await restore(log.database, FAR);
    expect(namesOf(await log.walk(0n))).toEqual(names);
  });
});

describe('a server that was promoted', () => {
  it('jumps, counts its epoch on, and gives out none of the positions that were lost', async () => {
    const names = await plantWorkers(log.database, 3);
    await log.last();
    await promote(log.database);
    names.push(...(await plantWorkers(log.database, 2)));
    const events = await log.walk(0n);
    expect(positionsOf(events)).toEqual([...consecutive(1n, 3), ...consecutive(3n + JUMP + 1n, 2)]);
    expect(namesOf(events)).toEqual(names);
    expect(await sequencer()).toMatchObject({ epoch: 1, foreign_to_ev_id: 0 });
    await expectEachOnce();
  });

  it('goes on behind the jump for a cursor of events that were lost', async () => {
    await plantWorkers(log.database, 3);
    await log.last();
    await promote(log.database);
    const lost = await log.engine.events.subscribe({ from: encodeCursor(103n) });
    const names = await plantWorkers(log.database, 2);
    const events = await take(lost, 2);
    expect(namesOf(events)).toEqual(names);
    expect(positionsOf(events)).toEqual(consecutive(3n + JUMP + 1n, 2));
    await lost.close();
    const ahead = log.engine.events.subscribe({ from: encodeCursor(3n + 2n * JUMP) });
    await expect(ahead).rejects.toMatchObject({ code: 'cursor_ahead' });
  });

  it('lets those who wait at the old end go on by themselves', async () => {
    await plantWorkers(log.database, 3);
    const subscription = await log.engine.events.subscribe();
    expect(decodeCursor(subscription.cursor)).toBe(3n);
    const parked = take(subscription, 1);
    await promote(log.database);
    const names = await plantWorkers(log.database, 1);
    expect(namesOf(await parked)).toEqual(names);
    await subscription.close();
  });

  it('gives an event of a writer that commits after it its position', async () => {
    const late = await log.database.connect();
    await late.query('BEGIN');
    await late.query(TELL_LATE);
    const names = await plantWorkers(log.database, 2);
    await log.last();
    await promote(log.database);
    await log.last();
    await late.query('COMMIT');
    expect(namesOf(await log.walk(0n))).toEqual([...names, 'late']);
    await expectEachOnce();
  });
});

describe('a server that does not tell everybody who it is', () => {
  it('is the same for a role that may not ask as for one that may, in turns', async () => {
    const role = `ff_test_${randomUUID().replaceAll('-', '')}`;
    const unprivileged = await log.database.connect();
    await unprivileged.query(
      `CREATE ROLE ${role}; GRANT USAGE ON SCHEMA ${log.database.schema} TO ${role};
       GRANT ALL ON ALL TABLES IN SCHEMA ${log.database.schema} TO ${role};
       REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC; SET ROLE ${role}`,
    );
    onTestFinished(async () => {
      await unprivileged.query(`RESET ROLE; DROP OWNED BY ${role}; DROP ROLE ${role}`);
    });
    const names: string[] = [];
    for (let round = 0; round < 3; round += 1) {
      names.push(...(await plantWorkers(log.database, 1)));
      await unprivileged.query('SELECT ff_sequence(true, NULL)');
      names.push(...(await plantWorkers(log.database, 1)));
      await log.last();
    }
    const events = await log.walk(0n);
    expect(namesOf(events)).toEqual(names);
    expect(positionsOf(events)).toEqual(consecutive(1n, 6));
    expect(await runs()).toEqual({ jumps: 0, events: 6 });
    expect(await sequencer()).toMatchObject({ epoch: 0 });
  });
});
