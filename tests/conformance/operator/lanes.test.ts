/**
 * Lanes: paused, resumed and listed with how full and how busy they are. Time passes by moving the clock.
 */
import { describe, expect, it, vi } from 'vitest';
import type { LanePage, LaneSnapshot } from '../../../src/contract/operations.ts';
import { LIMITS } from '../../../src/index.ts';
import { claimRequest, LISTENING, newKind, useBench, WAIT } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();
const MINUTE_MS = 60_000;

const newLane = () => `lane-of-${newKind()}`;
const times = <Item>(count: number, item: Item): Item[] => Array.from({ length: count }, () => item);

async function lane(name: string): Promise<LaneSnapshot> {
  const { lanes } = await bench.engine.lanes.list({ limit: LIMITS.listPage });
  const found = lanes.find((one) => one.lane === name);
  if (found === undefined) throw new Error(`lane ${name} is not listed`);
  return found;
}

/** The same from a page of its own, so that it need not share the limits of a page. */
async function laneAlone(name: string): Promise<LaneSnapshot> {
  let cursor: string | null = null;
  do {
    const page: LanePage = await bench.engine.lanes.list({
      limit: 1,
      ...(cursor === null ? {} : { cursor }),
    });
    if (page.lanes[0]?.lane === name) return page.lanes[0];
    cursor = page.cursor;
  } while (cursor !== null);
  throw new Error(`lane ${name} is not listed`);
}

const PAUSED = { outcome: 'paused', repeated: false, isNew: false };
const OPEN = { paused: false, pausedAtMs: null, pausedBy: null, pauseReason: null };

describe('a paused lane', () => {
  it('grants no work, lets running work continue, and grants the rest when it is resumed', async () => {
    const [kind, name] = [newKind(), newLane()];
    const running = await bench.running({ kind, lane: name });
    await bench.submit({ kind, lane: name });
    expect(await bench.engine.lanes.pause(name)).toEqual(PAUSED);
    expect(await lane(name)).toMatchObject({ paused: true, depth: 1, running: 1 });
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
    const renewed = await bench.port.renew([running], 10_000);
    expect(renewed).toMatchObject([{ outcome: 'renewed' }]);
    expect(await bench.port.complete(running)).toMatchObject({ outcome: 'completed' });
    expect(await bench.engine.lanes.resume(name)).toEqual({ outcome: 'resumed', repeated: false });
    expect(await lane(name)).toMatchObject({ paused: false });
    const { claims } = await bench.port.claim({ ...claimRequest(), kinds: [kind] });
    expect(claims).toHaveLength(1);
  });

  it('keeps its work from processes that were not notified of the pause', async () => {
    const [kind, name] = [newKind(), newLane()];
    await bench.submit({ kind, lane: name });
    const other = await bench.another();
    const ask = () => workerPort(other).claim({ ...claimRequest(), kinds: [kind], limit: 1 });
    expect((await ask()).claims).toHaveLength(1);
    await bench.submit({ kind, lane: name });
    await bench.engine.lanes.pause(name);
    expect((await ask()).claims).toEqual([]);
  });

  it('does not affect other lanes of the same kind', async () => {
    const [kind, name, free] = [newKind(), newLane(), newLane()];
    await bench.submit({ kind, lane: name });
    await bench.submit({ kind, lane: free });
    await bench.engine.lanes.pause(name);
    expect((await bench.claim({ kinds: [kind] })).map((claim) => claim.lane)).toEqual([free]);
  });

  it('shows who paused it, when and why, until it is resumed', async () => {
    const name = newLane();
    await bench.submit({ lane: name });
    expect(await lane(name)).toMatchObject(OPEN);
    const reason = 'the mail server is down';
    await bench.engine.lanes.pause(name, { reason, by: 'ada' });
    const { pausedAtMs, ...rest } = await lane(name);
    expect(rest).toMatchObject({ paused: true, pausedBy: 'ada', pauseReason: reason });
    expect(pausedAtMs).toEqual(expect.any(Number));
    await bench.database.moveClock(MINUTE_MS);
    // The second caller did not pause it.
    await bench.engine.lanes.pause(name, { reason: 'me too', by: 'bob' });
    expect(await lane(name)).toMatchObject({ pausedAtMs, pausedBy: 'ada', pauseReason: reason });
    await bench.engine.lanes.resume(name);
    expect(await lane(name)).toMatchObject(OPEN);
    await bench.engine.lanes.pause(name);
    const again = await lane(name);
    expect(again).toMatchObject({ paused: true, pausedBy: 'operator', pauseReason: null });
    expect(again.pausedAtMs).toBeGreaterThanOrEqual(pausedAtMs! + MINUTE_MS);
  });

  it('may be a new one, which the outcome reports', async () => {
    const [kind, name] = [newKind(), newLane()];
    expect(await bench.engine.lanes.pause(name)).toEqual({ ...PAUSED, isNew: true });
    expect(await lane(name)).toMatchObject({ paused: true, depth: 0, running: 0, oldestAgeMs: null });
    await bench.submit({ kind, lane: name });
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
  });

  it('notifies processes that saw it paused when it is resumed', async () => {
    if (!LISTENING) return;
    const [kind, name] = [newKind(), newLane()];
    await bench.submit({ kind, lane: name });
    await bench.engine.lanes.pause(name);
    const other = await bench.another();
    const ask = () => workerPort(other).claim({ ...claimRequest(), kinds: [kind] });
    expect((await ask()).claims).toEqual([]);
    const woken = vi.fn(() => false);
    workerPort(other).watch({ kinds: [kind] }, woken);
    await vi.waitFor(async () => {
      // Repeated until the other process listens: a hint about an unknown route reaches every watcher.
      await bench.submit();
      expect(woken).toHaveBeenCalled();
    }, WAIT);
    expect((await ask()).claims).toEqual([]);
    woken.mockClear();
    await bench.engine.lanes.resume(name);
    await vi.waitFor(
      () => expect(woken).toHaveBeenCalledWith(expect.objectContaining({ routes: 'all' })),
      WAIT,
    );
    expect((await ask()).claims).toHaveLength(1);
  });
});

describe('repeated', () => {
  it('a pause and a resume report that nothing changed', async () => {
    const name = newLane();
    await bench.engine.lanes.pause(name);
    expect(await bench.engine.lanes.pause(name)).toEqual({ ...PAUSED, repeated: true });
    await bench.engine.lanes.resume(name);
    expect(await bench.engine.lanes.resume(name)).toEqual({ outcome: 'resumed', repeated: true });
    expect(await bench.engine.lanes.pause(name)).toEqual(PAUSED);
  });

  it('a resume of a lane that does not exist creates none', async () => {
    const name = newLane();
    expect(await bench.engine.lanes.resume(name)).toEqual({ outcome: 'resumed', repeated: true });
    await expect(lane(name)).rejects.toThrow('not listed');
  });
});

describe('the depth of a lane', () => {
  it('excludes queue entries whose execution was moved or has finished', async () => {
    const [kind, name] = [newKind(), newLane()];
    const ids = (await bench.engine.executions.submit(times(3, { kind, lane: name }))).map(
      (one) => one.executionId,
    );
    await bench.engine.executions.changePriority(ids, { priority: 7 });
    expect(await lane(name)).toMatchObject({ depth: 3 });
    await bench.engine.cancel(ids, { reason: 'not wanted' });
    expect(await lane(name)).toMatchObject({ depth: 0, oldestAgeMs: null });
  });

  it('counts what waits for a worker, over all its kinds, and nothing else', async () => {
    const [name, kind] = [newLane(), newKind()];
    await bench.submit({ lane: name, capabilities: ['gpu'] });
    await bench.submit({ lane: name, priority: 5 });
    await bench.submit({ lane: name, delay: MINUTE_MS });
    await bench.submit({ lane: newLane() });
    const claim = await bench.running({ lane: name, kind });
    expect(await lane(name)).toMatchObject({ depth: 2, depthIsCapped: false, running: 1 });
    await bench.port.complete(claim);
    expect(await lane(name)).toMatchObject({ depth: 2, running: 0 });
  });

  it('is counted up to its limit', async () => {
    const name = newLane();
    const kinds = [newKind(), newKind()];
    const submit = (kind: string, count: number) =>
      bench.engine.executions.submit(times(count, { kind, lane: name }));
    await submit(kinds[0]!, LIMITS.laneDepth - 1);
    await submit(kinds[1]!, 1);
    expect(await laneAlone(name)).toMatchObject({ depth: LIMITS.laneDepth, depthIsCapped: false });
    await submit(kinds[1]!, 1);
    expect(await laneAlone(name)).toMatchObject({ depth: LIMITS.laneDepth, depthIsCapped: true });
  });
});

describe('the oldest execution of a lane', () => {
  it('is found behind younger work of higher priority, and of another kind', async () => {
    const [name, kind] = [newLane(), newKind()];
    await bench.submit({ lane: name, kind, priority: 1 });
    await bench.database.moveClock(MINUTE_MS);
    await bench.submit({ lane: name, kind, priority: 100 });
    await bench.submit({ lane: name, kind, priority: 50 });
    await bench.database.moveClock(MINUTE_MS);
    await bench.submit({ lane: name, priority: 9_000 });
    const { oldestAgeMs } = await lane(name);
    expect(oldestAgeMs).toBeGreaterThanOrEqual(2 * MINUTE_MS);
    const claims = await bench.claim({ kinds: [kind] });
    expect(claims).toHaveLength(3);
    expect((await lane(name)).oldestAgeMs).toBeLessThan(MINUTE_MS);
  });

  it('is null when none is waiting', async () => {
    const name = newLane();
    await bench.running({ lane: name });
    expect(await lane(name)).toMatchObject({ depth: 0, running: 1, oldestAgeMs: null });
  });

  it('has the age since it became claimable, not since it was submitted', async () => {
    const name = newLane();
    await bench.submit({ lane: name, delay: 10 * MINUTE_MS });
    expect((await lane(name)).oldestAgeMs).toBeNull();
    await bench.database.moveClock(10 * MINUTE_MS);
    await bench.port.fireTimers();
    await bench.database.moveClock(MINUTE_MS);
    const { oldestAgeMs } = await lane(name);
    expect(oldestAgeMs).toBeGreaterThanOrEqual(MINUTE_MS);
    expect(oldestAgeMs).toBeLessThan(10 * MINUTE_MS);
  });
});

describe('the rates of a lane', () => {
  const perSecond = (count: number) => count / (LIMITS.rateSpanMs / 1_000);

  it('are those of the last minute, by lane, whatever the namespace and outcome', async () => {
    // Nothing from earlier tests remains in the minute.
    await bench.database.moveClock(LIMITS.rateSpanMs + 1);
    const [name, other, kind] = [newLane(), newLane(), newKind()];
    for (const namespace of ['b', 'a', 'c']) await bench.submit({ lane: name, kind, namespace });
    await bench.submit({ lane: other });
    const [first, second] = await bench.claim({ kinds: [kind] });
    await bench.port.complete(first!);
    await bench.port.fail(second!, { message: 'no' });
    expect(await lane(name)).toMatchObject({ arrivalRate: perSecond(3), completionRate: perSecond(2) });
    expect(await lane(other)).toMatchObject({ arrivalRate: perSecond(1), completionRate: 0 });
    await bench.database.moveClock(LIMITS.rateSpanMs);
    expect(await lane(name)).toMatchObject({ arrivalRate: 0, completionRate: 0 });
  });

  it('are those of the time a full sample spans', async () => {
    await bench.database.moveClock(LIMITS.rateSpanMs + 1);
    const [name, kind] = [newLane(), newKind()];
    await bench.submit({ lane: name, kind });
    await bench.database.moveClock(20_000);
    await bench.engine.executions.submit(times(LIMITS.rateSample, { kind, lane: name }));
    await bench.database.moveClock(10_000);
    const { arrivalRate } = await lane(name);
    // Only the newest count, over the ten seconds since the first of them and the duration of the test.
    expect(arrivalRate).toBeLessThanOrEqual(LIMITS.rateSample / 10);
    expect(arrivalRate).toBeGreaterThan(LIMITS.rateSample / 60);
  });
});

describe('the list of lanes', () => {
  const encoded = (parts: unknown): string => Buffer.from(JSON.stringify(parts)).toString('base64url');

  it('is sorted by name and paged, each lane once', async () => {
    const names = times(5, '').map(newLane);
    for (const name of names) await bench.submit({ lane: name });
    const whole = await bench.engine.lanes.list({ limit: LIMITS.listPage });
    expect(whole.cursor).toBeNull();
    const paged: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await bench.engine.lanes.list({ limit: 2, ...(cursor === undefined ? {} : { cursor }) });
      expect(page.lanes.length).toBeLessThanOrEqual(2);
      paged.push(...page.lanes.map((one) => one.lane));
      cursor = page.cursor ?? undefined;
    } while (cursor !== undefined);
    expect(paged).toEqual(whole.lanes.map((one) => one.lane));
    expect(new Set(paged).size).toBe(paged.length);
    for (const name of names) expect(paged).toContain(name);
  });

  it('has no cursor after a last page that is full', async () => {
    const { lanes } = await bench.engine.lanes.list({ limit: LIMITS.listPage });
    expect((await bench.engine.lanes.list({ limit: lanes.length })).cursor).toBeNull();
    expect((await bench.engine.lanes.list({ limit: lanes.length - 1 })).cursor).not.toBeNull();
  });

  it.each([
    [{ limit: 0 }, 'invalid_input', 'limit'],
    [{ limit: LIMITS.listPage + 1 }, 'invalid_input', 'limit'],
    [{ pages: 1 }, 'invalid_input', 'request.pages'],
    [{ cursor: 'x' }, 'invalid_cursor', 'cursor'],
    [{ cursor: encoded([1, 'lanes']) }, 'invalid_cursor', 'cursor'],
    [{ cursor: encoded([1, 'lanes', '']) }, 'invalid_cursor', 'cursor'],
    [{ cursor: encoded([1, 'lanes', 'läne']) }, 'invalid_cursor', 'cursor'],
    [{ cursor: encoded([1, 'lanes', 'a', 'b']) }, 'invalid_cursor', 'cursor'],
    [{ cursor: encoded([1, 'other', 'a']) }, 'invalid_cursor', 'cursor'],
    [{ cursor: encoded([2, 'lanes', 'a']) }, 'invalid_cursor', 'cursor'],
    [{ cursor: 5 }, 'invalid_cursor', 'cursor'],
    [{ cursor: null }, 'invalid_cursor', 'cursor'],
  ])('refuses %j', async (request, code, field) => {
    await expect(bench.engine.lanes.list(request as object)).rejects.toMatchObject({ code, field });
  });

  it.each(['', 'x'.repeat(LIMITS.laneBytes + 1), 'läne', 5])('accepts no lane named %j', async (name) => {
    const refused = { code: 'invalid_input', field: 'lane' };
    await expect(bench.engine.lanes.pause(name as string)).rejects.toMatchObject(refused);
    await expect(bench.engine.lanes.resume(name as string)).rejects.toMatchObject(refused);
  });

  it('refuses the cursor of another list, as others refuse its own', async () => {
    const kind = newKind();
    for (const name of [newLane(), newLane()]) await bench.submit({ kind, lane: name });
    const filter = { kind };
    const [ofLanes, ofList] = [
      (await bench.engine.lanes.list({ limit: 1 })).cursor!,
      (await bench.engine.executions.list({ filter, limit: 1 })).cursor!,
    ];
    const refused = { code: 'invalid_cursor', field: 'cursor' };
    await expect(bench.engine.lanes.list({ cursor: ofList })).rejects.toMatchObject(refused);
    await expect(bench.engine.executions.list({ filter, cursor: ofLanes })).rejects.toMatchObject(refused);
  });

  it.each([
    [{ reason: '' }, 'reason'],
    [{ reason: 'x'.repeat(LIMITS.reasonBytes + 1) }, 'reason'],
    [{ reason: 5 }, 'reason'],
    [{ by: '' }, 'by'],
    [{ by: 'x'.repeat(LIMITS.reasonBytes + 1) }, 'by'],
    [{ why: 'x' }, 'note.why'],
    ['why', 'note'],
    [null, 'note'],
  ])('accepts no pause with the note %j', async (note, field) => {
    const name = newLane();
    await expect(bench.engine.lanes.pause(name, note as object)).rejects.toMatchObject({
      code: 'invalid_input',
      field,
    });
    await expect(lane(name)).rejects.toThrow('not listed');
  });
});
