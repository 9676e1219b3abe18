/**
 * The attempts of one execution, page by page: the finished ones, the paused ones, and the one that is running.
 */
import { describe, expect, it } from 'vitest';
import type { ExecutionId } from '../../../src/index.ts';
import { misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const RETRYING = {
  policy: { retry: { maxRetries: 5, backoff: { type: 'fixed', delay: 60_000 } } },
} as const;

describe('attempts', () => {
  it('are listed newest first, including the running one', async () => {
    const kind = newKind();
    const first = await bench.running({ kind, ...RETRYING });
    const id = first.executionId;
    expect(await bench.engine.executions.listAttempts(id)).toMatchObject({
      attempts: [
        { attemptIndex: 0, outcome: null, workerInstanceId: 'worker-1', leaseEpoch: 1, endedAtMs: null },
      ],
      before: null,
    });
    await bench.port.fail(first, { message: 'one', category: 'c', retryAfterMs: 0 });
    await bench.port.fireTimers();
    await bench.claimOne(kind, { workerInstanceId: 'worker-2' });
    await bench.engine.executions.revokeLease(id, { reason: 'slow' });
    await bench.claimOne(kind, { workerInstanceId: 'worker-3' });
    await bench.loseLeases();
    const last = await bench.claimOne(kind, { workerInstanceId: 'worker-4' });
    const { attempts } = await bench.engine.executions.listAttempts(id);
    expect(attempts).toMatchObject([
      {
        attemptIndex: 3,
        outcome: null,
        interruptedBy: null,
        leaseEpoch: last.leaseEpoch,
        workerId: 'worker',
      },
      { attemptIndex: 2, outcome: 'interrupted', interruptedBy: 'expired', retryAtMs: null },
      { attemptIndex: 1, outcome: 'interrupted', interruptedBy: 'revoked', failureMessage: 'slow' },
      { attemptIndex: 0, outcome: 'failed', failureMessage: 'one', failureCategory: 'c' },
    ]);
    expect(attempts.map(({ retryAtMs }) => retryAtMs === null)).toEqual([true, true, true, false]);
    const page = await bench.engine.executions.listAttempts(id, { limit: 3 });
    expect(page).toEqual({ attempts: attempts.slice(0, 3), before: 1 });
    expect(await bench.engine.executions.listAttempts(id, { limit: 3, before: 1 })).toEqual({
      attempts: attempts.slice(3),
      before: null,
    });
  });

  it('that were paused are listed under their current lease when they run again', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind });
    await bench.port.pause(claim, { wakeInMs: 1_000 });
    const paused = (await bench.engine.executions.listAttempts(claim.executionId)).attempts;
    expect(paused).toMatchObject([{ attemptIndex: 0, outcome: null, retryAtMs: null, leaseEpoch: 1 }]);
    await bench.database.moveClock(1_000);
    await bench.port.fireTimers();
    await bench.claimOne(kind, { workerInstanceId: 'worker-2' });
    expect((await bench.engine.executions.listAttempts(claim.executionId)).attempts).toEqual([
      { ...paused[0], workerInstanceId: 'worker-2', leaseEpoch: 2, leases: expect.any(Array) as unknown },
    ]);
  });

  it('are none for an execution that never ran, and not_found for one that does not exist', async () => {
    const id = await bench.submit();
    expect(await bench.engine.executions.listAttempts(id)).toEqual({ attempts: [], before: null });
    await expect(bench.engine.executions.listAttempts(misplaced(id))).rejects.toMatchObject({
      code: 'not_found',
    });
  });

  it('do not include one that had not begun when its execution ended', async () => {
    const shown = async (id: ExecutionId) => ({
      listed: (await bench.engine.executions.listAttempts(id)).attempts.map((each) => each.attemptIndex),
      described: (await bench.snapshot(id)).attempts.map((each) => each.attemptIndex),
      byView: (
        await bench.database.query<{ n: number }>(
          'SELECT attempt_index AS n FROM ff_attempt WHERE execution_id = $1 ORDER BY 1 DESC',
          [id.slice(id.lastIndexOf(':') + 1)],
        )
      ).rows.map(({ n }) => n),
      result: await bench.engine.executions.result(id),
    });
    const result = { outcome: 'cancelled', message: 'no', by: 'operator' };
    const queued = await bench.submit();
    const waiting = await bench.running(RETRYING);
    await bench.port.fail(waiting, { message: 'once', category: 'c' });
    await bench.engine.cancel([queued, waiting.executionId], { reason: 'no' });
    expect(await shown(queued)).toMatchObject({ listed: [], described: [], byView: [], result });
    const failed = { listed: [0], described: [0], byView: [0] };
    expect(await shown(waiting.executionId)).toMatchObject({ ...failed, result });
    // Nor after a replay, which begins another one.
    await bench.engine.executions.replay(waiting.executionId, { reason: 'again' });
    expect(await shown(waiting.executionId)).toMatchObject(failed);
    const again = await bench.claimOne(waiting.kind);
    expect(await shown(waiting.executionId)).toMatchObject({ listed: [2, 0], byView: [2, 0] });
    await bench.port.complete(again, 'late');
    expect(await shown(waiting.executionId)).toMatchObject({
      listed: [2, 0],
      described: [0, 2],
      byView: [2, 0],
      result: { outcome: 'success', result: 'late' },
    });
  });
});
