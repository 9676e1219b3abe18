/**
 * Any number of instances may consume under one name: one of them runs, and when two do, nothing happens twice.
 */
import { describe, expect, it } from 'vitest';
import type { EventHandler } from '../../../src/index.ts';
import { HOLD_MS } from '../../../src/engine/feed/consumer.ts';
import { latch } from '../../worker/crew.ts';
import {
  bench,
  consume,
  endSome,
  expectSeenOnce,
  LONG,
  loosen,
  names,
  projection,
  snapshotOf,
  SOON,
  useConsuming,
} from './consuming.ts';

useConsuming();

describe('instances under one name', () => {
  it('may all be the first to use a name', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 3);
    const through = await Promise.all([bench.another(), bench.another(), bench.another(), bench.another()]);
    await Promise.all(
      through.map((connection) => consume(name, projection(name), { filter: { kind }, through: connection })),
    );
    await expectSeenOnce(name, ids);
  });

  it('take turns: one reads, and another continues when it has stopped', async () => {
    const { name, kind } = names();
    const by: string[] = [];
    const handlerOf = (who: string): EventHandler => {
      const write = projection(name);
      return (events, tx) => {
        by.push(who);
        return write(events, tx);
      };
    };
    const first = await consume(name, handlerOf('first'), { filter: { kind } });
    await expect.poll(async () => (await snapshotOf(name)).holder, SOON).not.toBeNull();
    await consume(name, handlerOf('second'), { filter: { kind }, through: await bench.another() });
    const early = await endSome(kind, 2);
    await expectSeenOnce(name, early);
    await first.stop();
    const late = await endSome(kind, 2);
    await expectSeenOnce(name, [...early, ...late]);
    expect(new Set(by.slice(0, 1))).toEqual(new Set(['first']));
    expect(by.at(-1)).toBe('second');
  });

  it('take over the name of one that has fallen silent', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 2);
    const first = await consume(name, projection(name), { filter: { kind } });
    await first.stop();
    await bench.database.query(
      `UPDATE ff_consumer SET holder = 'ghost', held_until_ms = ff_now_ms() + $2 WHERE name = $1`,
      [name, HOLD_MS],
    );
    const late = await endSome(kind, 2);
    await consume(name, projection(name), { filter: { kind } });
    expect((await snapshotOf(name)).holder).toBe('ghost');
    await bench.database.moveClock(HOLD_MS);
    await expectSeenOnce(name, [...ids, ...late]);
  });

  it('leave the name to one whose handler is slow', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 1);
    const heldUntil = async (): Promise<number> => {
      const found = await bench.database.query<{ held_until_ms: number }>(
        'SELECT held_until_ms FROM ff_consumer WHERE name = $1',
        [name],
      );
      return found.rows[0]!.held_until_ms;
    };
    const renewed = latch();
    const handler: EventHandler = async (events, tx) => {
      await expect.poll(heldUntil, SOON).toBeGreaterThan(await heldUntil());
      renewed.open();
      await projection(name)(events, tx);
    };
    await consume(name, handler, { filter: { kind } });
    await renewed.opened;
    await expectSeenOnce(name, ids);
  });

  it('run the same events concurrently without duplicates and without a failure', LONG, async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 5);
    const both = latch();
    const errors: unknown[] = [];
    let inside = 0;
    let calls = 0;
    const handler: EventHandler = async (events, tx) => {
      calls += 1;
      inside += 1;
      await projection(name)(events, tx);
      if (inside === 2) both.open();
      await both.opened;
    };
    const onError = (error: unknown): void => void errors.push(error);
    const options = { filter: { kind }, onError };
    await consume(name, handler, options);
    await expect.poll(() => inside, SOON).toBe(1);
    await loosen(name);
    await consume(name, handler, { ...options, through: await bench.another() });
    await both.opened;
    await expectSeenOnce(name, ids);
    const late = await endSome(kind, 5);
    await expectSeenOnce(name, [...ids, ...late]);
    expect(calls).toBeGreaterThanOrEqual(3);
    expect(errors).toEqual([]);
    expect(await snapshotOf(name)).toMatchObject({ failures: 0, errorCode: null });
  });

  it('do everything exactly once while handlers fail and holds are lost repeatedly', LONG, async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 60);
    let calls = 0;
    const nextCall = async (): Promise<number> => {
      await loosen(name);
      return calls;
    };
    const handler: EventHandler = async (events, tx) => {
      calls += 1;
      const call = calls;
      await projection(name)(events, tx);
      // A rival starts with the same events.
      if (call % 3 === 0) await expect.poll(nextCall, SOON).toBeGreaterThan(call);
      if (call % 4 === 1) throw new Error('at random');
    };
    const through = await Promise.all([bench.another(), bench.another(), bench.another()]);
    const options = { filter: { kind }, batch: 15 };
    await Promise.all(
      through.map((connection) => consume(name, handler, { ...options, through: connection })),
    );
    const late = await endSome(kind, 60);
    await expectSeenOnce(name, [...ids, ...late]);
    await expect.poll(async () => (await snapshotOf(name)).lag, SOON).toBe(0n);
    await expectSeenOnce(name, [...ids, ...late]);
  });
});
