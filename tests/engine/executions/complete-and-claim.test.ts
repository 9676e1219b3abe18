/**
 * A completion and a claim made at the same time share a statement. Neither waits or fails because of the other.
 */
import pg from 'pg';
import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import { workerPort } from '../../../src/connect/port.ts';
import type { ExecutionId } from '../../../src/contract/ids.ts';
import type { PoolLike } from '../../../src/engine/database/database.ts';
import type { Claim, ClaimRequest, WorkerPort } from '../../../src/protocol/index.ts';
import { submitFlow } from '../../conformance/flows/kit.ts';
import { newKind, useBench } from '../../conformance/open.ts';
import { uuidOf } from '../../worker/crew.ts';

const bench = useBench();
const clients: pg.Client[] = [];
const REFUSED = 'refused by the test';

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end()));
});

interface Noted {
  connection: Connection;
  port: WorkerPort;
  /** The functions that were called, in order. */
  calls: string[];
}

/** A connection that notes which of the functions it calls. */
async function noted(): Promise<Noted> {
  const pool = new pg.Pool({ connectionString: bench.database.url, max: 10 });
  const calls: string[] = [];
  const noting: PoolLike = {
    query(config) {
      calls.push(...(config.text.match(/ff_(?:complete|claim|complete_and_claim)(?=\()/g) ?? []));
      return pool.query(config as pg.QueryConfig);
    },
  };
  const connection = await bench.another({ databaseUrl: undefined, pool: noting, listen: 'off' } as never);
  onTestFinished(async () => {
    await connection.close();
    await pool.end();
  });
  return { connection, port: workerPort(connection), calls };
}

const requestFor = (kind: string, limit = 1): ClaimRequest => ({
  workerId: 'w',
  workerInstanceId: 'w-1',
  kinds: [kind],
  limit,
  leaseMs: 30_000,
});

/** A claimed execution, and another one of its kind that is waiting. */
async function oneClaimed({
  port,
  calls,
}: Noted): Promise<{ kind: string; first: Claim; second: ExecutionId }> {
  const kind = newKind();
  await bench.submit({ kind });
  const { claims } = await port.claim(requestFor(kind));
  const second = await bench.submit({ kind });
  calls.splice(0);
  return { kind, first: claims[0]!, second };
}

async function locked(executionId: ExecutionId): Promise<pg.Client> {
  const client = await bench.database.connect();
  clients.push(client);
  await client.query('BEGIN');
  await client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR KEY SHARE', [uuidOf(executionId)]);
  return client;
}

describe('a completion and a claim made together', () => {
  it('share one statement, and each has its answer', async () => {
    const one = await noted();
    const { kind, first, second } = await oneClaimed(one);
    const [completed, claimed] = await Promise.all([
      one.port.complete(first, { done: true }),
      one.port.claim(requestFor(kind)),
    ]);
    expect(one.calls).toEqual(['ff_complete_and_claim']);
    expect(completed).toEqual({ outcome: 'completed', repeated: false });
    expect(claimed.claims.map((claim) => claim.executionId)).toEqual([second]);
    expect(await bench.engine.executions.result(first.executionId)).toEqual({
      outcome: 'success',
      result: { done: true },
    });
  });

  it('tell a refused completion from an accepted one, and repeat an earlier answer', async () => {
    const one = await noted();
    const { kind, first } = await oneClaimed(one);
    await bench.submit({ kind });
    const [stale, claimed] = await Promise.all([
      one.port.complete({ ...first, leaseEpoch: first.leaseEpoch + 1 }),
      one.port.claim(requestFor(kind)),
    ]);
    expect(stale).toMatchObject({ outcome: 'stale_lease' });
    await one.port.complete(first);
    const [again, mine, more] = await Promise.all([
      one.port.complete(first),
      one.port.complete(claimed.claims[0]!),
      one.port.claim(requestFor(kind)),
    ]);
    expect(one.calls).toEqual(['ff_complete_and_claim', 'ff_complete', 'ff_complete_and_claim']);
    expect([again, mine]).toEqual([
      { outcome: 'completed', repeated: true },
      { outcome: 'completed', repeated: false },
    ]);
    expect(more.claims).toHaveLength(1);
  });

  it('do not wait for each other: a completion whose row is held is sent alone', async () => {
    const one = await noted();
    const { kind, first, second } = await oneClaimed(one);
    const holder = await locked(first.executionId);
    const completing = one.port.complete(first);
    const { claims } = await one.port.claim(requestFor(kind));
    expect(claims.map((claim) => claim.executionId)).toEqual([second]);
    await holder.query('COMMIT');
    expect(await completing).toEqual({ outcome: 'completed', repeated: false });
    expect(one.calls).toEqual(['ff_complete_and_claim', 'ff_complete']);
  });

  it('do not fail with each other: a completion the database refuses leaves the claim alone', async () => {
    const one = await noted();
    const { kind, first, second } = await oneClaimed(one);
    await bench.database.query(
      `ALTER TABLE ff_attempt_history ADD CONSTRAINT planted CHECK (result IS DISTINCT FROM '"${REFUSED}"')`,
    );
    try {
      const [completed, claimed] = await Promise.allSettled([
        one.port.complete(first, REFUSED),
        one.port.claim(requestFor(kind)),
      ]);
      expect(completed).toMatchObject({ reason: { code: 'database_error', sqlState: '23514' } });
      expect(claimed).toMatchObject({ value: { claims: [{ executionId: second }] } });
    } finally {
      await bench.database.query('ALTER TABLE ff_attempt_history DROP CONSTRAINT planted');
    }
    expect(one.calls.toSorted()).toEqual(['ff_claim', 'ff_complete', 'ff_complete_and_claim']);
    expect(await bench.snapshot(first.executionId)).toMatchObject({ state: 'active' });
  });

  it('share no statement when many completions leave: those are a batch of their own', async () => {
    const one = await noted();
    const kind = newKind();
    for (let n = 0; n < 20; n += 1) await bench.submit({ kind });
    const { claims } = await one.port.claim(requestFor(kind, 20));
    one.calls.splice(0);
    await Promise.all([...claims.map((claim) => one.port.complete(claim)), one.port.claim(requestFor(kind))]);
    // A claim that finds nothing where it left off looks once more from the start.
    expect([...new Set(one.calls)].toSorted()).toEqual(['ff_claim', 'ff_complete']);
  });
});

it.each([
  { known: 'with its claim', called: ['ff_complete'] },
  {
    known: 'with its lease alone, which does not name the flow',
    called: ['ff_complete_and_claim', 'ff_complete'],
  },
])(
  'a member of a flow that is completed $known is completed by a statement of its own, which advances the flow',
  async ({ called }) => {
    const one = await noted();
    const flow = await submitFlow(bench, [{ name: 'first' }, { name: 'second', after: ['first'] }]);
    const { claims } = await one.port.claim(requestFor(flow.kindOf('first')));
    one.calls.splice(0);
    const { executionId, attemptIndex, leaseEpoch } = claims[0]!;
    const [completed] = await Promise.all([
      one.port.complete(called.length === 1 ? claims[0]! : { executionId, attemptIndex, leaseEpoch }),
      one.port.claim(requestFor(flow.kindOf('first'))),
    ]);
    expect(completed).toEqual({ outcome: 'completed', repeated: false });
    expect(one.calls.filter((call) => call !== 'ff_claim')).toEqual(called);
    expect((await flow.claim('second')).attemptIndex).toBe(0);
  },
);
