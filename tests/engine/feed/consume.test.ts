/**
 * Consumers: what a handler writes in its transaction and the consumer's position are one commit, however often the
 * handler fails.
 */
import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import { pgTransactor } from '../../../src/adapters/index.ts';
import { encodeCursor, type EventHandler, type FeedEvent, type SqlTransaction } from '../../../src/index.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { latch } from '../../worker/crew.ts';
import {
  bench,
  consume,
  endSome,
  expectSeenOnce,
  names,
  projection,
  seenBy,
  snapshotOf,
  SOON,
  useConsuming,
} from './consuming.ts';
import { workerPort } from '../../../src/connect/port.ts';

useConsuming();

describe('a consumer', () => {
  it('receives everything from the beginning, and what happens later, in order and once', async () => {
    const { name, kind } = names();
    const before = await endSome(kind, 30);
    const sizes: number[] = [];
    const write = projection(name);
    const handler: EventHandler = (events, tx) => {
      sizes.push(events.length);
      return write(events, tx);
    };
    await consume(name, handler, { filter: { kind, families: ['completion'] }, batch: 1_000 });
    await expectSeenOnce(name, before);
    expect(sizes).toEqual([30]);
    const later = await endSome(kind, 3);
    await expectSeenOnce(name, [...before, ...later]);
    await expect
      .poll(() => snapshotOf(name), SOON)
      .toMatchObject({ lag: 0n, lagMs: 0, failures: 0, errorCode: null });
  });

  it('lags by the age of its next event, however late that got its position', async () => {
    const HOUR_MS = 3_600_000;
    const { name, kind } = names();
    const consumer = await consume(name, async () => undefined, { from: 'now' });
    await consumer.stop();
    const [old] = await bench.engine.executions.submit([{ kind }]);
    const { partition, uuid } = parseExecutionId(old!.executionId);
    const slow = await bench.database.connect();
    await slow.query('BEGIN');
    await slow.query(`SELECT ff_cancel(ARRAY[$1::uuid], ARRAY[$2::smallint], 'why', 'ann')`, [
      uuid,
      partition,
    ]);
    await bench.database.moveClock(HOUR_MS);
    await slow.query('COMMIT');
    await slow.end();
    const { lag, lagMs, position } = await snapshotOf(name);
    expect(lag).toBe(1n);
    expect(lagMs).toBeGreaterThanOrEqual(HOUR_MS);
    // Inside a run of events, and after the last one.
    await endSome(kind, 3);
    const behind = await bench.engine.consumers.move(name, encodeCursor(position + 2n));
    expect(behind).toMatchObject({ lag: 2n });
    expect(behind!.lagMs).toBeLessThan(HOUR_MS);
    expect(await bench.engine.consumers.move(name, 'now')).toMatchObject({ lag: 0n, lagMs: 0 });
  });

  it('receives no more than its batch per call', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 25);
    const sizes: number[] = [];
    const write = projection(name);
    const handler: EventHandler = (events, tx) => {
      sizes.push(events.length);
      return write(events, tx);
    };
    await consume(name, handler, { filter: { kind, types: ['cancelled'] }, batch: 10 });
    await expectSeenOnce(name, ids);
    expect(sizes).toEqual([10, 10, 5]);
  });

  it('advances its position past what its filter drops', async () => {
    const { name, kind } = names();
    let calls = 0;
    const handler: EventHandler = async () => void (calls += 1);
    await consume(name, handler, { filter: { kind: `${kind}-of-nobody` } });
    const { position } = await snapshotOf(name);
    await endSome(kind, 5);
    await expect.poll(async () => (await snapshotOf(name)).lag, SOON).toBe(0n);
    expect((await snapshotOf(name)).position).toBeGreaterThanOrEqual(position + 5n);
    expect(calls).toBe(0);
  });

  it('resumes in another process at its position', async () => {
    const { name, kind } = names();
    const filter = { kind };
    const first = await consume(name, projection(name), { filter });
    const early = await endSome(kind, 4);
    await expectSeenOnce(name, early);
    await first.stop();
    expect((await snapshotOf(name)).holder).toBeNull();
    const late = await endSome(kind, 4);
    await consume(name, projection(name), { filter, through: await bench.another() });
    await expectSeenOnce(name, [...early, ...late]);
  });

  it("runs in a transaction of the application's own library", async () => {
    const { name, kind } = names();
    const pool = new pg.Pool({ connectionString: bench.database.url, max: 2 });
    pool.on('error', () => undefined);
    onTestFinished(() => pool.end());
    const ids = await endSome(kind, 12);
    const consumer = await consume<pg.PoolClient>(
      name,
      (events, client) => projection(name)(events, client as unknown as SqlTransaction),
      { filter: { kind }, batch: 5, transact: pgTransactor(pool) },
    );
    await expectSeenOnce(name, ids);
    await consumer.stop();
  });
});

describe('a handler that fails', () => {
  it('leaves nothing behind, is reported, and gets the same events again', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 3);
    const told: [unknown, number][] = [];
    const refusal = new TypeError('holds data that must not be kept');
    const mended = latch();
    let isBroken = true;
    const handler: EventHandler = async (events, tx) => {
      await projection(name)(events, tx);
      if (isBroken) throw refusal;
      mended.open();
    };
    const onError = (error: unknown, failures: number): void => {
      told.push([error, failures]);
      throw new Error('also this one');
    };
    await consume(name, handler, { filter: { kind }, onError });
    await expect.poll(async () => (await snapshotOf(name)).failures, SOON).toBeGreaterThanOrEqual(2);
    expect((await snapshotOf(name)).errorCode).toBe('TypeError');
    expect(told.slice(0, 2)).toEqual([
      [refusal, 1],
      [refusal, 2],
    ]);
    expect(await seenBy(name)).toEqual([]);
    isBroken = false;
    await mended.opened;
    await expectSeenOnce(name, ids);
    await expect.poll(() => snapshotOf(name), SOON).toMatchObject({ failures: 0, errorCode: null });
  });

  it('cannot hide a statement that failed', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 2);
    const failed = latch<unknown>();
    let calls = 0;
    const handler: EventHandler = async (events, tx) => {
      calls += 1;
      await projection(name)(events, tx);
      if (calls === 1) await tx.query('SELECT 1/0').catch(() => undefined);
    };
    await consume(name, handler, { filter: { kind }, onError: failed.open });
    expect(await failed.opened).toMatchObject({ code: 'retry_transaction' });
    await expectSeenOnce(name, ids);
    expect(calls).toBe(2);
  });

  it('shows the error code of the database, and of the engine', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 1);
    const codes: (string | null)[] = [];
    const handler: EventHandler = async (events, tx) => {
      codes.push((await snapshotOf(name)).errorCode);
      if (codes.length === 1) await tx.query('SELECT 1/0');
      if (codes.length === 2) await bench.engine.executions.describe('no id');
      await projection(name)(events, tx);
    };
    await consume(name, handler, { filter: { kind } });
    await expectSeenOnce(name, ids);
    expect(codes).toEqual([null, '22012', 'invalid_id']);
  });

  it('is not counted as done when its transactor does not run it', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 1);
    const failed = latch<unknown>();
    let skipped = 0;
    await consume(name, projection(name), {
      filter: { kind },
      onError: failed.open,
      transact: async (work) => {
        skipped += 1;
        return skipped === 1 ? (undefined as never) : workerPort(bench.engine).transact(work);
      },
    });
    expect(await failed.opened).toMatchObject({ code: 'invalid_input', field: 'transact' });
    await expectSeenOnce(name, ids);
  });
});

describe('moving a consumer', () => {
  it('past an event it cannot handle lets it continue, and back makes it handle events again', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 3);
    // Their order in the feed is undefined: they finished together.
    const [first] = await eventsOf(kind);
    const failed = latch();
    // Until this opens, it stays where it was moved to.
    const seen = latch();
    const handler: EventHandler = async (events, tx) => {
      if (events[0]!.position === first!.position) throw new Error('cannot be handled');
      await seen.opened;
      await projection(name)(events, tx);
    };
    const consumer = await consume(name, handler, {
      filter: { kind },
      batch: 1,
      onError: () => failed.open(),
    });
    await failed.opened;
    const moved = await bench.engine.consumers.move(name, first!.cursor);
    expect(moved).toMatchObject({ name, position: first!.position, failures: 0 });
    seen.open();
    const { executionId } = first as { executionId?: string };
    await expectSeenOnce(
      name,
      ids.filter((id) => id !== executionId),
    );
    await consumer.stop();
    await bench.engine.consumers.move(name, 'beginning');
    expect((await snapshotOf(name)).position).toBe(0n);
    await expect(bench.engine.consumers.move('nobody', 'now')).rejects.toMatchObject({ code: 'not_found' });
    await expect(bench.engine.consumers.move(name, encodeCursor(2n ** 60n))).rejects.toMatchObject({
      code: 'cursor_ahead',
    });
  });

  it('is not the only sign of a failure: without onError the process is warned, with a code and no message', async () => {
    const { name, kind } = names();
    await endSome(kind, 1);
    const warned: string[] = [];
    const onWarning = (warning: Error): void => void warned.push(warning.message);
    process.on('warning', onWarning);
    onTestFinished(() => void process.off('warning', onWarning));
    await consume(name, () => Promise.reject(new TypeError('of a secret')), { filter: { kind } });
    const ours = (): string[] => warned.filter((text) => text.includes(name));
    await expect.poll(ours, SOON).toHaveLength(1);
    expect(ours()[0]).toBe(`Consumer "${name}" failed (TypeError). Give consume() an onError to see why.`);
  });
});

async function eventsOf(kind: string): Promise<FeedEvent[]> {
  const events: FeedEvent[] = [];
  for await (const event of await bench.engine.events.subscribe({
    from: 'beginning',
    filter: { kind },
    until: 'now',
  })) {
    if (event.type !== 'disconnected') events.push(event);
  }
  return events;
}
