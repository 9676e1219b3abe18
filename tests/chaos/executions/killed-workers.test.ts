/**
 * Worker processes that die, freeze and come back, on the real clock: others finish what they held, once, and their
 * later writes change nothing.
 */
import { expect, onTestFinished, test } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import { newKind, SOON, useCrew, uuidOf } from '../../worker/crew.ts';
import { faultsOf } from '../checker.ts';
import { startWorkerProcess } from '../children.ts';

const LEASE_MS = 1_000;
const POLICY = { retry: { maxRetries: 1_000, backoff: { type: 'fixed', delay: 5 } } } as const;
const crew = useCrew();

async function endedOf(kind: string): Promise<number> {
  const found = await crew.database.query<{ n: number }>(
    `SELECT count(h.terminal_outcome) AS n FROM ff_attempt_history h JOIN ff_execution USING (execution_id) JOIN ff_route USING (route_id)
     WHERE kind = $1`,
    [kind],
  );
  return found.rows[0]!.n;
}

async function leaseEvents(id: string): Promise<object[]> {
  const found = await crew.database.query(
    `SELECT event_type, worker_instance_id, detail FROM ff_event
     WHERE execution_id = $1 AND family = 'lease' AND event_type <> 'renewed' ORDER BY ev_id`,
    [uuidOf(id as never)],
  );
  return found.rows;
}

async function resultsOf(engine: Connection, ids: readonly string[]): Promise<unknown[]> {
  return Promise.all(ids.map((id) => engine.executions.result(id as never)));
}

test('work held by a killed worker is finished by another, once, and the log names both', async () => {
  const engine = await crew.connect({ reconcile: 'on' });
  const kind = newKind();
  const payloads = Array.from({ length: 20 }, (_, n) => ({
    kind,
    payload: { n, failures: 0 },
    policy: POLICY,
  }));
  const submitted = await engine.executions.submit(payloads);
  const ids = submitted.map(({ executionId }) => executionId);
  const process = { url: crew.database.url, kind, concurrency: 20, leaseMs: LEASE_MS };
  const doomed = startWorkerProcess({ ...process, mode: 'hold', name: 'doomed' });
  const first = await doomed.ready();
  await expect.poll(() => doomed.said.filter((item) => item.started).length, SOON).toBe(20);
  const rescuer = startWorkerProcess({ ...process, mode: 'work', name: 'rescuer' });
  const second = await rescuer.ready();
  doomed.signal('SIGKILL');
  await expect.poll(() => endedOf(kind), SOON).toBe(20);
  await rescuer.finish();
  expect(await faultsOf(crew.database.url, kind)).toEqual([]);
  expect(await resultsOf(engine, ids)).toEqual(
    ids.map((_, n) => ({ outcome: 'success', result: { doubled: n * 2 } })),
  );
  for (const id of ids) {
    const events = await leaseEvents(id);
    expect(events.slice(0, 3)).toMatchObject([
      { event_type: 'acquired', worker_instance_id: first },
      { event_type: 'expired', worker_instance_id: first },
      {
        event_type: 'reclaimed',
        worker_instance_id: second,
        detail: { previous_owner: first, new_owner: second },
      },
    ]);
  }
});

test('a worker frozen past its lease writes nothing when it wakes', async () => {
  const engine = await crew.connect({ reconcile: 'on' });
  const kind = newKind();
  const submitted = await engine.executions.submit(
    Array.from({ length: 5 }, () => ({ kind, policy: POLICY })),
  );
  const ids = submitted.map(({ executionId }) => executionId);
  const frozen = startWorkerProcess({
    url: crew.database.url,
    kind,
    mode: 'hold',
    concurrency: 5,
    leaseMs: LEASE_MS,
    name: 'frozen',
  });
  await expect.poll(() => frozen.said.filter((item) => item.started).length, SOON).toBe(5);
  frozen.signal('SIGSTOP');
  onTestFinished(() => frozen.signal('SIGCONT'));
  crew.work(engine, { handlers: { [kind]: () => 'by the new owner' } });
  await expect.poll(() => endedOf(kind), SOON).toBe(5);
  const before = await Promise.all(ids.map((id) => crew.eventsOf(id)));
  frozen.signal('SIGCONT');
  frozen.go();
  await expect.poll(() => frozen.said.filter((item) => item.answers).length, SOON).toBe(5);
  for (const { answers } of frozen.said.filter((item) => item.answers)) {
    expect(answers).toEqual(['lease_expired', 'lease_expired', 'lease_expired', 'lease_expired']);
  }
  await frozen.finish();
  expect(await Promise.all(ids.map((id) => crew.eventsOf(id)))).toEqual(before);
  expect(await resultsOf(engine, ids)).toEqual(
    ids.map(() => ({ outcome: 'success', result: 'by the new owner' })),
  );
  expect(await faultsOf(crew.database.url, kind)).toEqual([]);
});

test('a worker stopped by SIGTERM releases its work without a lease timeout or a spent attempt', async () => {
  const engine = await crew.connect();
  const kind = newKind();
  const [submitted] = await engine.executions.submit([{ kind, policy: { retry: { maxRetries: 0 } } }]);
  // Far longer than the test: if the work were not released, nobody could claim it.
  const process = { url: crew.database.url, kind, concurrency: 1, leaseMs: 3_600_000 };
  const leaving = startWorkerProcess({ ...process, mode: 'hold', name: 'leaving' });
  await expect.poll(() => leaving.said.filter((item) => item.started).length, SOON).toBe(1);
  leaving.signal('SIGTERM');
  expect(await leaving.ended()).toBe(0);
  expect(leaving.said.at(-1)).toMatchObject({ stats: { released: 1, completed: 0 } });
  const seen: { attemptIndex: number; resumed: boolean }[] = [];
  const { executionId } = submitted!;
  crew.work(engine, {
    handlers: {
      [kind]: ({ attemptIndex, resumed }) => {
        seen.push({ attemptIndex, resumed });
        return 'continued';
      },
    },
  });
  await expect
    .poll(() => engine.executions.result(executionId), SOON)
    .toEqual({ outcome: 'success', result: 'continued' });
  expect(seen).toEqual([{ attemptIndex: 0, resumed: true }]);
});
