/**
 * How often positions are assigned, counted by a clock that the test moves: no database.
 */
import { afterEach, beforeEach, expect, it, onTestFinished, vi } from 'vitest';
import { Answers } from '../database/answers.ts';
import type { Database } from '../database/database.ts';
import { Pulse } from './pulse.ts';
import type { FeedWatcher } from './source.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] }));
afterEach(() => void vi.useRealTimers());

/** A reader that waits at the end of a log, and whoever writes to it. */
function waiting() {
  const log = { last: 0, polls: 0 };
  let hints!: FeedWatcher;
  let stamped = 0;
  const query = async () => {
    log.polls += 1;
    const rows = [{ last: String(log.last), stamped: log.last - stamped, floor: '1' }];
    stamped = log.last;
    return { rows };
  };
  const database = {
    schema: 's',
    prefix: 's.',
    pool: { query },
    answers: new Answers(),
  } as unknown as Database;
  const watch = (watcher: FeedWatcher): (() => void) => {
    hints = watcher;
    return () => undefined;
  };
  const pulse = new Pulse(database, watch, () => undefined);
  const stop = new AbortController();
  const follow = async (): Promise<void> => {
    for (;;) await pulse.wait(BigInt(log.last), stop.signal);
  };
  const following = follow().catch(() => undefined);
  onTestFinished(async () => {
    stop.abort();
    await following;
  });
  const pollsIn = async (ms: number): Promise<number> => {
    const before = log.polls;
    await vi.advanceTimersByTimeAsync(ms);
    return log.polls - before;
  };
  return { log, pollsIn, stir: () => hints.stirred() };
}

it('while nothing happens, ten times a second and not much more', async () => {
  const { pollsIn } = waiting();
  await pollsIn(1_000);
  const polls = await pollsIn(10_000);
  expect(polls).toBeGreaterThanOrEqual(100);
  expect(polls).toBeLessThanOrEqual(126);
});

it('every 2 ms for 50 ms after something was assigned, and then less and less often', async () => {
  const { log, pollsIn } = waiting();
  await pollsIn(1_000);
  log.last += 1;
  await pollsIn(100);
  log.last += 1;
  expect(await pollsIn(100)).toBeGreaterThan(0);
  log.last += 1;
  await pollsIn(1);
  const early = await pollsIn(48);
  expect(early).toBeLessThanOrEqual(25);
  await pollsIn(1_000);
  expect(await pollsIn(1_000)).toBeLessThanOrEqual(13);
});

it('a hint makes the next one come at once, and others follow every 2 ms', async () => {
  const { pollsIn, stir } = waiting();
  await pollsIn(1_000);
  stir();
  expect(await pollsIn(2)).toBeGreaterThanOrEqual(1);
  expect(await pollsIn(40)).toBe(20);
});

it('hints without end cause no more than one every 2 ms', async () => {
  const { pollsIn, stir } = waiting();
  let polls = 0;
  for (let ms = 0; ms < 1_000; ms += 1) {
    for (let n = 0; n < 10; n += 1) stir();
    polls += await pollsIn(1);
  }
  expect(polls).toBeLessThanOrEqual(501);
});
