/**
 * Work whose row is locked at the moment a worker polls. A claim never waits for it but skips it; the worker then polls
 * again by itself. Every worker here polls once an hour, and the lock holders send no hints.
 */
import type pg from 'pg';
import { describe, expect, test, vi } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import { parseExecutionId, type ExecutionId } from '../../src/contract/ids.ts';
import { task } from '../../src/define/task.ts';
import { handle } from '../../src/define/handlers.ts';
import { hintChannel } from '../../src/engine/database/names.ts';
import { WakeUp } from '../../src/worker/loop/wake-up.ts';
import { newKind, NEVER_MS, resultOf, SOON, useCrew, uuidOf } from './crew.ts';
import { workerPort } from '../../src/connect/port.ts';
import { patiently } from '../setup/patience.ts';

const SIGNING_SECRET = 'a secret of at least thirty-two bytes';
/** A wait that finishes in milliseconds, or never. */
const WITHOUT_POLL = { ...SOON, timeout: patiently(8_000) };

const crew = useCrew();

interface Held {
  before?: string;
  sql: string;
  end: 'COMMIT' | 'ROLLBACK';
}

/** Statements that lock a ready execution and leave it ready. */
const RIVALS: Record<string, Held> = {
  'a signal that is kept': {
    sql: `SELECT ff_deliver_signal($1, $2, NULL, 'door', NULL, 'print', NULL, gen_random_uuid(), 'knock', 'user', 'ann', '{}',
            NULL, true, 10, 1000)`,
    end: 'COMMIT',
  },
  'a signal to a waitpoint that is not there': {
    sql: `SELECT ff_deliver_signal($1, $2, NULL, 'window', NULL, 'print', NULL, gen_random_uuid(), 'knock', 'user', 'ann', '{}',
            NULL, true, 10, 1000)`,
    end: 'COMMIT',
  },
  'the end of tokens': { sql: `SELECT ff_revoke_tokens($1, $2, 'door', gen_random_uuid())`, end: 'COMMIT' },
  'a change of tags': { sql: `SELECT ff_set_tags($1, $2, '{"a": "b"}', '{}', 64, 'ann')`, end: 'COMMIT' },
  'a change of priority': {
    sql: `SELECT ff_change_priority(ARRAY[$1::uuid], ARRAY[$2::smallint], NULL, 7, 'ann')`,
    end: 'COMMIT',
  },
  'a cancel that is taken back': {
    sql: `SELECT ff_cancel(ARRAY[$1::uuid], ARRAY[$2::smallint], 'why', 'ann')`,
    end: 'ROLLBACK',
  },
  'a cancel of an earlier epoch': {
    sql: `SELECT ff_cancel(ARRAY[$1::uuid], ARRAY[$2::smallint], 'why', 'ann', ARRAY[99])`,
    end: 'COMMIT',
  },
  'a revocation of a lease that has ended': {
    sql: `SELECT ff_revoke_leases(ARRAY[$1::uuid], ARRAY[$2::smallint], ARRAY[NULL::uuid], 'why', 'ann', 10)`,
    end: 'COMMIT',
  },
  'a replay of what has not ended': {
    sql: `SELECT ff_replay(ARRAY[$1::uuid], ARRAY[$2::smallint], NULL, false, 'why', 'ann', 10)`,
    end: 'COMMIT',
  },
  'a timer that fires': {
    // In its own transaction: the worker does not know of a timer that is due.
    before: 'UPDATE ff_timer SET due_at_ms = 1 WHERE execution_id = $1 AND partition_key = $2',
    sql: `SELECT ff_fire_timers(ARRAY(SELECT timer_id FROM ff_timer WHERE execution_id = $1 AND partition_key = $2))`,
    end: 'COMMIT',
  },
};

/** Ready to be claimed, with a waitpoint. */
async function ready(engine: Connection, kind: string): Promise<ExecutionId> {
  const { executionId } = await engine.executions.submit({ kind });
  const { claims } = await workerPort(engine).claim({
    workerId: 'first',
    workerInstanceId: 'first',
    kinds: [kind],
    limit: 1,
    leaseMs: 30_000,
  });
  await workerPort(engine).createWaitpoint(claims[0]!, { name: 'door', expiresInMs: NEVER_MS });
  expect(await workerPort(engine).release(claims[0]!)).toMatchObject({ outcome: 'released' });
  return executionId;
}

async function hold(executionId: ExecutionId, { before, sql }: Held): Promise<pg.Client> {
  const client = await crew.database.connect();
  await client.query('BEGIN');
  const { partition, uuid } = parseExecutionId(executionId);
  if (before !== undefined) await client.query(before, [uuid, partition]);
  await client.query(sql, [uuid, partition]);
  return client;
}

/** Runs one execution to completion: every earlier message on the channel has been received by then. */
async function run(submitter: Connection, kind: string): Promise<void> {
  const { executionId } = await submitter.executions.submit({ kind });
  await expect.poll(() => resultOf(submitter, executionId), SOON).toBe('success');
}

describe('an execution whose row is locked while a worker polls is claimed soon after', () => {
  test.each(Object.entries(RIVALS))('%s', async (_, rival) => {
    const [kind, other] = [newKind(), newKind()];
    const here = await crew.connect();
    const there = await crew.connect({ listen: 'off', signingSecret: SIGNING_SECRET });
    const executionId = await ready(there, kind);
    const holder = await hold(executionId, rival);
    crew.work(here, { handlers: { [kind]: () => undefined, [other]: () => undefined } });
    await run(there, other);
    await holder.query(rival.end);
    await holder.end();
    await expect.poll(() => resultOf(there, executionId), WITHOUT_POLL).toBe('success');
  });
});

async function isSuspendedAt(executionId: ExecutionId, waitpoint: string): Promise<boolean> {
  const found = await crew.database.query(
    `SELECT FROM ff_suspension JOIN ff_waitpoint USING (execution_id)
     WHERE execution_id = $1 AND name = $2 AND closed_at_ms IS NULL`,
    [uuidOf(executionId), waitpoint],
  );
  return found.rowCount === 1;
}

test('five concurrent senders of signals, round after round, never cost a round its wake-up', async () => {
  const ROUNDS = 12;
  const entity = task<null, number>(newKind());
  const [here, ...senders] = await Promise.all(
    Array.from({ length: 6 }, () => crew.connect({ poolSize: 2 })),
  );
  crew.work(here!, {
    handlers: [
      handle(entity, async (_, ctx) => {
        let heard = 0;
        for (let round = 0; round < ROUNDS; round += 1) {
          heard += (await ctx.waitFor('told', String(round))).signals.length;
        }
        return heard;
      }),
    ],
  });
  const { executionId } = await here!.submit(entity, null);
  for (let round = 0; round < ROUNDS; round += 1) {
    const waitpoint = `told:${round}`;
    await expect.poll(() => isSuspendedAt(executionId, waitpoint), WITHOUT_POLL).toBe(true);
    await Promise.all(
      senders.map((sender, index) => sender.waitpoints.approve(executionId, waitpoint, { by: `s-${index}` })),
    );
  }
  await expect
    .poll(() => here!.executions.result(executionId), WITHOUT_POLL)
    .toEqual({ outcome: 'success', result: ROUNDS });
});

test('a claim that skipped some and still got all it requested sends a hint to other processes', async () => {
  const kind = newKind();
  const [here, there] = [await crew.connect(), await crew.connect()];
  const before = await crew.connect({ signingSecret: SIGNING_SECRET });
  let [hints, isReady] = [0, false];
  workerPort(there).watch({ kinds: [kind] }, ({ routes, workers }) => {
    hints += Math.sign(routes.length);
    isReady ||= workers.includes('all-said');
    return false;
  });
  const executionId = await ready(before, kind);
  await before.executions.submit({ kind });
  await before.close();
  // The channel keeps its order: what is received after this was sent after it.
  const allSaid = JSON.stringify({ workers: ['all-said'] });
  await crew.database.query('SELECT pg_notify($1, $2)', [hintChannel(crew.database.schema), allSaid]);
  await expect.poll(() => isReady, SOON).toBe(true);
  hints = 0;
  const holder = await hold(executionId, RIVALS['a change of tags']!);
  const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: [kind], leaseMs: 30_000 };
  expect(await workerPort(here).claim({ ...request, limit: 1 })).toMatchObject({
    claims: [{ kind }],
    passedBy: 1,
  });
  await expect.poll(() => hints, SOON).toBeGreaterThan(0);
  expect(await workerPort(here).claim({ ...request, limit: 2 })).toMatchObject({ claims: [], passedBy: 1 });
  await holder.query('COMMIT');
  await holder.end();
  expect(await workerPort(here).claim({ ...request, limit: 2 })).toMatchObject({
    claims: [{ executionId }],
    passedBy: 0,
  });
});

describe('work that stays locked for long', () => {
  /** Polls within this time, when each of them skips one. */
  async function looksWithin(wakeUp: WakeUp, ms: number): Promise<number> {
    let looks = 0;
    const over = new AbortController();
    const looking = (async () => {
      while (!over.signal.aborted) {
        looks += 1;
        wakeUp.notePassedBy(1);
        await wakeUp.work();
      }
    })();
    await vi.advanceTimersByTimeAsync(ms);
    over.abort();
    wakeUp.close();
    await looking;
    return looks;
  }

  test.each([
    [NEVER_MS, 20],
    [1_000, 80],
  ])('is polled less and less often, with a poll interval of %i ms', async (pollMs, most) => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const looks = await looksWithin(new WakeUp(pollMs), 60_000);
      expect(looks).toBeGreaterThan(10);
      expect(looks).toBeLessThanOrEqual(most);
    } finally {
      vi.useRealTimers();
    }
  });

  test('does not delay polls for other work', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const wakeUp = new WakeUp(NEVER_MS);
      for (let looks = 0; looks < 20; looks += 1) wakeUp.notePassedBy(1);
      wakeUp.hint();
      await wakeUp.work();
      expect(await looksWithin(wakeUp, 200)).toBe(4);
    } finally {
      vi.useRealTimers();
    }
  });
});
