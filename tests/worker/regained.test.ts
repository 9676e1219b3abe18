/**
 * A lease that was taken away and is granted to the same worker again before it learns of the loss must not cost the
 * worker's other leases. And stopping a worker that is already stopping, or whose engine is closed.
 */
import { expect, test } from 'vitest';
import { latch, newKind, SOON, useCrew, uuidOf } from './crew.ts';

const crew = useCrew();

test('a lease regained by the same worker costs no other lease, and its former run is aborted', async () => {
  const engine = await crew.connect({ listen: 'off' });
  const kind = newKind();
  const finish = latch();
  const told: string[] = [];
  const errors: unknown[] = [];
  const worker = crew.work(engine, {
    poll: 20,
    lease: 3_000,
    onError: (error) => errors.push(error),
    handlers: {
      [kind]: async (ctx) => {
        ctx.signal.addEventListener('abort', () =>
          told.push(`${ctx.attemptIndex}/${ctx.signal.reason.code}`),
        );
        await finish.opened;
        return ctx.attemptIndex;
      },
    },
  });
  const runs = await engine.executions.submit([{ kind }, { kind }, { kind }]);
  await expect.poll(() => worker.running, SOON).toBe(3);
  // Directly in SQL, so that no hint reaches the worker.
  const other = await crew.connect({ listen: 'off' });
  await other.executions.revokeLease(runs[0]!.executionId, { reason: 'test' });
  await expect.poll(() => told, SOON).toEqual(['0/lease_lost']);
  const renewals = async (): Promise<number> => {
    const { rows } = await crew.database.query(
      `SELECT count(*)::int AS n FROM ff_event WHERE event_type = 'renewed' AND execution_id = ANY ($1)`,
      [runs.slice(1).map(({ executionId }) => uuidOf(executionId))],
    );
    return (rows[0] as { n: number }).n;
  };
  const before = await renewals();
  await expect.poll(renewals, SOON).toBeGreaterThan(before);
  finish.open();
  for (const [index, { executionId }] of runs.entries()) {
    await expect
      .poll(() => engine.executions.result(executionId), SOON)
      .toEqual({ outcome: 'success', result: index === 0 ? 1 : 0 });
  }
  expect(errors).toEqual([]);
});

test('when stop is called again with a shorter deadline, a worker stops sooner', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const started = latch();
  const never = latch();
  const worker = crew.work(engine, {
    handlers: {
      [kind]: () => {
        started.open();
        return never.opened;
      },
    },
  });
  const { executionId } = await engine.executions.submit({ kind });
  await started.opened;
  const slowly = worker.stop({ deadline: Infinity });
  await worker.stop({ deadline: 0 });
  await slowly;
  expect(await engine.executions.describe(executionId)).toMatchObject({
    state: 'waiting',
    attemptIndex: 0,
  });
  never.open();
});
