/**
 * What a worker says about itself without being asked: its start, attempts that failed, leases it lost, executions that
 * finished without success, trouble of the database and stalls of the event loop. And nothing else.
 */
import { describe, expect, onTestFinished, test, vi } from 'vitest';
import { startWorker } from '../../src/connect/worker.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { Connection } from '../../src/connect/connection.ts';
import { EngineError } from '../../src/contract/errors.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';
import { TaskFailed } from '../../src/worker/task.ts';
import { AGAIN, latch, newKind, plain, SOON, stall, useCrew, type CrewOptions } from './crew.ts';
import { useStderr, type Line } from './stderr-lines.ts';

const crew = useCrew();

const stderr = useStderr();

/** The lines on stderr; those of the start are left out. */
function lines(): Line[] {
  return stderr.lines().filter(({ msg }) => msg !== 'Worker started.');
}

/** Until the test has finished. */
function onTerminal(): void {
  const { isTTY } = process.stderr;
  process.stderr.isTTY = true;
  onTestFinished(() => {
    process.stderr.isTTY = isTTY;
  });
}

/** A worker that was given no log. */
function speaking(engine: Connection | WorkerPort, options: CrewOptions): ReturnType<typeof crew.work> {
  return crew.work(engine, { ...options, log: undefined as never });
}

test('it names its tasks, lanes, slots and database when it starts, and never a password', async () => {
  const engine = await crew.connect();
  const url = new URL(crew.database.url);
  const kind = newKind();
  const worker = startWorker(engine, {
    workerId: 'billing',
    concurrency: 20,
    lanes: ['mail', { lane: 'gpu', concurrency: 1 }],
    handlers: plain({ [kind]: () => 1 }),
  });
  await worker.stop({ deadline: 0 });
  expect(stderr.lines()).toEqual([
    {
      time: expect.any(String) as unknown,
      level: 'info',
      msg: 'Worker started.',
      workerId: 'billing',
      workerInstanceId: worker.workerInstanceId,
      tasks: [kind],
      lanes: ['mail', 'gpu'],
      slots: 20,
      database: {
        host: expect.any(String) as unknown,
        port: expect.any(Number) as unknown,
        database: decodeURIComponent(url.pathname.slice(1)),
        user: decodeURIComponent(url.username),
      },
    },
  ]);
});

test('a run that completes says nothing', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  speaking(engine, { handlers: { [kind]: () => 1 } });
  const { executionId } = await engine.executions.submit({ kind });
  await engine.executions.wait(executionId);
  expect(lines()).toEqual([]);
});

test('each failed attempt is a line: which of how many, the error, where it is from, and what follows', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  speaking(engine, {
    handlers: {
      [kind]: ({ payload }) => {
        throw new TypeError(`no such thing as ${String(payload.user)}`);
      },
    },
  });
  const { executionId } = await engine.executions.submit({
    kind,
    payload: { user: 'ada', card: '4111' },
    policy: { retry: { maxRetries: 1, backoff: { type: 'fixed', delay: 20 } } },
  });
  await engine.executions.wait(executionId);
  await expect.poll(lines, SOON).toHaveLength(2);
  const error = {
    name: 'TypeError',
    message: 'no such thing as ada',
    at: expect.stringMatching(/^tests\/worker\/log\.test\.ts:\d+:\d+$/) as unknown,
  };
  const facts = { executionId, kind, maxAttempts: 2, category: 'permanent', error };
  expect(lines()).toMatchObject([
    {
      level: 'warn',
      msg: 'The attempt failed.',
      attempt: 1,
      outcome: 'retry_scheduled',
      retryInMs: 20,
      ...facts,
    },
    {
      level: 'error',
      msg: 'The attempt failed, and is not retried.',
      attempt: 2,
      outcome: 'failed',
      ...facts,
    },
  ]);
  expect(stderr.text()).not.toContain('4111');
});

describe('the line of a final failure says why there is no retry', () => {
  const policy = { retry: { ...AGAIN.retry, retryableCategories: ['busy'] } };
  test.each<[string, TaskFailed, object]>([
    ['the failure rules it out', new TaskFailed('bad card', { retry: 'never' }), AGAIN],
    ['its policy does not retry declined', new TaskFailed('bad card', { category: 'declined' }), policy],
    ['no attempt is left', new TaskFailed('bad card'), {}],
  ])('%s', async (why, thrown, given) => {
    onTerminal();
    const engine = await crew.connect();
    const kind = newKind();
    speaking(engine, {
      handlers: {
        [kind]: () => {
          throw thrown;
        },
      },
    });
    await engine.executions.submit({ kind, policy: given });
    await expect.poll(stderr.text, SOON).toContain(`not retried (${why})`);
    expect(stderr.text()).toMatch(
      new RegExp(
        `error.* ${kind} [0-9a-f-]{23} failed, attempt 1 of \\d, .*: TaskFailed: bad card at tests/`,
      ),
    );
  });
});

test('a result that cannot be stored is a failed attempt too', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  speaking(engine, { handlers: { [kind]: () => 1n } });
  await engine.executions.submit({ kind });
  await expect
    .poll(lines, SOON)
    .toMatchObject([{ outcome: 'failed', error: { message: expect.stringContaining('bigint') as unknown } }]);
});

describe('an execution that is taken away is a line, with the reason', () => {
  /** Runs one that is held until its AbortSignal fires. */
  async function taken(
    take: (engine: Connection, id: string) => Promise<unknown>,
    policy = {},
  ): Promise<void> {
    const engine = await crew.connect();
    const kind = newKind();
    const begun = latch();
    speaking(engine, {
      handlers: {
        [kind]: ({ signal }) => {
          begun.open();
          return new Promise((_, reject) => {
            signal.addEventListener('abort', () => reject(signal.reason as Error));
          });
        },
      },
    });
    const { executionId } = await engine.executions.submit({ kind, policy });
    await begun.opened;
    await take(engine, executionId);
    await crew.ringAllWorkers();
    await expect.poll(lines, SOON).toHaveLength(1);
    expect(lines()).toMatchObject([{ level: 'warn', executionId, kind }]);
  }

  test('cancelled', async () => {
    await taken((engine, id) => engine.executions.cancel(id, { reason: 'test' }));
    expect(lines()).toMatchObject([{ outcome: 'cancelled', why: 'it was cancelled' }]);
  });

  test('revoked', async () => {
    await taken((engine, id) => engine.executions.revokeLease(id, { reason: 'test' }), AGAIN);
    expect(lines()).toMatchObject([{ outcome: 'lost', why: expect.stringContaining('revoked') as unknown }]);
  });

  test('timed out', async () => {
    const later = async (engine: Connection): Promise<void> => {
      await crew.database.moveClock(10_000);
      await workerPort(engine).fireTimers();
    };
    await taken(later, { attemptTimeout: 5_000 });
    expect(lines()).toMatchObject([{ why: expect.stringMatching(/time limit/) as unknown }]);
  });

  test('lapsed', async () => {
    await taken(() => crew.database.moveClock(31_000), AGAIN);
    expect(lines()).toMatchObject([
      { outcome: 'lost', msg: 'The lease was lost.', why: 'it was not renewed in time, and expired' },
    ]);
  });
});

test('a lease that was lost to a stall of the event loop is a line that says so', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const worker = speaking(engine, {
    lease: 1_500,
    handlers: { [kind]: () => stall(1_200) },
  });
  // Delays are measured from the first tick on.
  const delayed = (): number => {
    stall(50);
    return worker.health().eventLoopDelay.maxMs;
  };
  await expect.poll(delayed, SOON).toBeGreaterThan(10);
  await engine.executions.submit({ kind });
  const lost = (): unknown => lines().filter(({ msg }) => msg === 'The lease was lost.');
  await expect
    .poll(lost, SOON)
    .toMatchObject([
      { kind, why: expect.stringMatching(/not renewed for .* the event loop was blocked for/) as unknown },
    ]);
});

test('what is paused or handed back at a stop is not lost', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const begun = latch();
  const worker = speaking(engine, {
    handlers: {
      [kind]: async (ctx) => {
        if (ctx.payload === 'sleep') return ctx.sleep('long', '3h');
        begun.open();
        return new Promise(() => undefined);
      },
    },
  });
  await engine.executions.submit([
    { kind, payload: 'sleep' },
    { kind, payload: 'hang' },
  ]);
  await begun.opened;
  await expect.poll(() => worker.stats.paused, SOON).toBe(1);
  await worker.stop({ deadline: 0 });
  expect(worker.stats.released).toBe(1);
  expect(lines()).toEqual([]);
});

test('a stall of the event loop is a line, with what it costs and what to do', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  onTestFinished(() => void vi.useRealTimers());
  const port: WorkerPort = {
    ...workerPort(await crew.connect()),
    // Timers of statements would fire too.
    claim: async () => ({ claims: [], nextDueInMs: null, passedBy: 0 }),
    fireTimers: async () => 0,
    registerWorker: async () => undefined,
  };
  const worker = speaking(port, { lease: 60_000, handlers: { [newKind()]: () => 1 } });
  await expect
    .poll(() => {
      stall(1_100);
      return worker.health().eventLoopDelay.maxMs;
    }, SOON)
    .toBeGreaterThan(1_000);
  const beat = (): unknown => {
    vi.advanceTimersByTime(12_000);
    return lines();
  };
  await expect.poll(beat, SOON).toHaveLength(1);
  expect(lines()).toMatchObject([
    {
      level: 'warn',
      msg: 'The event loop was blocked.',
      leaseMs: 60_000,
      advice: expect.stringMatching(/lease time \(1m\).*worker thread/) as unknown,
    },
  ]);
});

test('trouble of the database is written once a while, if nobody else takes it', async () => {
  const engine = await crew.connect();
  let refused = 0;
  const port: WorkerPort = {
    ...workerPort(engine),
    claim: async () => {
      refused += 1;
      throw new EngineError('unavailable', 'The database cannot be reached.');
    },
  };
  const worker = speaking(port, { poll: 1, handlers: { [newKind()]: () => 1 } });
  await expect.poll(() => refused, SOON).toBeGreaterThan(5);
  await worker.stop({ deadline: 0 });
  expect(lines()).toMatchObject([
    { level: 'warn', code: 'unavailable', error: { message: 'The database cannot be reached.' } },
    { msg: 'Lines were left out.', count: expect.any(Number) as unknown },
  ]);
});
