/**
 * How a worker learns that there is work. Every worker here polls once an hour, so whatever starts was noticed through
 * a hint, a timer or a reopened channel.
 */
import { describe, expect, test, vi } from 'vitest';
import { AGAIN, latch, newKind, NEVER_MS, resultOf, SOON, useCrew, uuidOf } from './crew.ts';
import type { Connection } from '../../src/connect/connection.ts';
import type { ExecutionId } from '../../src/contract/ids.ts';
import { WakeUp } from '../../src/worker/loop/wake-up.ts';
import { workerPort } from '../../src/connect/port.ts';
import type { WorkerPort } from '../../src/contract/protocol.ts';
import { patiently } from '../setup/patience.ts';

const crew = useCrew();

/** Runs one execution of the kind to completion, so that no worker's first poll can be mistaken for a hint. */
async function warmUp(submitter: Connection, kind: string): Promise<void> {
  const { executionId } = await submitter.executions.submit({ kind });
  await expect.poll(() => resultOf(submitter, executionId), SOON).toBe('success');
}

test('work submitted by another process starts without waiting for the next poll', async () => {
  const [here, there] = [await crew.connect(), await crew.connect({ listen: 'off' })];
  const kind = newKind();
  crew.work(here, { handlers: { [kind]: () => undefined } });
  await warmUp(there, kind);
  await warmUp(there, kind);
});

test('work of a kind that was never submitted before starts as well', async () => {
  const [here, there] = [await crew.connect(), await crew.connect({ listen: 'off' })];
  const [first, second] = [newKind(), newKind()];
  crew.work(here, { handlers: { [first]: () => undefined, [second]: () => undefined } });
  await warmUp(there, first);
  await warmUp(there, second);
});

test('work submitted in a transaction of the caller starts after its commit', async () => {
  const here = await crew.connect();
  const kind = newKind();
  crew.work(here, { handlers: { [kind]: () => undefined } });
  await warmUp(here, kind);
  const client = await crew.database.connect();
  await client.query('BEGIN');
  const { executionId } = await here.executions.submit(
    { kind },
    { executor: (text, params) => client.query(text, params) },
  );
  expect(await resultOf(here, executionId)).toBe('not_found');
  await client.query('COMMIT');
  await expect.poll(() => resultOf(here, executionId), SOON).toBe('success');
  await client.end();
});

test('work that one process has no room for is noticed by another', async () => {
  const [here, there] = [await crew.connect(), await crew.connect()];
  const kind = newKind();
  const finish = latch();
  const answered = latch();
  let looked = 0;
  const slowly: WorkerPort = {
    ...workerPort(here),
    claim: async (request) => {
      const claimed = await workerPort(here).claim(request);
      if (claimed.claims.some(({ payload }) => payload === 'held')) await answered.opened;
      looked += 1;
      return claimed;
    },
  };
  const handlers = { [kind]: ({ payload }: { payload: string | null }) => payload && finish.opened };
  crew.work(slowly, { handlers, concurrency: 1 });
  await warmUp(here, kind);
  await expect.poll(() => looked, SOON).toBeGreaterThan(1);
  const first = await here.executions.submit({ kind, payload: 'held' });
  const state = async (id: ExecutionId) => (await here.executions.describe(id))!.state;
  await expect.poll(() => state(first.executionId), SOON).toBe('active');
  crew.work(there, { handlers, concurrency: 1 });
  await warmUp(there, kind);
  // This worker has not yet received its claims, and still believes that it has room.
  const second = await here.executions.submit({ kind, payload: 'held' });
  answered.open();
  await expect
    .poll(() => state(second.executionId), { ...SOON, timeout: patiently(5_000) })
    .toBe('active')
    .finally(() => finish.open());
});

describe('what is due later', () => {
  test('delayed work starts when it is due, also when another process submitted it', async () => {
    const [here, there] = [await crew.connect(), await crew.connect({ listen: 'off' })];
    const kind = newKind();
    crew.work(here, { handlers: { [kind]: () => undefined } });
    await warmUp(there, kind);
    for (const submitter of [here, there]) {
      const { executionId } = await submitter.executions.submit({ kind, delay: 150 });
      expect(await submitter.executions.describe(executionId)).toMatchObject({ state: 'delayed' });
      await expect.poll(() => resultOf(here, executionId), SOON).toBe('success');
    }
  });

  test('delayed work that was submitted before the worker started runs when it is due', async () => {
    const engine = await crew.connect();
    const kind = newKind();
    const { executionId } = await engine.executions.submit({ kind, delay: 200 });
    crew.work(engine, { handlers: { [kind]: () => undefined } });
    await expect.poll(() => resultOf(engine, executionId), SOON).toBe('success');
  });

  test('a retry starts after its backoff, in whichever process', async () => {
    const [here, there] = [await crew.connect(), await crew.connect()];
    const kind = newKind();
    const handlers = {
      [kind]: ({ attemptIndex }: { attemptIndex: number }) => {
        if (attemptIndex < 3) throw new Error('again');
        return attemptIndex;
      },
    };
    crew.work(here, { handlers });
    crew.work(there, { handlers });
    const submitted = await here.executions.submit(
      Array.from({ length: 10 }, () => ({ kind, policy: AGAIN })),
    );
    for (const { executionId } of submitted) {
      await expect
        .poll(() => here.executions.result(executionId), SOON)
        .toEqual({ outcome: 'success', result: 3 });
    }
  });

  test('a timer that cannot be fired blocks no worker, nor makes it poll continuously', async () => {
    const engine = await crew.connect({ reconcile: 'on' });
    const kind = newKind();
    let looks = 0;
    const counting: WorkerPort = {
      ...workerPort(engine),
      claim: (request) => {
        looks += 1;
        return workerPort(engine).claim(request);
      },
    };
    const { executionId } = await engine.executions.submit({ kind, delay: NEVER_MS });
    await crew.database.query(`
      CREATE FUNCTION refuse_one() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN RAISE EXCEPTION 'planted' USING ERRCODE = 'ZZ001'; END $$;
      CREATE TRIGGER refuse_one BEFORE UPDATE ON ff_execution FOR EACH ROW
        WHEN (OLD.execution_id = '${uuidOf(executionId)}') EXECUTE FUNCTION refuse_one();
      UPDATE ff_timer SET due_at_ms = due_at_ms - ${NEVER_MS} WHERE execution_id = '${uuidOf(executionId)}'`);
    const passes = () => engine.upkeep.reports().find(({ name }) => name === 'due-timers')!.passes;
    try {
      crew.work(counting, { handlers: { [kind]: () => undefined } });
      await expect
        .poll(async () => (await engine.executions.describe(executionId))!.setbacks, SOON)
        .toMatchObject([{ reconciler: 'due-timers' }]);
      // As after many failures: it is backed off for long, and stays the earliest timer.
      await crew.database.query('UPDATE ff_setback SET failures = 12, retry_at_ms = retry_at_ms + 3600000');
      await warmUp(engine, kind);
      await warmUp(engine, kind);
      const [passesBefore, looksBefore] = [passes(), looks];
      await expect.poll(passes, SOON).toBeGreaterThan(passesBefore);
      expect(looks - looksBefore).toBeLessThan(60);
    } finally {
      await crew.database.query('DROP FUNCTION refuse_one CASCADE');
    }
  });

  test('a timer that fires a moment early is waited for, not forgotten', async () => {
    // Node counts timers in whole milliseconds, so one may fire just before its time.
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    let now = 1_000;
    const clock = vi.spyOn(performance, 'now').mockImplementation(() => now);
    const wakeUp = new WakeUp(NEVER_MS);
    let fired = 0;
    try {
      const dueAt = now + 50;
      wakeUp.dueIn(50);
      const looping = (async () => {
        for (let looks = 0; fired === 0 && looks < 5; looks += 1) {
          await wakeUp.work();
          if (wakeUp.takeDue()) fired += 1;
          else wakeUp.dueIn(Math.max(0, dueAt - now));
        }
      })();
      now += 49.5;
      await vi.advanceTimersByTimeAsync(50);
      now += 1;
      await vi.advanceTimersByTimeAsync(10);
      const firedInTime = fired;
      wakeUp.close();
      await looping;
      expect(firedInTime).toBe(1);
    } finally {
      clock.mockRestore();
      vi.useRealTimers();
    }
  });
});

describe('without a channel', () => {
  test('a process that does not listen finds work by polling', async () => {
    const [here, there] = [await crew.connect({ listen: 'off' }), await crew.connect({ listen: 'off' })];
    const kind = newKind();
    crew.work(here, { poll: 20, handlers: { [kind]: () => undefined } });
    await warmUp(there, kind);
    await warmUp(there, kind);
  });

  test('a process that does not listen is notified of what it submits itself', async () => {
    const engine = await crew.connect({ listen: 'off' });
    const kind = newKind();
    crew.work(engine, { handlers: { [kind]: () => undefined } });
    await warmUp(engine, kind);
    await warmUp(engine, kind);
  });

  test('a listener whose connection is killed reconnects and misses nothing', async () => {
    const [here, there] = [await crew.connect(), await crew.connect({ listen: 'off' })];
    const kind = newKind();
    crew.work(here, { handlers: { [kind]: () => undefined } });
    await warmUp(there, kind);
    const listeners = async () => {
      const found = await crew.database.query<{ pid: number }>(
        `SELECT pid FROM pg_stat_activity
         WHERE datname = current_database() AND application_name = 'flowfabric listener'`,
      );
      return found.rows.map(({ pid }) => pid);
    };
    for (let round = 0; round < 3; round += 1) {
      const before = await listeners();
      expect(before).toHaveLength(1);
      await crew.database.query('SELECT pg_terminate_backend($1)', before);
      // While nothing listens: the reopened channel must make the worker poll.
      await warmUp(there, kind);
      await expect.poll(listeners, SOON).not.toEqual(before);
      await expect.poll(async () => (await listeners()).length, SOON).toBe(1);
      // And the new channel must deliver hints.
      await warmUp(there, kind);
    }
  });
});
