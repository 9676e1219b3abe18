/**
 * How a consumer stops: when asked to, after its current batch, or because it cannot continue, with the reason.
 */
import { describe, expect, it } from 'vitest';
import type { EventHandler } from '../../../src/index.ts';
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

useConsuming();

describe('a consumer stops', () => {
  it('when asked to, after its current batch', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 4);
    const entered = latch();
    const leave = latch();
    const handler: EventHandler = async (events, tx) => {
      entered.open();
      await leave.opened;
      await projection(name)(events, tx);
    };
    const consumer = await consume(name, handler, { filter: { kind }, batch: 2 });
    await entered.opened;
    let isDone = false;
    const stopped = consumer.stop().then(() => (isDone = true));
    await snapshotOf(name);
    expect(isDone).toBe(false);
    leave.open();
    await stopped;
    await consumer.done;
    expect(await seenBy(name)).toHaveLength(2);
    expect((await snapshotOf(name)).holder).toBeNull();
    await consume(name, projection(name), { filter: { kind } });
    await expectSeenOnce(name, ids);
  });

  it('with its AbortSignal, even between two tries of a handler that fails', async () => {
    const { name, kind } = names();
    await endSome(kind, 1);
    const failed = latch();
    const ending = new AbortController();
    const handler: EventHandler = () => Promise.reject(new Error('never works'));
    const { signal } = ending;
    const consumer = await consume(name, handler, { filter: { kind }, signal, onError: () => failed.open() });
    await failed.opened;
    ending.abort();
    await consumer.done;
    const unborn = await consume(name, projection(name), { filter: { kind }, signal });
    await unborn.done;
    expect(await seenBy(name)).toEqual([]);
  });

  it('with the engine', async () => {
    const { name, kind } = names();
    const engine = await bench.another();
    const consumer = await consume(name, projection(name), { filter: { kind }, through: engine });
    await engine.close();
    await consumer.done;
    expect((await snapshotOf(name)).holder).toBeNull();
  });

  it('with not_found when it is forgotten', async () => {
    const { name, kind } = names();
    const filter = { kind };
    const unheard = await consume(name, projection(name), { filter, through: await bench.another() });
    const consumer = await consume(name, projection(name), { filter });
    await expectSeenOnce(name, await endSome(kind, 1));
    expect(await bench.engine.consumers.forget(name)).toBe(true);
    await endSome(kind, 1);
    await expect(consumer.done).rejects.toMatchObject({ code: 'not_found' });
    await consumer.stop();
    // Nobody handles its rejection, which must not matter.
    await unheard.stop();
    expect(await seenBy(name)).toHaveLength(1);
  });

  it('with undecodable_event when it meets one, after handing over everything before it', async () => {
    const { name } = names();
    const filter = { families: ['worker'] } as const;
    const tell = (worker: string, detail: string) =>
      bench.database.query(`SELECT ff_tell('worker', '{lost}', ARRAY[$1], ARRAY[$2::jsonb])`, [
        worker,
        detail,
      ]);
    const consumer = await consume(name, projection(name), { from: 'now', filter });
    await tell('w-1', '{"worker_id": "w"}');
    await expect.poll(async () => (await seenBy(name)).length, SOON).toBe(1);
    await tell('w-2', '{}');
    await expect(consumer.done).rejects.toMatchObject({ code: 'undecodable_event' });
    expect((await snapshotOf(name)).lag).toBe(1n);
  });

  it('with cursor_expired when its events are no longer kept', async () => {
    const { name, kind } = names();
    const consumer = await consume(name, projection(name), { filter: { kind } });
    await expect.poll(async () => (await snapshotOf(name)).lag, SOON).toBe(0n);
    await consumer.stop();
    await endSome(kind, 3);
    const { position, lag } = await snapshotOf(name);
    const last = position + lag;
    await bench.database.query('UPDATE ff_sequencer SET floor_position = $1', [String(last)]);
    const late = await consume(name, projection(name), { filter: { kind } });
    await expect(late.done).rejects.toMatchObject({ code: 'cursor_expired', oldest: expect.any(String) });
    expect(await seenBy(name)).toEqual([]);
  });
});
