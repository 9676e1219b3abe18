/**
 * Handlers that misbehave, and processes that died: a consumer never counts as done what is not, reports it, and
 * continues when it can.
 */
import { describe, expect, it, onTestFinished } from 'vitest';
import type { EventHandler } from '../../../src/index.ts';
import { latch } from '../../worker/crew.ts';
import {
  bench,
  consume,
  endSome,
  expectSeenOnce,
  names,
  projection,
  snapshotOf,
  SOON,
  useConsuming,
} from './consuming.ts';

useConsuming();

describe('a handler that', () => {
  it.each(['ROLLBACK', 'COMMIT', 'ROLLBACK AND CHAIN', 'COMMIT AND CHAIN'])(
    'ends its transaction by %s has not handled its events',
    async (statement) => {
      const { name, kind } = names();
      await endSome(kind, 2);
      const failed = latch<unknown>();
      const handler: EventHandler = async (_events, tx) => void (await tx.query(statement));
      const onError = (error: unknown): void => failed.open(error);
      const consumer = await consume(name, handler, { filter: { kind }, onError });
      expect(await failed.opened).toMatchObject({ code: 'invalid_step' });
      await consumer.stop();
      expect(await snapshotOf(name)).toMatchObject({ position: 0n, errorCode: 'invalid_step' });
    },
  );

  it.each([
    ['an error whose name is not a string', () => Object.assign(new Error('x'), { name: Symbol('s') })],
    ['an error whose code cannot be read', () => Object.defineProperty({}, 'code', { get: () => boom() })],
    ['nothing', () => undefined],
    [
      'a code that is too long',
      () => Object.assign(new Error('x'), { name: 'EngineError', code: 'x'.repeat(1e5) }),
    ],
  ])('throws %s is given the same events again', async (_what, thrown) => {
    const { name, kind } = names();
    const ids = await endSome(kind, 1);
    let calls = 0;
    const handler: EventHandler = async (events, tx) => {
      calls += 1;
      if (calls === 1) throw thrown();
      await projection(name)(events, tx);
    };
    await consume(name, handler, { filter: { kind }, onError: () => undefined });
    await expectSeenOnce(name, ids);
    expect(calls).toBe(2);
  });

  it('changes its session does not affect the next one', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 4);
    const handler: EventHandler = async (events, tx) => {
      const { rows } = await tx.query<{ mode: string }>('SHOW default_transaction_read_only');
      expect(rows).toEqual([{ default_transaction_read_only: 'off' }]);
      await projection(name)(events, tx);
      await tx.query('SET default_transaction_read_only = on');
    };
    await consume(name, handler, { filter: { kind }, batch: 1 });
    await expectSeenOnce(name, ids);
    expect((await snapshotOf(name)).failures).toBe(0);
  });
});

describe('a name', () => {
  it('held by a dead process far into the future, because the clock was set back, is taken over', async () => {
    const { name, kind } = names();
    const ids = await endSome(kind, 1);
    const first = await consume(name, projection(name), { filter: { kind } });
    await expectSeenOnce(name, ids);
    await first.stop();
    await bench.database.query(
      `UPDATE ff_consumer SET holder = 'dead', held_until_ms = ff_now_ms() + 3600000 WHERE name = $1`,
      [name],
    );
    const more = await endSome(kind, 1);
    await consume(name, projection(name), { filter: { kind } });
    await expectSeenOnce(name, [...ids, ...more]);
  });

  it('whose consumer could not continue shows why', async () => {
    const { name, kind } = names();
    const ended = latch<unknown>();
    const onError = (error: unknown): void => ended.open(error);
    await endSome(kind, 1);
    const broken = { transact: () => Promise.reject(invalid()) };
    const consumer = await consume(name, projection(name), { filter: { kind }, onError, ...broken });
    await expect(consumer.done).rejects.toMatchObject({ code: 'invalid_input' });
    expect(await ended.opened).toMatchObject({ code: 'invalid_input' });
    await expect
      .poll(() => snapshotOf(name), SOON)
      .toMatchObject({ failures: 1, errorCode: 'invalid_input' });
  });
});

it('one AbortSignal may end any number of readers without a warning', async () => {
  const warned: string[] = [];
  const onWarning = (warning: Error): void => void warned.push(warning.name);
  process.on('warning', onWarning);
  onTestFinished(() => void process.off('warning', onWarning));
  const ending = new AbortController();
  const open = () => bench.engine.events.subscribe({ signal: ending.signal });
  const readers = await Promise.all(Array.from({ length: 30 }, open));
  const reading = readers.map((reader) => reader.next());
  ending.abort();
  for (const answer of await Promise.all(reading)) expect(answer.done).toBe(true);
  expect(warned).toEqual([]);
});

function boom(): never {
  throw new Error('boom');
}

function invalid(): Error {
  return Object.assign(new Error('no room'), { name: 'EngineError', code: 'invalid_input' });
}
