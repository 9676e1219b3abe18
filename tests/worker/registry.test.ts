/**
 * The registry of workers: who is in it, what it contains about them, how they leave it, and that its errors affect
 * nothing else.
 */
import { afterEach, describe, expect, test } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import type { WorkerSnapshot } from '../../src/contract/operations.ts';
import type { WorkerRegistration, WorkerPort } from '../../src/contract/protocol.ts';
import { EngineError } from '../../src/contract/errors.ts';
import { startFaultProxy } from '../../src/testing/fault-proxy.ts';
import { Registration } from '../../src/worker/loop/registration.ts';
import { startWorker } from '../../src/connect/worker.ts';
import { latch, newKind, plain, resultOf, SOON, useCrew } from './crew.ts';
import { workerPort } from '../../src/connect/port.ts';

const SILENT_MS = 600_000;
const crew = useCrew();

afterEach(() => crew.database.query('DELETE FROM ff_worker'));

async function found(engine: Connection, workerInstanceId: string): Promise<WorkerSnapshot | undefined> {
  return (await engine.workers.list()).find((worker) => worker.workerInstanceId === workerInstanceId);
}

function registration(workerInstanceId: string, more: Partial<WorkerRegistration> = {}): WorkerRegistration {
  return {
    workerInstanceId,
    workerId: 'w',
    kinds: ['a'],
    concurrency: 1,
    running: 0,
    uptimeMs: 0,
    stopping: false,
    ...more,
  };
}

async function databaseNow(): Promise<number> {
  const answer = await crew.database.query<{ now: number }>('SELECT ff_now_ms() AS now');
  return answer.rows[0]!.now;
}

describe('a worker', () => {
  test('is registered with what it runs, and removed once it has stopped', async () => {
    const engine = await crew.connect();
    const kinds = [newKind(), newKind()].toSorted();
    const before = await databaseNow();
    const worker = crew.work(engine, {
      workerId: 'billing',
      version: '2.1.0',
      concurrency: 7,
      lanes: ['slow', { lane: 'fast', concurrency: 2 }],
      capabilities: ['gpu'],
      handlers: { [kinds[1]!]: () => undefined, [kinds[0]!]: () => undefined },
    });
    await expect.poll(() => found(engine, worker.workerInstanceId), SOON).toBeDefined();
    const row = (await found(engine, worker.workerInstanceId))!;
    expect(row).toEqual({
      workerInstanceId: worker.workerInstanceId,
      workerId: 'billing',
      version: '2.1.0',
      kinds,
      lanes: ['fast', 'slow'],
      capabilities: ['gpu'],
      concurrency: 7,
      running: 0,
      startedAtMs: expect.any(Number),
      heartbeatAtMs: expect.any(Number),
      silentForMs: expect.any(Number),
      stopping: false,
    });
    expect(row.heartbeatAtMs).toBeGreaterThanOrEqual(before);
    expect(row.heartbeatAtMs).toBeLessThanOrEqual(await databaseNow());
    expect(row.startedAtMs).toBeLessThanOrEqual(row.heartbeatAtMs);
    await worker.stop();
    expect(await found(engine, worker.workerInstanceId)).toBeUndefined();
  });

  test('shows that it serves every lane and has no version', async () => {
    const engine = await crew.connect();
    const worker = crew.work(engine, { handlers: { [newKind()]: () => undefined } });
    await expect
      .poll(() => found(engine, worker.workerInstanceId), SOON)
      .toMatchObject({ workerId: 'worker', version: null, lanes: null, capabilities: [] });
  });

  test('is shown as stopping while its handlers finish', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const finish = latch();
    const worker = crew.work(engine, { handlers: { [kind]: () => finish.opened } });
    await engine.executions.submit({ kind });
    await expect.poll(() => worker.running, SOON).toBe(1);
    const stopped = worker.stop();
    await expect
      .poll(() => found(engine, worker.workerInstanceId), SOON)
      .toMatchObject({ stopping: true, running: 1 });
    finish.open();
    await stopped;
    expect(await found(engine, worker.workerInstanceId)).toBeUndefined();
  });

  test('refreshes its row at an interval, and registers again with its original start when the row is missing', async () => {
    const engine = await crew.connect();
    let running = 0;
    const beats: number[] = [];
    const kept = new Registration(workerPort(engine), {
      describe: () => registration('rhythm', { running, uptimeMs: 5_000 }),
      onBeat: () => void beats.push(running),
      onError: () => undefined,
      refreshMs: 5,
    });
    await expect.poll(() => found(engine, 'rhythm'), SOON).toMatchObject({ running: 0 });
    running = 3;
    await expect.poll(() => found(engine, 'rhythm'), SOON).toMatchObject({ running: 3 });
    const before = (await found(engine, 'rhythm'))!;
    await crew.database.query('DELETE FROM ff_worker');
    await expect.poll(() => found(engine, 'rhythm'), SOON).toBeDefined();
    const after = (await found(engine, 'rhythm'))!;
    expect(after.heartbeatAtMs).toBeGreaterThanOrEqual(before.heartbeatAtMs);
    expect(after.heartbeatAtMs - after.startedAtMs).toBeGreaterThanOrEqual(5_000);
    expect(beats.length).toBeGreaterThan(1);
    await kept.close();
    expect(await found(engine, 'rhythm')).toBeUndefined();
  });

  test('works and stops normally when the registry fails, and reports it', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const errors: unknown[] = [];
    const refuse = async (): Promise<never> => {
      throw new EngineError('database_error', 'No registry today.');
    };
    const worker = crew.work(
      { ...workerPort(engine), registerWorker: refuse, forgetWorker: refuse },
      {
        handlers: { [kind]: () => 'done' },
        onError: (error) => {
          errors.push(error);
          throw new Error('and the log is full');
        },
      },
    );
    const { executionId } = await engine.executions.submit({ kind });
    await expect.poll(() => resultOf(engine, executionId), SOON).toBe('success');
    await worker.stop();
    expect(errors).toHaveLength(2);
    expect(errors[0]).toMatchObject({ code: 'database_error' });
    expect(worker.stats).toMatchObject({ completed: 1, claimErrors: 0, renewErrors: 0 });
  });

  test('whose database does not respond can still stop', async () => {
    const proxy = await startFaultProxy({ targetPort: Number(new URL(crew.database.url).port) });
    const through = await crew.connect({ databaseUrl: proxy.url(crew.database.url), listen: 'off' });
    const worker = crew.work(through, { handlers: { [newKind()]: () => undefined } });
    await expect.poll(() => found(through, worker.workerInstanceId), SOON).toBeDefined();
    proxy.stall();
    await worker.stop({ deadline: 10 });
    expect(worker.health().state).toBe('stopped');
    const engine = await crew.connect();
    expect(await found(engine, worker.workerInstanceId)).toBeDefined();
    proxy.resume();
    // The removal was in progress and completes after all.
    await expect.poll(() => found(engine, worker.workerInstanceId), SOON).toBeUndefined();
    await through.close();
    await proxy.close();
  });

  test('that stops while it is being registered is removed after that, not before', async () => {
    const engine = await crew.connect();
    const slow = latch();
    const order: string[] = [];
    const slowly: WorkerPort = {
      ...workerPort(engine),
      registerWorker: async (worker) => {
        await slow.opened;
        await workerPort(engine).registerWorker(worker);
        order.push('registered');
      },
      forgetWorker: async (name) => {
        order.push('forgotten');
        await workerPort(engine).forgetWorker(name);
      },
    };
    const kept = new Registration(slowly, {
      describe: () => registration('hasty'),
      onError: (error) => order.push(String(error)),
    });
    // The call is in progress, and another is requested that must not follow the removal.
    await Promise.resolve();
    kept.refresh();
    const closed = kept.close();
    slow.open();
    await closed;
    expect(order).toEqual(['registered', 'forgotten']);
    expect(await engine.workers.list()).toEqual([]);
  });

  test.each([
    ['', 'empty'],
    ['v'.repeat(257), 'too long'],
    [7 as never, 'a number'],
  ])('is refused a version that is %s (%s)', async (version) => {
    const engine = await crew.connect({ listen: 'off' });
    expect(() => startWorker(engine, { version, handlers: plain({ a: () => 1 }) })).toThrow(
      expect.objectContaining({ code: 'invalid_input', field: 'version' }),
    );
  });
});

describe('the list', () => {
  test('has the newest first', async () => {
    const engine = await crew.connect();
    for (const [name, uptimeMs] of [
      ['middle', 2_000],
      ['oldest', 60_000],
      ['newest', 0],
    ] as const) {
      await workerPort(engine).registerWorker(registration(name, { uptimeMs }));
    }
    const names = (await engine.workers.list()).map((worker) => worker.workerInstanceId);
    expect(names).toEqual(['newest', 'middle', 'oldest']);
    await workerPort(engine).forgetWorker('middle');
    await workerPort(engine).forgetWorker('nobody');
    expect(await engine.workers.list()).toHaveLength(2);
  });

  test.each<[string, Partial<WorkerRegistration>]>([
    ['workerInstanceId', { workerInstanceId: '' }],
    ['workerId', { workerId: 'w'.repeat(257) }],
    ['version', { version: 'a\u0000b' }],
    ['kinds', { kinds: 'all' as never }],
    ['running', { running: -1 }],
    ['concurrency', { concurrency: 0 }],
    ['uptimeMs', { uptimeMs: 0.5 }],
    ['stopping', { stopping: 'yes' as never }],
  ])('refuses a registration with an invalid %s', async (field, wrong) => {
    const engine = await crew.connect({ listen: 'off' });
    await expect(workerPort(engine).registerWorker(registration('wrong', wrong))).rejects.toMatchObject({
      name: 'EngineError',
      field,
    });
    expect(await engine.workers.list()).toEqual([]);
  });
});

test('workers that have been silent for long are removed, others are not', async () => {
  const engine = await crew.connect();
  await workerPort(engine).registerWorker(registration('silent'));
  await crew.database.moveClock(SILENT_MS + 1);
  await workerPort(engine).registerWorker(registration('live'));
  await crew.connect({ reconcile: 'on' });
  await expect.poll(() => found(engine, 'silent'), SOON).toBeUndefined();
  expect(await found(engine, 'live')).toBeDefined();
});

test('a connection and a worker are closed at the end of the block they are used in', async () => {
  const outside = await crew.connect();
  let name = '';
  let inner: Connection;
  {
    await using engine = await crew.connect();
    await using worker = startWorker(engine, {
      log: 'silent',
      handlers: plain({ [newKind()]: () => undefined }),
    });
    inner = engine;
    name = worker.workerInstanceId;
    await expect.poll(() => found(engine, name), SOON).toBeDefined();
  }
  expect(await found(outside, name)).toBeUndefined();
  await expect(inner.workers.list()).rejects.toMatchObject({ code: 'closed' });
});
