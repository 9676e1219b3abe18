/**
 * Waiting for the outcome of an execution: notified by the same process, by another, or by polling when neither can;
 * and how a wait itself ends.
 */
import { describe, expect, it } from 'vitest';
import type { Connection, WaitOptions } from '../../../src/index.ts';
import { LEASE_MS, misplaced, newKind, useBench, WAIT } from '../open.ts';

const bench = useBench();
const WHY = { reason: 'why', by: 'ann' };

/** Starts a wait, and returns once it is certain that the execution has not finished yet. */
async function waiting(
  engine: Connection,
  executionId: string,
  options?: WaitOptions,
): Promise<{ end: Promise<unknown>; settled: () => boolean }> {
  let isSettled = false;
  const end = engine.executions.wait(executionId, options);
  const note = (): void => void (isSettled = true);
  end.then(note, note);
  await engine.executions.describe(executionId);
  expect(isSettled).toBe(false);
  return { end, settled: () => isSettled };
}

describe('waiting for an execution that has finished', () => {
  it('returns its outcome, whatever that was', async () => {
    const [done, failed, cancelled, lost] = [
      await bench.running(),
      await bench.running(),
      await bench.running(),
      await bench.running(),
    ];
    await bench.port.complete(done, { answer: 42 });
    await bench.port.fail(failed, { message: 'no', category: 'bad' });
    await bench.engine.cancel(cancelled.executionId, WHY);
    await bench.loseLeases();
    expect(await bench.engine.executions.wait(done.executionId)).toEqual({
      outcome: 'success',
      result: { answer: 42 },
    });
    expect(await bench.engine.executions.wait(failed.executionId)).toMatchObject({
      outcome: 'failed',
      message: 'no',
      category: 'bad',
    });
    expect(await bench.engine.executions.wait(cancelled.executionId)).toMatchObject({
      outcome: 'cancelled',
      by: 'ann',
    });
    expect(await bench.engine.executions.wait(lost.executionId)).toMatchObject({ outcome: 'expired' });
  });

  it('returns it any number of times', async () => {
    const claim = await bench.running();
    await bench.port.complete(claim, 1);
    const ends = await Promise.all(
      Array.from({ length: 20 }, () => bench.engine.executions.wait(claim.executionId)),
    );
    expect(ends).toEqual(Array.from({ length: 20 }, () => ({ outcome: 'success', result: 1 })));
  });
});

describe('waiting for an execution that finishes later', () => {
  it('is notified by the same process, for every outcome', async () => {
    const claims = [await bench.running(), await bench.running(), await bench.running()];
    const waits = await Promise.all(claims.map(({ executionId }) => waiting(bench.engine, executionId)));
    await bench.port.complete(claims[0]!);
    await bench.port.fail(claims[1]!, { message: 'no' });
    await bench.engine.cancel(claims[2]!.executionId, WHY);
    const ends = await Promise.all(waits.map(({ end }) => end));
    expect(ends).toMatchObject([{ outcome: 'success' }, { outcome: 'failed' }, { outcome: 'cancelled' }]);
  });

  it('is notified by another connection', async () => {
    const other = await bench.another();
    const claim = await bench.running();
    const { end } = await waiting(other, claim.executionId);
    await bench.port.complete(claim, 'from there');
    expect(await end).toEqual({ outcome: 'success', result: 'from there' });
    await other.close();
  });

  it('polls where no hint can arrive', async () => {
    const deaf = await bench.another({ listen: 'off' });
    const claim = await bench.running();
    const { end } = await waiting(deaf, claim.executionId);
    await bench.port.complete(claim, 'in silence');
    expect(await end).toEqual({ outcome: 'success', result: 'in silence' });
    await deaf.close();
  });

  it('polls when the outcome was written without a hint', async () => {
    const claim = await bench.running();
    const { end } = await waiting(bench.engine, claim.executionId);
    const [, partition, uuid] = /^\{fp:(\d+)\}:(.*)$/.exec(claim.executionId)!;
    await bench.database.query(`SELECT * FROM ff_cancel($1, $2, 'why', 'sql')`, [
      [uuid],
      [Number(partition)],
    ]);
    expect(await end).toMatchObject({ outcome: 'cancelled', by: 'sql' });
  });

  it('continues through retries, pauses and lost leases', async () => {
    const kind = newKind();
    const first = await bench.running({ kind, policy: { retry: { maxRetries: 5 } } });
    const { end, settled } = await waiting(bench.engine, first.executionId);
    await bench.port.fail(first, { message: 'no', retryAfterMs: 0 });
    await bench.port.fireTimers();
    await bench.port.pause(await bench.claimOne(kind), { wakeInMs: 0 });
    await bench.port.fireTimers();
    await bench.claimOne(kind);
    await bench.loseLeases();
    const last = await bench.claimOne(kind);
    expect(settled()).toBe(false);
    await bench.port.complete(last, 'at last');
    expect(await end).toEqual({ outcome: 'success', result: 'at last' });
  });

  it('notifies a thousand waiters of the same execution', async () => {
    const claim = await bench.running();
    const ends = Array.from({ length: 1_000 }, () => bench.engine.executions.wait(claim.executionId));
    await bench.engine.executions.describe(claim.executionId);
    await bench.port.complete(claim, 'for all');
    expect(new Set((await Promise.all(ends)).map((end) => JSON.stringify(end)))).toEqual(
      new Set(['{"outcome":"success","result":"for all"}']),
    );
  });

  it('notifies the waiters of a thousand that finish in one call', async () => {
    const kind = newKind();
    const submitted = await bench.engine.executions.submit(Array.from({ length: 1_000 }, () => ({ kind })));
    const ids = submitted.map(({ executionId }) => executionId);
    const other = await bench.another();
    const ends = ids.map((id) => other.executions.wait(id));
    await bench.engine.cancel(ids, WHY);
    expect(new Set((await Promise.all(ends)).map(({ outcome }) => outcome))).toEqual(new Set(['cancelled']));
    await other.close();
  });
});

describe('a wait', () => {
  it('is ended by its AbortSignal, for that waiter alone', async () => {
    const claim = await bench.running();
    const stop = new AbortController();
    const [mine, theirs] = [
      await waiting(bench.engine, claim.executionId, { signal: stop.signal }),
      await waiting(bench.engine, claim.executionId),
    ];
    const reason = new Error('enough');
    stop.abort(reason);
    await expect(mine.end).rejects.toBe(reason);
    expect(theirs.settled()).toBe(false);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ state: 'active' });
    await bench.port.complete(claim);
    expect(await theirs.end).toMatchObject({ outcome: 'success' });
  });

  it('does not start with an aborted AbortSignal', async () => {
    const claim = await bench.running();
    const reason = new Error('before');
    const wait = bench.engine.executions.wait(claim.executionId, { signal: AbortSignal.abort(reason) });
    await expect(wait).rejects.toBe(reason);
  });

  it('leaves no listener on an AbortSignal that outlives it', async () => {
    const claim = await bench.running();
    const { signal } = new AbortController();
    let listening = 0;
    const counted = Object.assign(signal, {
      addEventListener: () => void (listening += 1),
      removeEventListener: () => void (listening -= 1),
    });
    const ends = Array.from({ length: 10 }, () =>
      bench.engine.executions.wait(claim.executionId, { signal: counted }),
    );
    // One listener for all of them: Node reports many as a leak.
    await expect.poll(() => listening, WAIT).toBe(1);
    await bench.port.complete(claim);
    await Promise.all(ends);
    expect(listening).toBe(0);
  });

  it('is refused for an execution that does not exist', async () => {
    const id = await bench.submit();
    await expect(bench.engine.executions.wait(misplaced(id))).rejects.toMatchObject({
      code: 'not_found',
      field: 'executionId',
    });
  });

  it('is rejected when the engine is closed, and refused after', async () => {
    const engine = await bench.another();
    const claim = await bench.running();
    const { end } = await waiting(engine, claim.executionId);
    const [answer] = await Promise.all([end.catch((error: unknown) => error), engine.close()]);
    expect(answer).toMatchObject({ code: 'closed' });
    await expect(engine.executions.wait(claim.executionId)).rejects.toMatchObject({ code: 'closed' });
    expect(await bench.port.renew([claim], LEASE_MS)).toEqual([{ outcome: 'renewed' }]);
  });

  it.each<[what: string, id: unknown, options: unknown, code: string, field: string]>([
    ['an invalid id', 'x', {}, 'invalid_id', 'executionId'],
    ['no id', undefined, {}, 'invalid_id', 'executionId'],
    ['options that are not an object', null, 5, 'invalid_input', 'options'],
    ['an unknown option', null, { timeoutMs: 5 }, 'invalid_input', 'options.timeoutMs'],
    ['an invalid AbortSignal', null, { signal: 5 }, 'invalid_input', 'options.signal'],
  ])('is refused for %s', async (_, id, options, code, field) => {
    const target = id === null ? await bench.submit() : id;
    await expect(
      bench.engine.executions.wait(target as string, options as WaitOptions),
    ).rejects.toMatchObject({
      name: 'EngineError',
      code,
      field,
    });
  });
});
