/**
 * One verb for everything that matches a filter: chunks, which states are included, what is left alone, resuming from a
 * cursor, and dry runs.
 */
import { describe, expect, it, vi } from 'vitest';
import { BULK_STATES, type BulkProgress, type BulkRequest } from '../../../src/contract/operations.ts';
import { LIMITS, type ExecutionId, type PublicState, type SubmitRequest } from '../../../src/index.ts';
import { newKind, useBench, WAIT } from '../open.ts';

const bench = useBench();
const WHY = { reason: 'why', by: 'ann' };

async function submitMany(count: number, request: Partial<SubmitRequest>): Promise<ExecutionId[]> {
  const kind = newKind();
  const submitted = await bench.engine.executions.submit(
    Array.from({ length: count }, () => ({ kind, ...request })),
  );
  return submitted.map(({ executionId }) => executionId);
}

async function told(request: BulkRequest): Promise<BulkProgress[]> {
  const progress: BulkProgress[] = [];
  for await (const each of bench.engine.executions.bulk(request)) progress.push(each);
  return progress;
}

async function statesOf(ids: readonly ExecutionId[]): Promise<string[]> {
  return Promise.all(ids.map(async (id) => (await bench.snapshot(id)).state));
}

describe('bulk', () => {
  it('cancels what matches, and nothing else', async () => {
    const [namespace, kind] = [newKind(), newKind()];
    const ids = await submitMany(5, { namespace, kind });
    const running = await bench.running({ namespace, kind });
    const others = [await bench.submit({ namespace }), await bench.submit({ kind })];
    const progress = await told({ verb: 'cancel', ...WHY, filter: { namespace, kind } });
    expect(progress).toEqual([{ matched: 6, outcomes: { cancelled: 6 }, cursor: null }]);
    expect(new Set(await statesOf([...ids, running.executionId]))).toEqual(new Set(['cancelled']));
    expect(await statesOf(others)).toEqual(['waiting', 'waiting']);
    expect(await bench.engine.executions.result(ids[0]!)).toMatchObject({ message: 'why', by: 'ann' });
  });

  it('works chunk by chunk, and reports the totals so far', async () => {
    const namespace = newKind();
    await submitMany(7, { namespace });
    const progress = await told({
      verb: 'cancel',
      ...WHY,
      filter: { namespace, states: ['waiting'] },
      chunk: 3,
    });
    expect(progress.map(({ matched }) => matched)).toEqual([3, 6, 7]);
    expect(progress.map(({ outcomes }) => outcomes)).toEqual([
      { cancelled: 3 },
      { cancelled: 6 },
      { cancelled: 7 },
    ]);
    expect(progress.map(({ cursor }) => cursor === null)).toEqual([false, false, true]);
  });

  it('replays failed executions', async () => {
    const namespace = newKind();
    for (const category of ['disk', 'disk', 'other']) {
      await bench.port.fail(await bench.running({ namespace }), { message: 'ouch', category });
    }
    const filter = { namespace, states: ['failed'], failure: { category: 'disk' } } as const;
    expect(await told({ verb: 'replay', reason: 'the disk is back', filter })).toEqual([
      { matched: 2, outcomes: { replayed: 2 }, cursor: null },
    ]);
    const { executions } = await bench.engine.executions.list({ filter: { namespace, states: ['waiting'] } });
    expect(executions.map(({ replayCount }) => replayCount)).toEqual([1, 1]);
  });

  it('counts refused executions by outcome', async () => {
    const namespace = newKind();
    const once = await bench.running({ namespace, policy: { maxReplays: 0 } });
    for (const lease of [once, await bench.running({ namespace })]) {
      await bench.port.fail(lease, { message: 'ouch', retry: 'never' });
    }
    const filter = { namespace, states: ['failed'] } as const;
    expect(await told({ verb: 'replay', ...WHY, filter })).toMatchObject([
      { matched: 2, outcomes: { replayed: 1, replays_exhausted: 1 } },
    ]);
  });

  it('moves each execution in the queue once, even down to where the list has yet to pass', async () => {
    const [namespace, kind] = [newKind(), newKind()];
    const ids = await submitMany(5, { namespace, kind, priority: 5 });
    const low = await bench.submit({ namespace, kind, priority: 2 });
    const filter = { namespace, states: ['waiting'] } as const;
    for (const priority of [1, 8]) {
      const progress = await told({ verb: 'change_priority', priority, filter, chunk: 2 });
      expect(progress.at(-1)).toMatchObject({ matched: 6, outcomes: { changed: 6 } });
      const priorities = await Promise.all(
        [...ids, low].map(async (id) => (await bench.snapshot(id)).priority),
      );
      expect(new Set(priorities)).toEqual(new Set([priority]));
    }
    expect(await told({ verb: 'change_priority', priority: 8, filter })).toMatchObject([{ matched: 0 }]);
  });

  it('only counts in a dry run', async () => {
    const namespace = newKind();
    const ids = await submitMany(5, { namespace });
    const progress = await told({ verb: 'cancel', ...WHY, filter: { namespace }, chunk: 3, dryRun: 'on' });
    expect(progress.at(-1)).toEqual({ matched: 5, outcomes: {}, cursor: null });
    expect(new Set(await statesOf(ids))).toEqual(new Set(['waiting']));
  });

  it('reports a filter that matches nothing once', async () => {
    const filter = { namespace: newKind() };
    expect(await told({ verb: 'cancel', ...WHY, filter })).toEqual([
      { matched: 0, outcomes: {}, cursor: null },
    ]);
  });

  it('reports empty chunks too, and does not act on them', async () => {
    const team = newKind();
    const id = await bench.submit({ tags: { team } });
    await bench.database.query(
      `INSERT INTO ff_tag SELECT 'team', $1, $3::bigint - n, gen_random_uuid(), 0 FROM generate_series(1, $2::integer) n`,
      [team, LIMITS.listExamined + 1, (await bench.snapshot(id)).createdAtMs],
    );
    const progress = await told({ verb: 'cancel', ...WHY, filter: { tags: { team } }, chunk: 1 });
    expect(progress.length).toBeGreaterThan(1);
    expect(new Set(progress.map(({ matched }) => matched))).toEqual(new Set([1]));
    expect(progress.at(-1)).toEqual({ matched: 1, outcomes: { cancelled: 1 }, cursor: null });
  });
});

describe('without states', () => {
  it('cancel finds executions again that move on meanwhile, and skips finished ones', async () => {
    const [namespace, kind] = [newKind(), newKind()];
    await bench.port.complete(await bench.running({ namespace }));
    const ids = await submitMany(3, { namespace, kind, delay: 1_000 });
    const request = { verb: 'cancel', ...WHY, filter: { namespace }, chunk: 1 } as const;
    const steps = bench.engine.executions.bulk(request)[Symbol.asyncIterator]();
    await steps.next();
    await bench.database.moveClock(2_000);
    await bench.port.fireTimers();
    // One of the two left is running now, the other is waiting.
    await bench.claimOne(kind);
    let last: BulkProgress | undefined;
    for (let step = await steps.next(); !step.done; step = await steps.next()) last = step.value;
    expect(last).toEqual({ matched: 3, outcomes: { cancelled: 3 }, cursor: null });
    expect(new Set(await statesOf(ids))).toEqual(new Set(['cancelled']));
  });

  it('change_priority applies to waiting executions', async () => {
    const namespace = newKind();
    const delayed = await bench.submit({ namespace, delay: 60_000 });
    await bench.running({ namespace });
    const waiting = await bench.submit({ namespace });
    expect(await told({ verb: 'change_priority', priority: 7, filter: { namespace } })).toEqual([
      { matched: 1, outcomes: { changed: 1 }, cursor: null },
    ]);
    expect(await bench.snapshot(waiting)).toMatchObject({ priority: 7 });
    expect(await bench.snapshot(delayed)).toMatchObject({ priority: 0 });
  });

  it('replay is refused: the outcomes to replay must be given', async () => {
    const refused = told({ verb: 'replay', ...WHY, filter: { kind: 'k' } });
    await expect(refused).rejects.toMatchObject({ code: 'invalid_input', field: 'filter.states' });
    await expect(refused).rejects.toThrow('so that completed executions are not replayed by accident');
  });
});

describe('a state that the verb does not apply to', () => {
  const CASES: [BulkRequest, string][] = [
    [{ verb: 'cancel', ...WHY, filter: { states: ['waiting', 'failed'] } }, 'failed'],
    [{ verb: 'replay', ...WHY, filter: { states: ['failed', 'delayed'] } }, 'delayed'],
    [{ verb: 'change_priority', priority: 1, filter: { states: ['waiting', 'active'] } }, 'active'],
  ];

  it.each(CASES)('is refused in %j, also in a dry run', async (request, state) => {
    for (const dryRun of ['on', 'off'] as const) {
      const refused = told({ ...request, dryRun });
      await expect(refused).rejects.toMatchObject({ code: 'invalid_input', field: 'filter.states' });
      await expect(refused).rejects.toThrow(`contains ${state}, but ${request.verb} accepts only`);
    }
  });
});

describe('bulk leaves alone', () => {
  it('what was claimed between listing and acting', async () => {
    const [namespace, kind] = [newKind(), newKind()];
    await submitMany(3, { namespace, kind });
    const filter = { namespace, states: ['waiting'] } as const;
    const [head] = (await bench.engine.executions.list({ filter, limit: 1 })).executions;
    // A worker is about to claim the first one; the verb waits for its row.
    const worker = await bench.database.connect();
    await worker.query('BEGIN');
    await worker.query(
      `SELECT * FROM ff_claim(ARRAY(SELECT route_id FROM ff_route WHERE kind = $1), ARRAY[NULL]::integer[], ARRAY[0],
         1, 'w', 'w-1', gen_random_uuid(), 30000)`,
      [kind],
    );
    const progress = told({ verb: 'cancel', ...WHY, filter });
    await vi.waitFor(async () => {
      const blocked = await worker.query(
        'SELECT 1 FROM pg_stat_activity WHERE pg_backend_pid() = ANY (pg_blocking_pids(pid)) LIMIT 1',
      );
      expect(blocked.rowCount).toBe(1);
    }, WAIT);
    await worker.query('COMMIT');
    expect(await progress).toMatchObject([{ matched: 3, outcomes: { cancelled: 2, moved: 1 } }]);
    expect(await statesOf([head!.executionId])).toEqual(['active']);
  });

  it('what no longer matches when its chunk is reached', async () => {
    const [namespace, kind] = [newKind(), newKind()];
    const ids = await submitMany(3, { namespace, kind });
    const filter = { namespace, states: ['waiting'] } as const;
    const request = { verb: 'cancel', ...WHY, filter, chunk: 1 } as const;
    const steps = bench.engine.executions.bulk(request)[Symbol.asyncIterator]();
    expect(await steps.next()).toMatchObject({ value: { matched: 1, outcomes: { cancelled: 1 } } });
    const claim = await bench.claimOne(kind);
    expect(await steps.next()).toMatchObject({ value: { matched: 2, outcomes: { cancelled: 2 } } });
    expect(await statesOf(ids)).toEqual(ids.map((id) => (id === claim.executionId ? 'active' : 'cancelled')));
  });

  it('what was submitted after it started', async () => {
    const namespace = newKind();
    await submitMany(4, { namespace });
    const filter = { namespace, states: ['waiting'] } as const;
    const request = { verb: 'cancel', ...WHY, filter, chunk: 2 } as const;
    const steps = bench.engine.executions.bulk(request)[Symbol.asyncIterator]();
    await steps.next();
    await bench.database.moveClock(10);
    const late = await bench.submit({ namespace });
    let last: BulkProgress | undefined;
    for (let step = await steps.next(); !step.done; step = await steps.next()) last = step.value;
    expect(last).toEqual({ matched: 4, outcomes: { cancelled: 4 }, cursor: null });
    expect(await statesOf([late])).toEqual(['waiting']);
  });
});

describe('a bulk that was interrupted', () => {
  it('resumes from its cursor, and still leaves alone what was submitted after it started', async () => {
    const namespace = newKind();
    const ids = await submitMany(5, { namespace });
    const request = { verb: 'cancel', ...WHY, filter: { namespace }, chunk: 2 } as const;
    const steps = bench.engine.executions.bulk(request)[Symbol.asyncIterator]();
    const { value } = await steps.next();
    await steps.return?.();
    const states = await statesOf(ids);
    expect(states.filter((state) => state === 'cancelled')).toHaveLength(2);
    await bench.database.moveClock(10);
    const late = await bench.submit({ namespace });
    expect((await told({ ...request, cursor: value.cursor })).at(-1)).toEqual({
      matched: 3,
      outcomes: { cancelled: 3 },
      cursor: null,
    });
    expect(new Set(await statesOf(ids))).toEqual(new Set(['cancelled']));
    expect(await statesOf([late])).toEqual(['waiting']);
  });

  it('may repeat the states it started with, and no others', async () => {
    const namespace = newKind();
    await submitMany(3, { namespace });
    const request = { verb: 'cancel', ...WHY, chunk: 2 } as const;
    const steps = bench.engine.executions.bulk({ ...request, filter: { namespace } })[Symbol.asyncIterator]();
    const { cursor } = (await steps.next()).value;
    await steps.return?.();
    const naming = (states: readonly PublicState[]) =>
      told({ ...request, filter: { namespace, states }, cursor });
    await expect(naming(['waiting'])).rejects.toMatchObject({ code: 'invalid_cursor' });
    expect(await naming(BULK_STATES.cancel.allowed)).toMatchObject([{ matched: 1, cursor: null }]);
  });
});
