/**
 * How old events are deleted: the log is written slot by slot, the oldest slot is emptied as a whole, and a reader
 * positioned before what is kept is given the oldest cursor. A lagging consumer is waited for, up to a limit. Time
 * passes by moving the clock.
 */
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { openEngine } from '../../../src/engine/open.ts';
import { setRetention } from '../../../src/engine/upkeep/retention-setting.ts';
import { decodeCursor, encodeCursor, LIMITS } from '../../../src/index.ts';
import { eventPositions, oldEvents } from '../../../src/engine/upkeep/event-log.ts';
import { sequenceEvents } from '../../../src/engine/feed/events.sql.ts';
import { dropEventSlot, openEventSlot } from '../../../src/engine/upkeep/retention.sql.ts';
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
} from './following.ts';

const log = useLog();
const HOUR_MS = 3_600_000;
/** Seven slots of an hour each; the eighth is being written. */
const KEPT_MS = 7 * HOUR_MS;
const GRACE_MS = LIMITS.consumerGraceMs;
const { signal } = new AbortController();

async function floor(): Promise<bigint> {
  return (await sequenceEvents(log.context.database, 'wait')).floor;
}

async function keep(retentionMs: number | null): Promise<void> {
  await setRetention(log.context, retentionMs);
}

/** What the reconcilers do periodically; returns how many slots were opened and emptied. */
async function pass(): Promise<number> {
  await eventPositions.run(log.context, signal);
  return oldEvents.run(log.context, signal);
}

/** Some events, an hour of time, and one pass. */
async function hour(events: number): Promise<string[]> {
  const names = await plantWorkers(log.database, events);
  await log.last();
  await log.database.moveClock(HOUR_MS);
  await pass();
  return names;
}

async function slots(): Promise<{ slot: number; n: number }[]> {
  const found = await log.database.query<{ slot: number; n: number }>(
    'SELECT slot, count(*) AS n FROM ff_event GROUP BY slot ORDER BY slot',
  );
  return found.rows;
}

describe('the log', () => {
  it('is written slot by slot, and its oldest slot is emptied when its retention is over', async () => {
    await keep(KEPT_MS);
    const names: string[] = [];
    for (let round = 0; round < 6; round += 1) names.push(...(await hour(2)));
    expect(await slots()).toHaveLength(6);
    expect(await floor()).toBe(1n);
    expect(namesOf(await log.walk(0n))).toEqual(names);
    for (let round = 0; round < 4; round += 1) names.push(...(await hour(2)));
    const kept = await floor();
    expect(kept).toBeGreaterThan(1n);
    expect(namesOf(await log.walk(kept - 1n))).toEqual(names.slice(Number(kept) - 1));
    // Nothing is deleted early.
    expect(20 - Number(kept) + 1).toBeGreaterThanOrEqual(2 * 6);
  });

  it('continues after thirty slots, and does not grow', async () => {
    await keep(KEPT_MS);
    let before = 0n;
    for (let round = 0; round < 30; round += 1) {
      await hour(3);
      const now = await floor();
      expect(now).toBeGreaterThanOrEqual(before);
      before = now;
    }
    expect(before).toBeGreaterThan(3n * 20n);
    expect(await log.last()).toBe(90n);
    expect(positionsOf(await log.walk(before - 1n))).toEqual(consecutive(before, 90 - Number(before) + 1));
    const runs = await log.database.query<{ n: number }>('SELECT count(*) AS n FROM ff_event_run');
    expect(runs.rows[0]!.n).toBeLessThan(12);
    const rows = (await slots()).reduce((sum, { n }) => sum + n, 0);
    expect(rows).toBe(90 - Number(before) + 1);
  });

  it('may become empty, and continues at its position', async () => {
    await keep(KEPT_MS);
    await hour(3);
    await log.database.moveClock(2 * KEPT_MS);
    for (let round = 0; round < 3; round += 1) await pass();
    expect(await slots()).toEqual([]);
    expect(await floor()).toBe(4n);
    expect(await log.walk(3n)).toEqual([]);
    const subscription = await log.engine.events.subscribe({ from: 'beginning' });
    expect(decodeCursor(subscription.cursor)).toBe(3n);
    const names = await plantWorkers(log.database, 2);
    const events = await take(subscription, 2);
    expect([namesOf(events), positionsOf(events)]).toEqual([names, [4n, 5n]]);
    await subscription.close();
  });

  it('is kept whole when retention is unlimited', async () => {
    await keep(null);
    const names = await plantWorkers(log.database, 4);
    for (let round = 0; round < 3; round += 1) {
      await log.database.moveClock(1_000 * 24 * HOUR_MS);
      await eventPositions.run(log.context, signal);
      expect(await oldEvents.run(log.context, signal)).toBe(0);
    }
    expect(namesOf(await log.walk(0n))).toEqual(names);
  });

  it('opens no new slot early, nor while the current one is empty', async () => {
    expect(await openEventSlot(log.context.database, KEPT_MS)).toBe(false);
    await log.database.moveClock(HOUR_MS);
    expect(await openEventSlot(log.context.database, KEPT_MS)).toBe(false);
    await plantWorkers(log.database, 1);
    expect(await openEventSlot(log.context.database, KEPT_MS)).toBe(true);
    await plantWorkers(log.database, 1);
    expect(await openEventSlot(log.context.database, KEPT_MS)).toBe(false);
    await log.database.moveClock(HOUR_MS - 1_000);
    expect(await openEventSlot(log.context.database, KEPT_MS)).toBe(false);
  });

  it('keeps a slot with an event that has no position yet', async () => {
    await keep(KEPT_MS);
    await hour(2);
    await hour(2);
    const late = await log.database.connect();
    await late.query('BEGIN');
    await late.query(TELL_LATE);
    await log.database.moveClock(2 * HOUR_MS);
    await pass();
    await plantWorkers(log.database, 1);
    await log.last();
    await log.database.moveClock(2 * KEPT_MS);
    // The transaction of its writer is open: the slot is in use.
    await oldEvents.run(log.context, signal);
    await late.query('COMMIT');
    await oldEvents.run(log.context, signal);
    const events = await log.walk((await floor()) - 1n);
    expect(namesOf(events)).toContain('late');
  });

  it('empties a slot that lies before what is kept, whenever it was written', async () => {
    await keep(KEPT_MS);
    const late = await log.database.connect();
    await late.query('BEGIN');
    await late.query(TELL_LATE);
    await hour(2);
    // In the second slot, with positions before that of the late event in the first.
    await plantWorkers(log.database, 2);
    await log.last();
    await late.query('COMMIT');
    await log.last();
    await log.database.moveClock(HOUR_MS);
    await pass();
    const names = await plantWorkers(log.database, 1);
    expect(await log.last()).toBe(6n);
    expect(namesOf(await log.walk(4n))).toEqual(['late', ...names]);
    await log.database.moveClock(KEPT_MS - 1);
    await dropEventSlot(log.context.database, KEPT_MS, 0);
    expect(await floor()).toBe(6n);
    await dropEventSlot(log.context.database, KEPT_MS, 0);
    expect((await slots()).map(({ n }) => n)).toEqual([1]);
    expect(namesOf(await log.walk(5n))).toEqual(names);
  });
});

describe('a reader positioned before what is kept', () => {
  it('receives the oldest cursor, at the start and in the middle', async () => {
    await keep(KEPT_MS);
    await hour(3);
    const reading = await log.engine.events.subscribe({ from: encodeCursor(1n) });
    await hour(3);
    await log.database.moveClock(KEPT_MS - 2 * HOUR_MS);
    await pass();
    const oldest = encodeCursor(3n);
    const expired = { code: 'cursor_expired', oldest };
    await expect(reading.next()).rejects.toMatchObject(expired);
    expect(decodeCursor(reading.cursor)).toBe(1n);
    const from = encodeCursor(2n);
    await expect(log.engine.events.subscribe({ from })).rejects.toMatchObject({ ...expired, field: 'from' });
    for (const start of [oldest, 'beginning']) {
      const subscription = await log.engine.events.subscribe({ from: start });
      expect(positionsOf(await take(subscription, 3))).toEqual([4n, 5n, 6n]);
      await subscription.close();
    }
  });
});

describe('a consumer', () => {
  const nothing = async (): Promise<void> => undefined;

  /** A known consumer, positioned after this many events, and not running. */
  async function lagging(position: bigint): Promise<void> {
    const consumer = await log.engine.events.consume('slow', nothing, { from: encodeCursor(position) });
    await consumer.stop();
    await log.database.query('UPDATE ff_consumer SET position = $1', [String(position)]);
  }

  it('that lags keeps its events for a limited time longer; then it fails with the oldest cursor', async () => {
    await keep(KEPT_MS);
    const names = await hour(3);
    names.push(...(await hour(3)));
    await lagging(1n);
    await log.database.moveClock(KEPT_MS);
    await pass();
    expect(namesOf(await log.walk(0n))).toEqual(names);
    await log.database.moveClock(GRACE_MS - 3 * HOUR_MS);
    await pass();
    expect(await floor()).toBe(1n);
    await log.database.moveClock(HOUR_MS);
    await pass();
    expect(await floor()).toBe(4n);
    await log.database.moveClock(HOUR_MS);
    await pass();
    expect(await floor()).toBe(7n);
    const handed = vi.fn(nothing);
    const { engine } = await openEngine({ databaseUrl: log.database.url, listen: 'off', poolSize: 2 });
    onTestFinished(() => engine.close());
    const consumer = await engine.events.consume('slow', handed);
    await expect(consumer.done).rejects.toMatchObject({ code: 'cursor_expired', oldest: encodeCursor(6n) });
    expect(handed).not.toHaveBeenCalled();
  });

  it('that catches up, or is forgotten, no longer keeps them', async () => {
    await keep(KEPT_MS);
    await hour(3);
    await hour(3);
    await lagging(2n);
    await log.database.moveClock(KEPT_MS);
    await pass();
    expect(await floor()).toBe(1n);
    await lagging(3n);
    await pass();
    expect(await floor()).toBe(4n);
    await log.engine.consumers.forget('slow');
    await pass();
    expect(await floor()).toBe(7n);
  });

  it('that lags does not block the log when all its slots are in use', async () => {
    await keep(KEPT_MS);
    await lagging(0n);
    const names: string[] = [];
    for (let round = 0; round < 12; round += 1) names.push(...(await hour(1)));
    expect((await slots()).map(({ n }) => n)).toEqual([1, 1, 1, 1, 1, 1, 1, 5]);
    expect(namesOf(await log.walk(0n))).toEqual(names);
    await log.engine.consumers.forget('slow');
    await pass();
    expect(namesOf(await log.walk((await floor()) - 1n))).toEqual(names.slice(6));
  });
});

describe('a log whose positions jumped', () => {
  it('starts after the jump when everything before it is gone, and is read from there', async () => {
    await keep(KEPT_MS);
    await hour(3);
    await promote(log.database);
    const names = await plantWorkers(log.database, 2);
    await log.last();
    await log.database.moveClock(KEPT_MS);
    expect(await dropEventSlot(log.context.database, KEPT_MS + 1, 0)).toBe(true);
    expect(await floor()).toBe(4n);
    expect(namesOf(await log.walk(3n))).toEqual(names);
    expect(namesOf(await log.walk(1_000n))).toEqual(names);
    const subscription = await log.engine.events.subscribe({ from: 'beginning' });
    expect(namesOf(await take(subscription, 2))).toEqual(names);
    await subscription.close();
  });

  it('because it was restored, deletes events with transaction ids of the other server', async () => {
    await keep(KEPT_MS);
    await hour(3);
    await restore(log.database, 1_000_000_000n);
    const names = await plantWorkers(log.database, 2);
    await log.last();
    await log.database.moveClock(KEPT_MS - HOUR_MS);
    await pass();
    expect(await floor()).toBe(4n);
    expect((await slots()).map(({ n }) => n)).toEqual([2]);
    expect(namesOf(await log.walk(2n ** 32n))).toEqual(names);
  });
});
