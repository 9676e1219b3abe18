/**
 * Waiting for a slot: in order, reported once, and with a time limit.
 */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { LIMITS } from '../../contract/limits.ts';
import { Slots } from './slots.ts';

let warned: string[];
const onWarning = (warning: Error): void => void warned.push(warning.message);

beforeEach(() => {
  warned = [];
  process.on('warning', onWarning);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
});
afterEach(() => {
  vi.useRealTimers();
  process.off('warning', onWarning);
});

function held(): { open: Promise<void>; release(): void } {
  let release = (): void => undefined;
  const open = new Promise<void>((resolve) => {
    release = resolve;
  });
  return { open, release };
}

it('is reported once for all who wait, and refused by name of the budget when it takes too long', async () => {
  const slots = new Slots({ count: 1, describe: () => 'Of 4 in all.' });
  const first = held();
  const using = slots.use(() => first.open);
  const waiting = [1, 2, 3].map((n) =>
    slots.use(async () => n).catch((error: unknown) => (error as { code: string; message: string }).message),
  );
  await vi.advanceTimersByTimeAsync(LIMITS.connectionReportMs);
  const said = (ms: number) =>
    `A transaction got no connection within ${ms / 1_000} s: all 1 are in use by other transactions. Make transactions shorter, or start another process. Of 4 in all.`;
  expect(warned).toEqual([said(LIMITS.connectionReportMs)]);
  await vi.advanceTimersByTimeAsync(LIMITS.connectionWaitMs);
  expect(await Promise.all(waiting)).toEqual([1, 2, 3].map(() => said(LIMITS.connectionWaitMs)));
  first.release();
  await using;
  expect(await slots.use(async () => 'free again')).toBe('free again');
  expect(warned).toHaveLength(1);
});

it('is given in order', async () => {
  const slots = new Slots({ count: 1, describe: () => '' });
  const order: number[] = [];
  await Promise.all([1, 2, 3].map((n) => slots.use(async () => void order.push(n))));
  expect(order).toEqual([1, 2, 3]);
});

it('is refused to those who wait, and to all who come later, once it is closed', async () => {
  const slots = new Slots({ count: 1, describe: () => '' });
  const first = held();
  const using = slots.use(() => first.open);
  const entered: string[] = [];
  const waiting = slots.use(async () => void entered.push('waiting'));
  slots.close();
  expect(vi.getTimerCount()).toBe(0);
  await expect(waiting).rejects.toMatchObject({ code: 'closed' });
  first.release();
  await using;
  await expect(slots.use(async () => void entered.push('later'))).rejects.toMatchObject({ code: 'closed' });
  expect(entered).toEqual([]);
});
