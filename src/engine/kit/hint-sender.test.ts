/**
 * How many notifications a process sends and what they say, by a clock that the test moves: no database.
 */
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { Hint } from '../../contract/protocol.ts';
import { HINTS, HintSender } from './hint-sender.ts';
import { completeHint, decodeHint } from './hint-text.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

function newSender(post: (text: string) => Promise<void> = async () => undefined) {
  const sent: Hint[] = [];
  const sender = new HintSender(async (text) => {
    sent.push(decodeHint(text).hint);
    await post(text);
  }, 'me');
  return { sender, sent };
}

const ofRoute = (route: number): Hint => completeHint({ routes: [route], count: 1 });
const settled = (): Promise<void> => vi.advanceTimersByTimeAsync(0).then(() => undefined);

describe('hints', () => {
  it('are sent at once while there are few', async () => {
    const { sender, sent } = newSender();
    for (let route = 0; route < 10; route += 1) {
      sender.send(ofRoute(route));
      expect(sent.at(-1)).toMatchObject({ routes: [route] });
      await vi.advanceTimersByTimeAsync(HINTS.everyMs);
    }
    expect(sent).toHaveLength(10);
  });

  it('beyond the burst are merged until the next one may be sent', async () => {
    const { sender, sent } = newSender();
    for (let route = 0; route < 10; route += 1) {
      sender.send(ofRoute(route));
      await settled();
    }
    expect(sent.map(({ routes }) => routes)).toEqual([[0], [1], [2], [3]]);
    await vi.advanceTimersByTimeAsync(HINTS.everyMs);
    expect(sent.at(-1)?.routes).toEqual([4, 5, 6, 7, 8, 9]);
    await vi.advanceTimersByTimeAsync(1_000);
    expect(sent).toHaveLength(5);
  });

  it('of a process that has always something to say are the burst and one per interval', async () => {
    const { sender, sent } = newSender();
    for (let ms = 0; ms < 1_000; ms += 1) {
      for (let n = 0; n < 5; n += 1) sender.send(ofRoute(n));
      await vi.advanceTimersByTimeAsync(1);
    }
    expect(sent.length).toBeLessThanOrEqual(HINTS.burst + 1_000 / HINTS.everyMs);
    expect(sent.length).toBeGreaterThan(1_000 / HINTS.everyMs - HINTS.burst);
  });

  it('that come while one is under way wait for it, and are merged', async () => {
    const answers: (() => void)[] = [];
    const { sender, sent } = newSender(() => new Promise((resolve) => answers.push(resolve)));
    for (let route = 0; route < 3; route += 1) sender.send(ofRoute(route));
    expect(sent).toHaveLength(1);
    answers[0]!();
    await settled();
    expect(sent.map(({ routes }) => routes)).toEqual([[0], [1, 2]]);
  });

  it('that cannot be sent are lost, and the next ones are sent', async () => {
    const { sender, sent } = newSender(() => Promise.reject(new Error('gone')));
    sender.send(ofRoute(1));
    await settled();
    sender.send(ofRoute(2));
    expect(sent.map(({ routes }) => routes)).toEqual([[1], [2]]);
  });

  it('that are pending when the process closes are sent without a wait', async () => {
    const { sender, sent } = newSender();
    for (let route = 0; route < 10; route += 1) {
      sender.send(ofRoute(route));
      await settled();
    }
    await sender.close();
    expect(sent.at(-1)?.routes).toEqual([4, 5, 6, 7, 8, 9]);
    sender.send(ofRoute(99));
    expect(sent).toHaveLength(5);
  });
});
