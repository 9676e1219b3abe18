/**
 * Signals that are sent together: they share statements, each gets its own answer, those to one execution keep their
 * order, and one whose execution is locked delays no other.
 */
import pg from 'pg';
import { afterEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Connection } from '../../../src/connect/connection.ts';
import { LIMITS } from '../../../src/contract/limits.ts';
import type { PoolLike } from '../../../src/engine/database/database.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import { newKind, useBench, WAIT } from '../../conformance/open.ts';
import { leaf } from '../../conformance/signals/telling.ts';
import { uuidOf } from '../../worker/crew.ts';

const bench = useBench();
const clients: pg.Client[] = [];
const MANY = 50;

afterEach(async () => {
  await Promise.all(clients.splice(0).map((client) => client.end()));
});

/** A connection that notes the statements that deliver signals. */
async function sender(): Promise<{ connection: Connection; statements: string[] }> {
  const pool = new pg.Pool({ connectionString: bench.database.url, max: 10 });
  const statements: string[] = [];
  const noting: PoolLike = {
    query(config) {
      statements.push(...(config.text.match(/ff_deliver_signals?\(/g) ?? []));
      return pool.query(config as pg.QueryConfig);
    },
  };
  const connection = await bench.another({ databaseUrl: undefined, pool: noting, listen: 'off' } as never);
  onTestFinished(async () => {
    await connection.close();
    await pool.end();
  });
  return { connection, statements };
}

async function suspended(count: number, needed = 1): Promise<Claim[]> {
  const kind = newKind();
  for (let n = 0; n < count; n += 1) await bench.submit({ kind });
  const claims = await bench.claim({ kinds: [kind], limit: count });
  const condition = leaf(needed, 'signals', ['door']);
  for (const claim of claims) await bench.port.suspend(claim, { waits: [{ name: 'wait', condition }] });
  return claims;
}

const by = (identity: string) => ({ by: identity });

async function locked({ executionId }: Claim): Promise<pg.Client> {
  const client = await bench.database.connect();
  clients.push(client);
  await client.query('BEGIN');
  await client.query('SELECT FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [uuidOf(executionId)]);
  return client;
}

describe('signals sent together', () => {
  it('share statements, and each resumes its execution', async () => {
    const { connection, statements } = await sender();
    const claims = await suspended(MANY);
    const answers = await Promise.all(
      claims.map(({ executionId }) => connection.waitpoints.approve(executionId, 'door', by('ann'))),
    );
    expect(answers.map((answer) => ('effect' in answer ? answer.effect : answer.outcome))).toEqual(
      claims.map(() => 'resumed'),
    );
    expect(statements.length).toBeLessThanOrEqual(3);
    for (const { executionId } of claims)
      expect(await bench.snapshot(executionId)).toMatchObject({ state: 'waiting' });
  });

  it('to one execution are accepted in the order of the calls', async () => {
    const claim = await bench.running();
    await bench.port.createWaitpoint(claim, { name: 'door' });
    const names = Array.from({ length: MANY }, (_, n) => `signal ${n}`);
    const answers = await Promise.all(
      names.map((name) => bench.engine.waitpoints.approve(claim.executionId, 'door', { ...by('ann'), name })),
    );
    expect(answers.every(({ outcome }) => outcome === 'accepted')).toBe(true);
    const { rows } = await bench.database.query(
      'SELECT name FROM ff_signal WHERE execution_id = $1 ORDER BY seq',
      [uuidOf(claim.executionId)],
    );
    expect(rows.map(({ name }) => name as string)).toEqual(names);
  });

  it('to several executions count in turn for each, until its condition is met', async () => {
    const claims = await suspended(3, 2);
    const names = ['first', 'second', 'third'];
    const calls = names.flatMap((name) => claims.map(({ executionId }) => ({ executionId, name })));
    const answers = await Promise.all(
      calls.map(({ executionId, name }) =>
        bench.engine.waitpoints.approve(executionId, 'door', { ...by('ann'), name }),
      ),
    );
    expect(answers.map((answer) => ('effect' in answer ? answer.effect : answer.outcome))).toEqual([
      ...claims.map(() => 'counted'),
      ...claims.map(() => 'resumed'),
      ...claims.map(() => 'closed'),
    ]);
    const { rows } = await bench.database.query<{ names: string[]; effects: string[] }>(
      `SELECT ARRAY(SELECT x ->> 'name' FROM jsonb_array_elements(s.value -> 'signals') x) AS names,
              ARRAY(SELECT g.effect FROM ff_signal g WHERE g.execution_id = s.execution_id ORDER BY g.seq) AS effects
       FROM ff_step s WHERE s.execution_id = ANY ($1)`,
      [claims.map(({ executionId }) => uuidOf(executionId))],
    );
    expect(rows).toEqual(claims.map(() => ({ names: ['first', 'second'], effects: ['counted', 'resumed'] })));
  });

  it('are refused one by one', async () => {
    const [good, ended, unnamed, strict, last] = await suspended(5);
    await bench.engine.cancel(ended!.executionId, { reason: 'test' });
    const kind = newKind();
    const checked = await bench.running({ kind });
    await bench.port.createWaitpoint(checked, { name: 'door', schema: { type: 'string' } });
    const approve = (claim: Claim, waitpoint: string, more: { payload?: string | number } = {}) =>
      bench.engine.waitpoints.approve(claim.executionId, waitpoint, { ...by('ann'), ...more });
    const told = await Promise.allSettled([
      approve(good!, 'door'),
      approve(ended!, 'door'),
      approve(unnamed!, 'window'),
      approve(checked, 'door', { payload: 7 }),
      approve(strict!, 'door', { payload: 'x'.repeat(LIMITS.signalBytes) }),
      approve(checked, 'door', { payload: 'seven' }),
      approve(last!, 'door'),
    ]);
    expect(
      told.map((one) => (one.status === 'fulfilled' ? one.value : (one.reason as { code: string }).code)),
    ).toMatchObject([
      { effect: 'resumed' },
      { outcome: 'closed' },
      'not_found',
      'invalid_input',
      'payload_too_large',
      { effect: 'buffered' },
      { effect: 'resumed' },
    ]);
  });

  it('do not wait for one whose execution another transaction has locked', async () => {
    const claims = await suspended(5);
    const holder = await locked(claims[2]!);
    const answers = claims.map(({ executionId }) =>
      bench.engine.waitpoints.approve(executionId, 'door', by('ann')),
    );
    const behind = bench.engine.waitpoints.approve(claims[2]!.executionId, 'door', by('bob'));
    const others = await Promise.all(answers.filter((_, n) => n !== 2));
    expect(others.every((answer) => 'effect' in answer && answer.effect === 'resumed')).toBe(true);
    await holder.query('COMMIT');
    expect(await answers[2]).toMatchObject({ effect: 'resumed' });
    expect(await behind).toEqual({ outcome: 'closed' });
  });

  it('in a statement that waited for every row would wait for the locked one', async () => {
    const { rows } = await bench.database.query(
      `SELECT pg_get_functiondef('ff_deliver_signals'::regproc) AS text`,
    );
    const text = (rows[0] as { text: string }).text;
    await bench.database.query(
      text.replace('ff_deliver_signals', 'naive_deliver_signals').replace(' SKIP LOCKED', ''),
    );
    const claims = await suspended(2);
    const holder = await locked(claims[0]!);
    const client = await bench.database.connect();
    clients.push(client);
    const naive = client.query(
      `SELECT * FROM naive_deliver_signals($1, ARRAY(SELECT partition_key FROM unnest($1::uuid[]) WITH ORDINALITY u(id, n)
         JOIN ff_execution ON execution_id = id ORDER BY n), '{NULL,NULL}', '{door,door}', '{NULL,NULL}', '{NULL,NULL}', '{NULL,NULL}',
         ARRAY[gen_random_uuid(), gen_random_uuid()], '{go,go}', '{user,user}', '{ann,ann}', '{1,1}', '{a,b}', '{t,t}', '{9,9}', '{99,99}')`,
      [claims.map(({ executionId }) => uuidOf(executionId))],
    );
    await vi.waitFor(async () => {
      const waiting = await bench.database.query(
        `SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%naive_deliver_signals%'`,
      );
      expect(waiting.rowCount).toBe(1);
    }, WAIT);
    await holder.query('COMMIT');
    expect((await naive).rows).toMatchObject([{ effect: 'resumed' }, { effect: 'resumed' }]);
  });
});
