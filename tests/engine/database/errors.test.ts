/**
 * External failures: the database unreachable, full of conflicts, or at another isolation level. Each is an EngineError
 * with a code and a sentence that quotes neither secrets nor data.
 */
import { createServer } from 'node:net';
import pg from 'pg';
import { describe, expect, it, vi } from 'vitest';
import { connect, isEngineError, migrate, type EngineError } from '../../../src/index.ts';
import { ERROR_CODES } from '../../../src/contract/errors.ts';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import { newKind, useBench, WAIT } from '../../conformance/open.ts';
import { workerPort } from '../../../src/connect/port.ts';

const bench = useBench();
const PASSWORD = 'hunter2-very-secret';
const SECRET = 'a-secret-of-the-payload';

/** A local port without a listener. */
async function closedPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

async function errorOf(act: () => Promise<unknown>): Promise<EngineError> {
  const error: unknown = await act().then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!isEngineError(error)) throw new Error(`not refused by the engine: ${String(error)}`);
  return error;
}

/** Everything in an error that a log or a user may be shown: all but its cause. */
function shown(error: EngineError): string {
  return [error.message, error.stack, String(error), JSON.stringify(error)].join('\n');
}

function withoutSecrets(error: EngineError): void {
  expect(shown(error)).not.toContain(PASSWORD);
  expect(shown(error)).not.toContain(SECRET);
  expect(error.message).toMatch(/^[A-Z].*\.$/);
  expect(Object.keys(ERROR_CODES)).toContain(error.code);
}

describe('a database that cannot be reached', () => {
  it('is unavailable, for connect and for migrate, and the password is not shown', async () => {
    const port = await closedPort();
    const urlOf = (host: string) => `postgres://user:${PASSWORD}@${host}:${port}/db`;
    for (const act of [
      () => connect({ databaseUrl: urlOf('127.0.0.1') }),
      () => migrate({ databaseUrl: urlOf('127.0.0.1') }),
      // A name may resolve to several addresses, each of which fails.
      () => migrate({ databaseUrl: urlOf('localhost') }),
    ]) {
      const error = await errorOf(act);
      expect(error).toMatchObject({
        code: 'unavailable',
        message: expect.stringMatching(/could not be reached/),
      });
      withoutSecrets(error);
    }
  });

  it('because its name does not resolve is unavailable', async () => {
    const url = new URL(bench.database.url);
    url.pathname = '/no_such_database';
    const error = await errorOf(() => connect({ databaseUrl: url.href }));
    expect(error).toMatchObject({ code: 'unavailable', sqlState: '3D000' });
    withoutSecrets(error);
  });

  it('is permission_denied when it rejects the password or the role', async () => {
    const url = new URL(bench.database.url);
    url.password = PASSWORD;
    const wrong = await errorOf(() => connect({ databaseUrl: url.href }));
    expect(wrong.code).toBe('permission_denied');
    withoutSecrets(wrong);
    url.username = 'nobody_by_this_name';
    const unknown = await errorOf(() => connect({ databaseUrl: url.href }));
    expect(unknown.code).toBe('permission_denied');
    withoutSecrets(unknown);
  });
});

describe('no data is quoted', () => {
  it('by a refusal of the payload, the result or the failure that contains it', async () => {
    const lease = await bench.running();
    const errors = [
      await errorOf(() =>
        bench.engine.executions.submit({ kind: 'k', payload: { text: `${SECRET}\u0000` } }),
      ),
      await errorOf(() => bench.engine.executions.submit({ kind: 'k', payload: [SECRET, Number.NaN] })),
      await errorOf(() => bench.engine.executions.submit({ kind: 'k', payload: SECRET.repeat(100_000) })),
      await errorOf(() => bench.engine.executions.submit({ kind: 'k', namespace: SECRET.repeat(100) })),
      await errorOf(() => bench.engine.executions.submit({ kind: 'k', tags: { a: `${SECRET}\u0000` } })),
      await errorOf(() => bench.port.complete(lease, [`${SECRET}\uD800`])),
      await errorOf(() => bench.port.fail(lease, { message: SECRET, category: SECRET.repeat(100) })),
      await errorOf(() => bench.engine.cancel(lease.executionId, { reason: `${SECRET}\u0000` })),
    ];
    errors.forEach((error) => expect(shown(error)).not.toContain(SECRET));
  });

  it('by an error of the database, whose own message may contain it', async () => {
    const lease = await bench.running();
    await bench.database.query(
      `ALTER TABLE ff_execution ADD CONSTRAINT planted CHECK (payload->>'is' IS NULL) NOT VALID`,
    );
    await bench.database.query(
      'ALTER TABLE ff_attempt_history ADD CONSTRAINT planted CHECK (result IS NULL) NOT VALID',
    );
    try {
      const errors = [
        await errorOf(() => bench.engine.executions.submit({ kind: newKind(), payload: { is: SECRET } })),
        await errorOf(() => bench.port.complete(lease, SECRET)),
      ];
      for (const error of errors) {
        expect(error).toMatchObject({ code: 'database_error', sqlState: '23514' });
        expect(String((error.cause as pg.DatabaseError).detail)).toContain(SECRET);
        withoutSecrets(error);
      }
    } finally {
      await bench.database.query('ALTER TABLE ff_execution DROP CONSTRAINT planted');
      await bench.database.query('ALTER TABLE ff_attempt_history DROP CONSTRAINT planted');
    }
  });
});

describe('another isolation level than READ COMMITTED', () => {
  const CALLS: Record<string, (uuid: string, partition: number) => [string, unknown[]]> = {
    ff_complete: (uuid, partition) => [`ff_complete($1, $2, '{0}', '{1}', '{null}')`, [[uuid], [partition]]],
    ff_fail: (uuid, partition) => [
      `ff_fail($1, $2, '{0}', '{1}', '{m}', '{c}', '{NULL}', '{false}')`,
      [[uuid], [partition]],
    ],
    ff_release: (uuid, partition) => [`ff_release($1, $2, '{0}', '{1}')`, [[uuid], [partition]]],
    ff_renew: (uuid, partition) => [`ff_renew($1, $2, '{0}', '{1}', 1000)`, [[uuid], [partition]]],
    ff_cancel: (uuid, partition) => [`ff_cancel($1, $2, 'why', 'me')`, [[uuid], [partition]]],
    ff_revoke_leases: (uuid, partition) => [
      `ff_revoke_leases($1, $2, '{NULL}', 'why', 'me', 9)`,
      [[uuid], [partition]],
    ],
    ff_lapse_leases: (uuid, partition) => [`ff_lapse_leases($1, $2, '{1}')`, [[uuid], [partition]]],
    ff_fire_timers: () => [`ff_fire_timers('{1}')`, []],
    ff_claim: () => [`ff_claim('{1}', '{NULL}', '{0}', 1, 'w', 'w', gen_random_uuid(), 1000)`, []],
  };
  for (const [name, call] of Object.entries(CALLS)) {
    for (const level of ['REPEATABLE READ', 'SERIALIZABLE']) {
      it(`is refused by ${name} with FF001 at ${level}`, async () => {
        const { executionId } = await bench.running();
        const { uuid, partition } = parseExecutionId(executionId);
        const [text, params] = call(uuid, partition);
        const client = await bench.database.connect();
        try {
          await client.query(`BEGIN ISOLATION LEVEL ${level}`);
          await expect(client.query(`SELECT * FROM ${text}`, params)).rejects.toMatchObject({
            code: 'FF001',
          });
        } finally {
          await client.end();
        }
        expect(await bench.snapshot(executionId)).toMatchObject({ state: 'active' });
      });
    }
  }

  it('as the default of the given pool is reported as isolation_unsupported', async () => {
    const options = '-c default_transaction_isolation=serializable';
    const pool = new pg.Pool({ connectionString: bench.database.url, options, max: 1 });
    try {
      const error = await errorOf(() => connect({ pool, reconcile: 'off' }));
      expect(error).toMatchObject({ code: 'isolation_unsupported' });
      expect(error.message).toMatch(/READ COMMITTED/);
    } finally {
      await pool.end();
    }
  });
});

describe('a pool of the application', () => {
  it('is used and not closed', async () => {
    const pool = new pg.Pool({ connectionString: bench.database.url, max: 1 });
    try {
      const engine = await connect({ pool, reconcile: 'off' });
      const { executionId } = await engine.executions.submit({ kind: newKind() });
      await engine.close();
      expect((await pool.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
      expect(await bench.engine.executions.result(executionId)).toMatchObject({ outcome: 'pending' });
    } finally {
      await pool.end();
    }
  });
});

describe('conflicts on the engine’s own connections', () => {
  it('are retried until they pass', async () => {
    const claim = await bench.running();
    const { uuid } = parseExecutionId(claim.executionId);
    const blocker = await bench.database.connect();
    const pool = new pg.Pool({
      connectionString: bench.database.url,
      options: '-c lock_timeout=30ms',
      max: 1,
    });
    const refused = vi.fn<(error: unknown) => void>();
    const query = (config: pg.QueryConfig) =>
      pool.query(config).catch((error: unknown) => {
        refused(error);
        throw error;
      });
    const engine = await connect({ pool: { query } as unknown as pg.Pool, reconcile: 'off' });
    try {
      await blocker.query('BEGIN');
      await blocker.query('SELECT 1 FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [uuid]);
      const completing = workerPort(engine).complete(claim);
      await vi.waitFor(() => expect(refused).toHaveBeenCalled(), WAIT);
      await blocker.query('COMMIT');
      expect(await completing).toEqual({ outcome: 'completed', repeated: false });
      expect(refused.mock.calls[0]).toMatchObject([{ code: '55P03' }]);
    } finally {
      await engine.close();
      await Promise.all([pool.end(), blocker.end()]);
    }
  });

  it('that never pass are reported as contention', async () => {
    const claim = await bench.running();
    const { uuid } = parseExecutionId(claim.executionId);
    const blocker = await bench.database.connect();
    const pool = new pg.Pool({
      connectionString: bench.database.url,
      options: '-c lock_timeout=1ms',
      max: 1,
    });
    const engine = await connect({ pool, reconcile: 'off' });
    try {
      await blocker.query('BEGIN');
      await blocker.query('SELECT 1 FROM ff_execution WHERE execution_id = $1 FOR UPDATE', [uuid]);
      const error = await errorOf(() => workerPort(engine).complete(claim));
      expect(error).toMatchObject({ code: 'contention', sqlState: '55P03' });
      withoutSecrets(error);
    } finally {
      await engine.close();
      await Promise.all([pool.end(), blocker.end()]);
    }
  });
});
