/**
 * The background work on flows: a request is never lost, at whatever moment it comes.
 */
import { describe, expect, it } from 'vitest';
import { FlowWork } from './work.ts';

/** More microtasks than the work takes to end. */
const MOMENTS = Array.from({ length: 11 }, (_, moment) => moment);

describe('work on flows in the background', () => {
  it.each(MOMENTS)('is done for a request made %i microtasks after it began', async (moment) => {
    let runs = 0;
    const work = new FlowWork(async () => (runs += 1));
    work.stir();
    for (let microtask = 0; microtask < moment; microtask += 1) await undefined;
    await work.finish();
    expect(runs).toBe(2);
    await work.close();
  });

  it('is not done after closing', async () => {
    let runs = 0;
    const work = new FlowWork(async () => (runs += 1));
    await work.close();
    await work.finish();
    expect(runs).toBe(0);
  });
});
