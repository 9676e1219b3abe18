/**
 * Closing when something on the way fails: waiters are rejected, and nothing stays open.
 */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { withDeadline } from '../contract/stopping.ts';
import { closingOf } from './closing.ts';
import type { EngineContext } from './kit/context.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

/** Parts that record what is done to them; one may refuse to close. */
function contextOf(refusing?: string): { context: EngineContext; done: string[] } {
  const done: string[] = [];
  const part = (name: string) => ({
    async close() {
      if (name === refusing) throw new Error(`${name} does not close`);
      done.push(`${name} closed`);
    },
    abandon: () => void done.push(`${name} abandoned`),
  });
  const names = [
    'ends',
    'replies',
    'streams',
    'feed',
    'flowWork',
    'families',
    'topicWork',
    'doorbell',
    'transactions',
    'handlings',
    'database',
  ];
  const parts = Object.fromEntries(names.map((name) => [name, part(name)]));
  return { context: { companions: [], ...parts } as unknown as EngineContext, done };
}

const ABANDONED = ['database', 'transactions', 'handlings', 'doorbell'].map((name) => `${name} abandoned`);

it('leaves no timer behind when the work fails before its deadline', async () => {
  await expect(withDeadline(Promise.reject(new Error('the work failed')), 60_000)).rejects.toThrow('failed');
  expect(vi.getTimerCount()).toBe(0);
});

it('gives up every connection when a part does not close', async () => {
  const { context, done } = contextOf('feed');
  await expect(closingOf(context, [], async () => undefined)()).rejects.toThrow('feed does not close');
  expect(done).toEqual(expect.arrayContaining(ABANDONED));
  expect(vi.getTimerCount()).toBe(0);
});

it('closes the rest when user code cannot be ended', async () => {
  const { context, done } = contextOf();
  const endUserCode = () => Promise.reject(new Error('user code did not end'));
  await expect(closingOf(context, [], endUserCode)()).rejects.toThrow('did not end');
  expect(done).toEqual(expect.arrayContaining(['database closed', ...ABANDONED]));
});
