/**
 * How a worker stops: it finishes what it can, returns what it cannot, and loses nothing in between.
 */
import { expect, test } from 'vitest';
import { startFaultProxy } from '../../src/testing/fault-proxy.ts';
import type { TaskContext } from '../../src/define/task-context.ts';
import { latch, newKind, resultOf, SOON, useCrew } from './crew.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';

const crew = useCrew();

test('stop waits for runs in progress and starts nothing new', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const [started, finish] = [latch(), latch()];
  const worker = crew.work(engine, {
    concurrency: 1,
    handlers: {
      [kind]: async () => {
        started.open();
        await finish.opened;
        return 'finished';
      },
    },
  });
  const { executionId } = await engine.executions.submit({ kind });
  await started.opened;
  let stopped = false;
  const stopping = worker.stop().then(() => {
    stopped = true;
  });
  const later = await engine.executions.submit({ kind });
  expect(stopped).toBe(false);
  finish.open();
  await stopping;
  expect(await engine.executions.result(executionId)).toEqual({ outcome: 'success', result: 'finished' });
  expect(await engine.executions.describe(later.executionId)).toMatchObject({
    state: 'waiting',
    leaseEpoch: 0,
  });
  expect(worker.stats).toMatchObject({ claimed: 1, completed: 1, released: 0, lost: 0 });
});

test('a run that is not finished by the deadline is released, and another process resumes the same attempt at once', async () => {
  const engine = await crew.connect();
  const elsewhere = await crew.connect();
  const kind = newKind();
  const started = latch();
  const worker = crew.work(engine, {
    handlers: {
      [kind]: (task) => {
        started.open();
        return new Promise((resolve) => {
          task.signal.addEventListener('abort', () => resolve('given up'));
        });
      },
    },
  });
  const { executionId } = await engine.executions.submit({ kind });
  await started.opened;
  const next = crew.work(elsewhere, {
    handlers: { [kind]: (task) => [task.attemptIndex, task.resumed, task.reclaimed] },
  });
  await worker.stop({ deadline: 0 });
  await expect
    .poll(() => engine.executions.result(executionId), SOON)
    .toEqual({ outcome: 'success', result: [0, true, false] });
  expect(worker.stats).toMatchObject({ claimed: 1, completed: 0, released: 1 });
  await expect.poll(() => next.stats, SOON).toMatchObject({ claimed: 1, completed: 1 });
  expect(await crew.eventsOf(executionId)).toEqual([
    'lease.acquired',
    'lease.released',
    'lease.acquired',
    'completion.success',
  ]);
});

test('a run that was released is counted once', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const [started, returned] = [latch(), latch()];
  const worker = crew.work(engine, {
    handlers: {
      [kind]: async (task) => {
        started.open();
        await new Promise((resolve) => {
          task.signal.addEventListener('abort', resolve);
        });
        returned.open();
      },
    },
  });
  await engine.executions.submit({ kind });
  await started.opened;
  await worker.stop({ deadline: 0 });
  await returned.opened;
  await expect.poll(() => worker.running, SOON).toBe(0);
  const { claimed, completed, failed, retryScheduled, lost, released } = worker.stats;
  expect(completed + failed + retryScheduled + lost + released).toBe(claimed);
});

test('work that a claim returns while the worker stops is run or released, never forgotten', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const { executionId } = await engine.executions.submit({ kind });
  for (const [deadlineMs, end] of [
    [0, 'released'],
    [10_000, 'completed'],
  ] as const) {
    const [asked, answer, tasks] = [latch(), latch(), latch<TaskContext>()];
    const slow: WorkerPort = {
      ...workerPort(engine),
      claim: async (request) => {
        const claimed = await workerPort(engine).claim(request);
        asked.open();
        await answer.opened;
        return claimed;
      },
    };
    const worker = crew.work(slow, {
      handlers: {
        [kind]: async (task) => {
          tasks.open(task);
          if (end === 'released') await latch().opened;
        },
      },
    });
    await asked.opened;
    const stopping = worker.stop({ deadline: deadlineMs });
    answer.open();
    await stopping;
    expect(worker.stats).toMatchObject({ claimed: 1, [end]: 1 });
    expect((await tasks.opened).attemptIndex).toBe(0);
  }
  expect(await resultOf(engine, executionId)).toBe('success');
});

test('a second stop returns the first one, and a stopped worker holds nothing', async () => {
  const engine = await crew.connect();
  const worker = crew.work(engine, { handlers: { [newKind()]: () => undefined } });
  const first = worker.stop();
  expect(worker.stop({ deadline: 5 })).toBe(first);
  await first;
  expect(worker.running).toBe(0);
});

test('a worker in a using block stops at the end of the block', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const started = latch();
  const worker = crew.work(engine, { handlers: { [kind]: () => started.open() } });
  const { executionId } = await engine.executions.submit({ kind });
  await started.opened;
  await worker[Symbol.asyncDispose]();
  expect(await resultOf(engine, executionId)).toBe('success');
});

test('a stop keeps its deadline when the database does not respond', async () => {
  const proxy = await startFaultProxy({ targetPort: Number(new URL(crew.database.url).port) });
  const engine = await crew.connect({ databaseUrl: proxy.url(crew.database.url), listen: 'off' });
  const worker = crew.work(engine, { poll: 10, handlers: { [newKind()]: () => undefined } });
  await engine.executions.submit({ kind: newKind() });
  proxy.stall();
  await worker.stop({ deadline: 50 });
  proxy.resume();
  await engine.close();
  await proxy.close();
});

test('a batch of large results is sent in parts', async () => {
  const kind = newKind();
  const engine = await crew.connect();
  const large = 'x'.repeat(900_000);
  const worker = crew.work(engine, { concurrency: 20, handlers: { [kind]: () => large } });
  await engine.executions.submit(Array.from({ length: 20 }, () => ({ kind })));
  await expect.poll(() => worker.stats.completed, SOON).toBe(20);
  expect(worker.stats.lost).toBe(0);
});

test('what a claim returns after the deadline is released before the stop resolves', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const [asked, answered] = [latch(), latch()];
  const { executionId } = await engine.executions.submit({ kind });
  const slow: WorkerPort = {
    ...workerPort(engine),
    async claim(request) {
      const answer = await workerPort(engine).claim(request);
      asked.open();
      await answered.opened;
      return answer;
    },
  };
  const worker = crew.work(slow, { handlers: { [kind]: () => 'unreached' } });
  await asked.opened;
  const stopped = worker.stop({ deadline: 0 });
  // The claim returns only once the deadline has certainly passed.
  for (let look = 0; look < 20; look += 1) await engine.executions.result(executionId);
  answered.open();
  await stopped;
  await engine.close();
  const other = await crew.connect();
  expect(await other.executions.describe(executionId)).toMatchObject({
    state: 'waiting',
    attemptIndex: 0,
  });
});

test('an outcome that is being reported when the deadline passes is not handed back', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const [started, ready] = [latch(), latch()];
  const worker = crew.work(engine, {
    handlers: {
      [kind]: async () => {
        started.open();
        await ready.opened;
        return 'done';
      },
    },
  });
  const { executionId } = await engine.executions.submit({ kind });
  await started.opened;
  const holder = await crew.database.connect();
  await holder.query('BEGIN');
  await holder.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [
    executionId.split(':').at(-1),
  ]);
  ready.open();
  await expect.poll(() => worker.metrics().handling, SOON).toBe(0);
  const stopping = worker.stop({ deadline: 0 });
  await holder.query('ROLLBACK');
  await holder.end();
  await stopping;
  expect(worker.stats).toMatchObject({ claimed: 1, completed: 1, released: 0, lost: 0 });
  expect(await engine.executions.result(executionId)).toEqual({ outcome: 'success', result: 'done' });
});
