/**
 * What the engine needs of a database role: to own its schema, or what grantTo grants it, and nothing more. Two engines
 * in two schemas of one database do not affect each other.
 */
import { describe, expect, it, vi } from 'vitest';
import { connect, migrate, type Connection } from '../../../src/index.ts';
import type { Hint } from '../../../src/protocol/index.ts';
import { claimRequest, WAIT } from '../../conformance/open.ts';
import { useRoles, type Role } from './roles.ts';
import { workerPort } from '../../../src/connect/port.ts';

const roles = useRoles();
const SHORT_LEASE_MS = 100;
const AGAIN = { retry: { maxRetries: 5, backoff: { type: 'fixed', delay: 0 } } } as const;

async function opened<Value>(
  url: string,
  schema: string,
  work: (engine: Connection) => Promise<Value>,
): Promise<Value> {
  const engine = await connect({ databaseUrl: url, schema });
  try {
    return await work(engine);
  } finally {
    await engine.close();
  }
}

/** Every operation once, and the passes of the reconcilers, under one role. */
async function live(engine: Connection): Promise<void> {
  const claimOne = async (leaseMs = 60_000) =>
    vi.waitFor(async () => {
      await workerPort(engine).fireTimers();
      const { claims } = await workerPort(engine).claim({
        ...claimRequest(),
        kinds: ['k'],
        limit: 1,
        leaseMs,
      });
      expect(claims).toHaveLength(1);
      return claims[0]!;
    }, WAIT);
  const { executionId } = await engine.executions.submit({ kind: 'k', lane: 'l', policy: AGAIN, delay: 1 });
  const first = await claimOne();
  expect(await workerPort(engine).renew([first], 60_000)).toEqual([{ outcome: 'renewed' }]);
  expect(await workerPort(engine).release(first)).toMatchObject({ outcome: 'released' });
  expect(await workerPort(engine).fail(await claimOne(), { message: 'm' })).toMatchObject({
    outcome: 'retry_scheduled',
  });
  await claimOne();
  expect(await engine.executions.revokeLease(executionId, { reason: 'r' })).toEqual({ outcome: 'revoked' });
  await claimOne(SHORT_LEASE_MS);
  const last = await claimOne();
  expect(last).toMatchObject({ executionId, reclaimed: true, attemptIndex: 3 });
  expect(await workerPort(engine).complete(last, 'r')).toMatchObject({ outcome: 'completed' });
  expect(await engine.executions.result(executionId)).toEqual({ outcome: 'success', result: 'r' });
  const other = await engine.executions.submit({ kind: 'k' });
  expect(await engine.cancel(other.executionId, { reason: 'r' })).toMatchObject({ outcome: 'cancelled' });
  await operate(engine, other.executionId);
  for (const report of engine.upkeep.reports()) expect(report).toMatchObject({ errors: 0, failed: 0 });
}

/** The verbs of an operator, on a finished execution. */
async function operate(engine: Connection, executionId: string): Promise<void> {
  expect(await engine.executions.replay(executionId, { reason: 'r', from: 'start' })).toMatchObject({
    outcome: 'replayed',
  });
  expect(await engine.executions.changePriority(executionId, { priority: 7 })).toMatchObject({
    outcome: 'changed',
  });
  expect(await engine.executions.setTags(executionId, { set: { a: 'b' } })).toMatchObject({ outcome: 'set' });
  expect((await engine.executions.list({ filter: { tags: { a: 'b' } } })).executions).toHaveLength(1);
  expect((await engine.executions.listAttempts(executionId)).before).toBeNull();
  expect((await engine.executions.find(executionId)).executions).toHaveLength(1);
  expect(await engine.executions.shorten([executionId])).toHaveLength(1);
  expect(await engine.executions.explain(executionId)).toMatchObject({ outcome: 'explained' });
  expect(await engine.lanes.pause('default')).toMatchObject({ outcome: 'paused' });
  expect((await engine.lanes.list()).lanes.map(({ lane }) => lane)).toEqual(['default', 'l']);
  expect(await engine.lanes.resume('default')).toMatchObject({ outcome: 'resumed' });
  const keyed = { kind: 'k', idempotencyKey: 'key', policy: { deadline: 60_000 } };
  await engine.executions.submit(keyed);
  expect(await engine.executions.submit(keyed)).toMatchObject({ outcome: 'duplicate' });
  const request = { verb: 'cancel', reason: 'r', filter: { kind: 'k' } } as const;
  for await (const { cursor, outcomes } of engine.executions.bulk(request)) {
    if (cursor === null) expect(outcomes).toEqual({ cancelled: 2 });
  }
}

/** Each reconciler with whether it acted, and how often it failed, after its first pass. */
async function firstPasses(engine: Connection): Promise<[string, boolean, number][]> {
  await vi.waitFor(() => {
    for (const report of engine.upkeep.reports()) expect(report.passes).toBeGreaterThan(0);
  }, WAIT);
  return engine.upkeep.reports().map(({ name, acted, errors }) => [name, acted > 0, errors]);
}

async function owner(schema: string): Promise<Role> {
  const role = await roles.create();
  await roles.admin(`CREATE SCHEMA ${schema} AUTHORIZATION ${role.name}`);
  return role;
}

describe('a role that owns its schema and nothing else', () => {
  it('may migrate it repeatedly, and run the engine in it', async () => {
    const { url, name } = await owner('owned');
    const rights = await roles.database.query(
      `SELECT rolsuper, rolcreatedb, rolcreaterole, has_database_privilege($1, current_database(), 'CREATE') AS creates
       FROM pg_roles WHERE rolname = $1`,
      [name],
    );
    expect(rights.rows).toEqual([
      { rolsuper: false, rolcreatedb: false, rolcreaterole: false, creates: false },
    ]);
    expect((await migrate({ databaseUrl: url, schema: 'owned' })).applied).not.toEqual([]);
    expect(await migrate({ databaseUrl: url, schema: 'owned' })).toEqual({ applied: [] });
    await opened(url, 'owned', live);
  });

  it('may not create a schema that does not exist', async () => {
    const { url } = await owner('another_owned');
    await expect(migrate({ databaseUrl: url, schema: 'not_there' })).rejects.toMatchObject({
      code: 'permission_denied',
      sqlState: '42501',
    });
  });
});

describe('a role that was granted the use of a schema migrated by another', () => {
  it('may run the engine in it', async () => {
    const migrator = await owner('granted');
    const worker = await roles.create();
    await migrate({ databaseUrl: migrator.url, schema: 'granted', grantTo: worker.name });
    await opened(worker.url, 'granted', live);
  });

  it('may forget old executions, and maintain the event log', async () => {
    const migrator = await owner('forgetful');
    const worker = await roles.create();
    await migrate({ databaseUrl: migrator.url, schema: 'forgetful', grantTo: worker.name });
    const engine = await connect({
      databaseUrl: worker.url,
      schema: 'forgetful',
      retention: '0s',
      reconcile: 'off',
    });
    const { executionId } = await engine.executions.submit({
      kind: 'k',
      tags: { a: 'b' },
      idempotencyKey: 'key',
      policy: { dedupWindow: 1 },
    });
    await engine.cancel(executionId, { reason: 'r' });
    await engine.close();
    // The first pass runs at once.
    await opened(worker.url, 'forgetful', async (forgetting) => {
      await vi.waitFor(
        async () => expect(await forgetting.executions.describe(executionId)).toBeNull(),
        WAIT,
      );
      const acted = await firstPasses(forgetting);
      expect(acted).toContainEqual(['old-keys', true, 0]);
      expect(acted).toContainEqual(['event-positions', true, 0]);
      expect(acted).toContainEqual(['old-events', true, 0]);
      expect(acted).toContainEqual(['stale-pointers', expect.any(Boolean), 0]);
      expect(acted).toContainEqual(['unused-routes', expect.any(Boolean), 0]);
    });
    // The remaining slot of the log is past its retention: it is emptied in the next first pass.
    await opened(worker.url, 'forgetful', async (forgetting) => {
      expect(await firstPasses(forgetting)).toContainEqual(['old-events', true, 0]);
    });
    const left = await roles.database.query('SELECT count(*) AS n FROM forgetful.ff_event');
    expect(left.rows).toEqual([{ n: 0 }]);
  });

  it('may not change its tables, its functions, its history of migrations or its table of transitions', async () => {
    const migrator = await owner('guarded');
    const worker = await roles.create();
    await migrate({ databaseUrl: migrator.url, schema: 'guarded', grantTo: worker.name });
    const rights = await roles.database.query<{ what: string; allowed: boolean }>(
      `SELECT 'create' AS what, has_schema_privilege($1, 'guarded', 'CREATE') AS allowed
       UNION ALL
       SELECT t || ' ' || p, has_table_privilege($1, 'guarded.' || t, p)
       FROM unnest(ARRAY['ff_migration', 'ff_function_set', 'ff_transition']) t,
            unnest(ARRAY['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE']) p
       UNION ALL
       SELECT 'ff_execution truncate', has_table_privilege($1, 'guarded.ff_execution', 'TRUNCATE')`,
      [worker.name],
    );
    expect(rights.rows.filter(({ allowed }) => allowed)).toEqual([]);
  });

  it('may have a name that needs quotes', async () => {
    const migrator = await owner('quoted');
    const role = await roles.create();
    await roles.admin(`ALTER ROLE ${role.name} RENAME TO "${role.name} ""x"`);
    try {
      await migrate({ databaseUrl: migrator.url, schema: 'quoted', grantTo: `${role.name} "x` });
    } finally {
      await roles.admin(`ALTER ROLE "${role.name} ""x" RENAME TO ${role.name}`);
    }
  });
});

describe('a role without rights', () => {
  it('is refused with permission_denied, on connect and on migrate', async () => {
    const migrator = await owner('closed_to_others');
    await migrate({ databaseUrl: migrator.url, schema: 'closed_to_others' });
    const stranger = await roles.create();
    const refused = { code: 'permission_denied', message: expect.stringMatching(/grantTo/) };
    await expect(connect({ databaseUrl: stranger.url, schema: 'closed_to_others' })).rejects.toMatchObject(
      refused,
    );
    await expect(migrate({ databaseUrl: stranger.url, schema: 'closed_to_others' })).rejects.toMatchObject(
      refused,
    );
  });

  it('is refused with permission_denied by the operations it may not perform', async () => {
    const migrator = await owner('readable');
    await migrate({ databaseUrl: migrator.url, schema: 'readable' });
    const reader = await roles.create();
    await roles.admin(
      `GRANT USAGE ON SCHEMA readable TO ${reader.name}`,
      `GRANT SELECT ON ALL TABLES IN SCHEMA readable TO ${reader.name}`,
    );
    const engine = await connect({ databaseUrl: reader.url, schema: 'readable', reconcile: 'off' });
    try {
      await expect(engine.executions.submit({ kind: 'k' })).rejects.toMatchObject({
        code: 'permission_denied',
      });
      expect(await workerPort(engine).claim({ ...claimRequest(), kinds: ['k'] })).toEqual({
        claims: [],
        nextDueInMs: null,
        passedBy: 0,
      });
    } finally {
      await engine.close();
    }
  });
});

describe('two engines in two schemas of one database', () => {
  async function twoEngines(work: (left: Connection, right: Connection) => Promise<void>): Promise<void> {
    const { url } = roles.database;
    for (const schema of ['left_one', 'right_one']) await migrate({ databaseUrl: url, schema });
    const left = await connect({ databaseUrl: url, schema: 'left_one', reconcile: 'off' });
    const right = await connect({ databaseUrl: url, schema: 'right_one', reconcile: 'off' });
    try {
      await work(left, right);
    } finally {
      await Promise.all([left.close(), right.close()]);
    }
  }

  it('do not see, claim or finish each other’s executions', () =>
    twoEngines(async (left, right) => {
      const { executionId } = await left.executions.submit({ kind: 'k', payload: 'left' });
      expect(await right.executions.describe(executionId)).toBeNull();
      expect(await right.cancel(executionId, { reason: 'r' })).toMatchObject({ outcome: 'not_found' });
      const mine = { ...claimRequest(), kinds: ['k'] };
      for (const _ of [1, 2]) expect((await workerPort(right).claim(mine)).claims).toEqual([]);
      const same = { kind: 'k', executionId, payload: 'right' };
      expect(await right.executions.submit(same)).toMatchObject({ outcome: 'submitted' });
      await workerPort(right)
        .claim(mine)
        .then(({ claims }) => Promise.all(claims.map((claim) => workerPort(right).complete(claim))));
      await workerPort(right)
        .claim(mine)
        .then(({ claims }) => Promise.all(claims.map((claim) => workerPort(right).complete(claim))));
      expect(await right.executions.describe(executionId)).toMatchObject({ state: 'completed' });
      expect(await left.executions.describe(executionId)).toMatchObject({ state: 'waiting' });
    }));

  it('do not wake each other', () =>
    twoEngines(async (left, right) => {
      // Both schemas number their routes from the same start: a stray hint would seem to be about work here.
      const kinds = ['k', 'ping', 'fence'];
      for (const engine of [left, right]) {
        await engine.executions.submit(kinds.map((kind) => ({ kind })));
        for (const _ of [1, 2]) await workerPort(engine).claim({ ...claimRequest(), kinds });
      }
      const heard: Record<string, Hint[]> = { k: [], ping: [], fence: [] };
      for (const kind of kinds)
        workerPort(right).watch({ kinds: [kind] }, (hint) => !heard[kind]!.push(hint));
      const named = (kind: string) => heard[kind]!.filter(({ routes }) => routes !== 'all');
      const sender = await connect({
        databaseUrl: roles.database.url,
        schema: 'right_one',
        reconcile: 'off',
      });
      try {
        await vi.waitFor(async () => {
          await sender.executions.submit({ kind: 'ping' });
          expect(named('ping')).not.toEqual([]);
        }, WAIT);
        await left.executions.submit({ kind: 'k' });
        await sender.executions.submit({ kind: 'fence' });
        await vi.waitFor(() => expect(named('fence')).not.toEqual([]), WAIT);
        expect(named('k')).toEqual([]);
      } finally {
        await sender.close();
      }
    }));

  it('may be migrated and dropped independently', async () => {
    const { url } = roles.database;
    await migrate({ databaseUrl: url, schema: 'stays' });
    await migrate({ databaseUrl: url, schema: 'goes' });
    await roles.admin('DROP SCHEMA goes CASCADE');
    await opened(url, 'stays', async (engine) => {
      const { executionId } = await engine.executions.submit({ kind: 'k' });
      expect(await engine.executions.result(executionId)).toMatchObject({ outcome: 'pending' });
    });
    await expect(connect({ databaseUrl: url, schema: 'goes' })).rejects.toMatchObject({
      code: 'schema_missing',
    });
  });
});
