/**
 * Work that others could hold up: by what they left in the queue, or by an idempotency key or an id not yet committed.
 */
import { expect, it } from 'vitest';
import { connect } from '../../../src/index.ts';
import { LISTENING, newKind, useBench } from '../open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();

it('executions moved down the queue in bulk are claimed by the first call, however small its limit', async () => {
  const kind = newKind();
  await bench.engine.executions.submit(Array.from({ length: 1_200 }, () => ({ kind, priority: 9 })));
  for (const priority of [5, 1]) {
    for await (const progress of bench.engine.executions.bulk({
      verb: 'change_priority',
      priority,
      filter: { kind },
      chunk: 400,
    })) {
      expect(progress.outcomes).not.toHaveProperty('not_eligible');
    }
  }
  expect(await bench.claim({ kinds: [kind], limit: 1 })).toHaveLength(1);
  expect(await bench.claim({ kinds: [kind], limit: 10 })).toHaveLength(10);
});

it('an uncommitted idempotency key holds up no submit without one', async () => {
  const client = await bench.database.connect();
  const [kind, idempotencyKey] = [newKind(), newKind()];
  // Known before: every submit on a new route would wait for it.
  await bench.submit({ kind });
  await client.query('BEGIN');
  const executor = (text: string, params: unknown[]) => client.query(text, params);
  const { executionId } = await bench.engine.executions.submit({ kind, idempotencyKey }, { executor });
  const rival = bench.engine.executions.submit({ kind, idempotencyKey });
  const others = await Promise.all([
    bench.engine.executions.submit({ kind }),
    bench.engine.executions.submit({ kind }),
  ]);
  expect(others.map(({ outcome }) => outcome)).toEqual(['submitted', 'submitted']);
  await client.query('COMMIT');
  expect(await rival).toEqual({ executionId, outcome: 'duplicate' });
});

it('the window of the default policy applies to a key without its own, and undefined options are ignored', async () => {
  const defaultPolicy = { dedupWindow: 1_000, retry: { maxRetries: 2 } };
  await using engine = await connect({
    databaseUrl: bench.database.url,
    reconcile: 'off',
    listen: 'off',
    defaultPolicy,
  });
  const request = { kind: newKind(), idempotencyKey: newKind(), policy: { retry: undefined, maxReplays: 1 } };
  const first = await engine.executions.submit(request as never);
  expect(await workerPort(engine).fail(await bench.claimOne(request.kind), { message: 'no' })).toMatchObject({
    outcome: 'retry_scheduled',
  });
  await engine.cancel(first.executionId, { reason: 'not wanted' });
  await bench.database.moveClock(1_001);
  expect(await engine.executions.submit(request as never)).toMatchObject({ outcome: 'submitted' });
});

it.runIf(LISTENING)('hints sent just before a process closes reach the others', async () => {
  const kind = newKind();
  const heard = new Promise<void>((resolve) => {
    const stop = bench.port.watch({ kinds: [kind] }, () => {
      stop();
      resolve();
      return false;
    });
  });
  const engine = await connect({ databaseUrl: bench.database.url, reconcile: 'off', listen: 'off' });
  await engine.executions.submit({ kind });
  await engine.close();
  await heard;
});

it('a bulk replay over several outcomes replays each execution once, even one that finishes again meanwhile', async () => {
  const kind = newKind();
  const policy = { deadline: 60_000 };
  const ids = (await bench.engine.executions.submit([1, 2].map(() => ({ kind, policy })))).map(
    (one) => one.executionId,
  );
  for (const claim of await bench.claim({ kinds: [kind] })) await bench.port.fail(claim, { message: 'no' });
  const states = ['failed', 'expired'] as const;
  for await (const _ of bench.engine.executions.bulk({
    verb: 'replay',
    reason: 'again',
    filter: { kind, states },
    chunk: 1,
  })) {
    await bench.database.moveClock(61_000);
    await bench.port.fireTimers();
  }
  const counts = await Promise.all(ids.map(async (id) => (await bench.snapshot(id)).replayCount));
  expect(counts).toEqual([1, 1]);
});
