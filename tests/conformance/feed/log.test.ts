/**
 * Positions of events: dense, stable, the same for every reader, and never assigned twice, even when the log was
 * restored on another server or its server lost the newest part. How old events are deleted is in retention.test.ts.
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

/** The number of jumps, and of events in all runs. */
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
    `SELECT e.ev_id, count(r.*) AS n FROM ff_event_pack e LEFT JOIN ff_event_run r
       ON r.slot = e.slot AND e.ev_id >= r.ev_from AND e.ev_id < r.ev_from + r.packs
     GROUP BY e.ev_id HAVING count(r.*) <> 1`,
  );
  expect(found.rows).toEqual([]);
}

describe('positions', () => {
  it('start at one and are dense, whatever gaps the ids have', async () => {
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
    const ids = await log.database.query<{ unused: number }>(
      'SELECT max(ev_id) - min(ev_id) + 1 - count(*) AS unused FROM ff_event_pack',
    );
    expect(ids.rows[0]!.unused).toBeGreaterThan(0);
    await expectEachOnce();
  });

  it('denote the same event for every reader, and stay so as more are written', async () => {
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

  it('are assigned to a late writer when it commits, after everything committed before', async () => {
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

  it('are stored as a few runs, not a row per event', async () => {
    await plantWorkers(log.database, 500);
    await log.last();
    const found = await log.database.query('SELECT count(*) AS n FROM ff_event_run');
    expect(found.rows).toEqual([{ n: 2 }]);
  });

  it('are not written by a poll when there is nothing new', async () => {
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

  it('cannot be assigned inside a transaction that has written', async () => {
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
  ])('with transaction ids %s, gives every event one position, and continues', async (_, shift) => {
    const old = await plantWorkers(log.database, 6);
    const before = await log.walk(0n);
    const unstamped = await plantWorkers(log.database, 4);
    await restore(log.database, shift);
    const adopted = await log.walk(0n);
    expect(adopted.slice(0, 6)).toEqual(before);
    expect(namesOf(adopted)).toEqual([...old, ...unstamped]);
    expect(positionsOf(adopted.slice(6))).toEqual(consecutive(6n + JUMP + 1n, 4));
    // The transaction ids of new events pass those of the old rows.
    const fresh: string[] = [];
    for (let round = 0; round < 50; round += 1) fresh.push(...(await plantWorkers(log.database, 1)));
    const all = await log.walk(0n);
    expect(namesOf(all)).toEqual([...old, ...unstamped, ...fresh]);
    expect(positionsOf(all.slice(6))).toEqual(consecutive(6n + JUMP + 1n, 54));
    expect(await sequencer()).toMatchObject({ epoch: 1 });
    expect(await runs()).toEqual({ jumps: 1, events: 60 });
    await expectEachOnce();
  });

  it('is read from an old cursor without a gap, by a subscription that was not notified of it', async () => {
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

  it('includes an event that the last stamp could not see, written among those it saw', async () => {
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

  it('several times jumps each time and loses nothing', async () => {
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

  it('before anything had a position gives every event one', async () => {
    const names = await plantWorkers(log.database, 3);
    await restore(log.database, FAR);
    expect(namesOf(await log.walk(0n))).toEqual(names);
  });
});

describe('a server that was promoted', () => {
  it('jumps, increments its epoch, and assigns none of the lost positions again', async () => {
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

  it('resumes a cursor of lost events after the jump', async () => {
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

  it('lets readers waiting at the old last position continue by themselves', async () => {
    await plantWorkers(log.database, 3);
    const subscription = await log.engine.events.subscribe();
    expect(decodeCursor(subscription.cursor)).toBe(3n);
    const parked = take(subscription, 1);
    await promote(log.database);
    const names = await plantWorkers(log.database, 1);
    expect(namesOf(await parked)).toEqual(names);
    await subscription.close();
  });

  it('assigns a position to the event of a writer that commits after the promotion', async () => {
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

describe('a server whose identity only some roles may read', () => {
  it('is the same server for a role that may read it and one that may not, in turns', async () => {
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
