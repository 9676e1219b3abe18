/**
 * Cancelling: from every state, one or many, and what the worker that runs the execution learns.
 */
import { describe, expect, it } from 'vitest';
import { misplaced, newKind, useBench } from '../open.ts';

const bench = useBench();
const WHY = { reason: 'not needed', by: 'ann' };
const CANCELLED = { outcome: 'cancelled', message: 'not needed', category: 'cancelled', by: 'ann' };

describe('cancel finishes an execution', () => {
  it('that is waiting, without creating an attempt', async () => {
    const executionId = await bench.submit();
    expect(await bench.engine.cancel(executionId, WHY)).toEqual({ executionId, outcome: 'cancelled' });
    expect(await bench.engine.executions.result(executionId)).toEqual(CANCELLED);
    expect(await bench.snapshot(executionId)).toMatchObject({
      state: 'cancelled',
      stateVector: { terminalOutcome: 'cancelled', attemptState: 'pending_first_attempt' },
      startedAtMs: null,
      attempts: [],
    });
  });

  it('that is delayed', async () => {
    const executionId = await bench.submit({ delay: 60_000 });
    expect(await bench.engine.cancel(executionId, WHY)).toMatchObject({ outcome: 'cancelled' });
    expect(await bench.snapshot(executionId)).toMatchObject({ state: 'cancelled', eligibleAtMs: null });
  });

  it('that is running: its worker no longer owns anything', async () => {
    const claim = await bench.running();
    expect(await bench.engine.cancel(claim.executionId, WHY)).toMatchObject({ outcome: 'cancelled' });
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      state: 'cancelled',
      stateVector: { ownershipState: 'unowned', attemptState: 'attempt_terminal' },
      lease: null,
      leaseEpoch: claim.leaseEpoch + 1,
      attempts: [{ attemptIndex: 0, outcome: 'cancelled', failureMessage: 'not needed' }],
    });
    expect(await bench.port.complete(claim, 'too late')).toMatchObject({ outcome: 'not_active' });
    expect(await bench.engine.executions.result(claim.executionId)).toEqual(CANCELLED);
  });

  it('that is backing off before its next attempt', async () => {
    const claim = await bench.running({ policy: { retry: { maxRetries: 1 } } });
    await bench.port.fail(claim, { message: 'ouch' });
    expect(await bench.engine.cancel(claim.executionId, WHY)).toMatchObject({ outcome: 'cancelled' });
    const { attempts, state } = await bench.snapshot(claim.executionId);
    expect(state).toBe('cancelled');
    expect(attempts).toMatchObject([{ attemptIndex: 0, outcome: 'failed' }]);
    expect(await bench.engine.executions.result(claim.executionId)).toEqual(CANCELLED);
    expect(await bench.port.fail(claim, { message: 'ouch' })).toMatchObject({
      outcome: 'retry_scheduled',
      repeated: true,
    });
  });

  it('that was released', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind });
    await bench.port.release(claim);
    expect(await bench.engine.cancel(claim.executionId, WHY)).toMatchObject({ outcome: 'cancelled' });
    expect(await bench.snapshot(claim.executionId)).toMatchObject({
      attempts: [{ attemptIndex: 0, outcome: 'cancelled', workerInstanceId: 'worker-1' }],
    });
    expect(await bench.claim({ kinds: [kind] })).toEqual([]);
  });

  it('in the name of the operator by default', async () => {
    const executionId = await bench.submit();
    await bench.engine.cancel(executionId, { reason: 'not needed' });
    expect(await bench.engine.executions.result(executionId)).toMatchObject({ by: 'operator' });
  });
});

describe('cancel is refused', () => {
  it('with already_cancelled the second time, and keeps the first reason', async () => {
    const executionId = await bench.submit();
    await bench.engine.cancel(executionId, WHY);
    const again = await bench.engine.cancel(executionId, { reason: 'other', by: 'bob' });
    expect(again).toEqual({ executionId, outcome: 'already_cancelled' });
    expect(await bench.engine.executions.result(executionId)).toEqual(CANCELLED);
  });

  it('with not_active and the outcome when it has finished otherwise', async () => {
    const [done, failed, lost] = [await bench.running(), await bench.running(), await bench.running()];
    await bench.port.complete(done);
    await bench.port.fail(failed, { message: 'ouch' });
    await bench.loseLeases();
    const ids = [done, failed, lost].map(({ executionId }) => executionId);
    expect(await bench.engine.cancel(ids, WHY)).toEqual([
      { executionId: ids[0], outcome: 'not_active', terminalOutcome: 'success' },
      { executionId: ids[1], outcome: 'not_active', terminalOutcome: 'failed' },
      { executionId: ids[2], outcome: 'not_active', terminalOutcome: 'expired' },
    ]);
  });

  it('with not_found when it does not exist, or is in another partition', async () => {
    const id = await bench.submit();
    const executionId = misplaced(id);
    expect(await bench.engine.cancel(executionId, WHY)).toEqual({ executionId, outcome: 'not_found' });
    expect(await bench.snapshot(id)).toMatchObject({ state: 'waiting' });
  });
});

describe('many ids in one call', () => {
  it('return one outcome each, in the order given', async () => {
    const [waiting, running, done] = [await bench.submit(), await bench.running(), await bench.running()];
    await bench.port.complete(done);
    const other = misplaced(done.executionId);
    const ids = [done.executionId, waiting, running.executionId];
    const answers = await bench.engine.cancel(ids, WHY);
    expect(answers.map(({ executionId }) => executionId)).toEqual(ids);
    expect(answers.map(({ outcome }) => outcome)).toEqual(['not_active', 'cancelled', 'cancelled']);
    expect(await bench.engine.cancel([other, waiting], WHY)).toMatchObject([
      { outcome: 'not_found' },
      { outcome: 'already_cancelled' },
    ]);
  });

  it('may contain the same id twice', async () => {
    const executionId = await bench.submit();
    expect(await bench.engine.cancel([executionId, executionId], WHY)).toMatchObject([
      { outcome: 'cancelled' },
      { outcome: expect.stringMatching(/cancelled$/) },
    ]);
  });

  it('may contain an id beside the same uuid in the wrong partition', async () => {
    const executionId = await bench.submit();
    expect(await bench.engine.cancel([executionId, misplaced(executionId)], WHY)).toMatchObject([
      { executionId, outcome: 'cancelled' },
      { executionId: misplaced(executionId), outcome: 'not_found' },
    ]);
    expect(await bench.snapshot(executionId)).toMatchObject({ state: 'cancelled' });
  });

  it('may be an empty list', async () => {
    expect(await bench.engine.cancel([], WHY)).toEqual([]);
  });

  it('are cancelled once each by concurrent rivals', async () => {
    const kind = newKind();
    const submitted = await bench.engine.executions.submit(Array.from({ length: 30 }, () => ({ kind })));
    const ids = submitted.map(({ executionId }) => executionId);
    const rival = await bench.another();
    const answers = await Promise.all([
      bench.engine.cancel(ids, WHY),
      rival.cancel(ids.toReversed(), WHY),
      bench.engine.cancel(ids, WHY),
    ]);
    const outcomes = answers.flat().map(({ outcome }) => outcome);
    expect(outcomes.filter((outcome) => outcome === 'cancelled')).toHaveLength(30);
    expect(outcomes.filter((outcome) => outcome === 'already_cancelled')).toHaveLength(60);
  });
});
