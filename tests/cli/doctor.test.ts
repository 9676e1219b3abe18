/**
 * `flowfabric doctor` on a healthy installation, and on ones with a planted problem each: it must find it, name it and
 * print a fix.
 */
import { describe, expect, it, onTestFinished } from 'vitest';
import { connect, encodeCursor, migrate } from '../../src/index.ts';
import { useRoles } from '../engine/database/roles.ts';
import { emptyDatabase, plainDatabase, testDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand } from './processes.ts';
import { workerPort } from '../../src/connect/port.ts';

const roles = useRoles();
const ALL_CHECKS = [
  'server version',
  'transactions',
  'durability',
  'connections',
  'pooler',
  'notifications',
  'schema',
  'rights',
  'dead rows',
  'stuck executions',
  'routes',
  'held executions',
  'reconcilers',
  'event feed',
  'oldest transaction',
  'clock',
];

interface Finding {
  check: string;
  verdict: string;
  detail: string;
  fix: string | null;
}

interface Diagnosis {
  exitCode: number | null;
  problems: number;
  warnings: number;
  checks: Finding[];
  of(check: string): Finding;
}

async function diagnose(databaseUrl: string, ...args: string[]): Promise<Diagnosis> {
  const { exitCode, output } = await runCommand({ args: ['doctor', '--json', ...args], databaseUrl });
  const found = JSON.parse(output) as Pick<Diagnosis, 'problems' | 'warnings' | 'checks'>;
  return { exitCode, ...found, of: (name) => found.checks.find(({ check }) => check === name)! };
}

describe('flowfabric doctor', () => {
  it('finds nothing wrong with a healthy installation, except that the test server may lose data', async () => {
    await using database = await plainDatabase();
    const { exitCode, problems, checks } = await diagnose(database.url);
    expect({ exitCode, problems }).toEqual({ exitCode: 0, problems: 0 });
    expect(checks.map(({ check }) => check)).toEqual(ALL_CHECKS);
    expect(checks.filter(({ verdict }) => verdict !== 'ok')).toEqual([
      {
        check: 'durability',
        verdict: 'warn',
        detail: expect.stringContaining('fsync'),
        fix: expect.stringContaining('ALTER SYSTEM SET fsync TO on;'),
      },
    ]);
  });

  it('prints a line for each check, the fix below it, and a count', async () => {
    await using database = await emptyDatabase();
    const { exitCode, output } = await runCommand({ args: ['doctor'], databaseUrl: database.url });
    expect(exitCode).toBe(1);
    expect(output).toMatch(/^ok {7}server version: Postgres 1[5-8]/m);
    expect(output).toMatch(
      /^problem {2}schema: There is no schema flowfabric\.\n {9}fix: flowfabric migrate/m,
    );
    expect(output).toMatch(/^\d+ problems?, \d+ warnings? in 16 checks\.$/m);
    expect(output).not.toContain('\u001B');
  });
});

describe('flowfabric doctor finds', () => {
  it('a schema that is missing, and skips what needs it', async () => {
    await using database = await emptyDatabase();
    const found = await diagnose(database.url, '--schema', 'orders');
    expect(found.exitCode).toBe(1);
    expect(found.of('schema')).toMatchObject({
      verdict: 'problem',
      fix: 'flowfabric migrate --schema orders',
    });
    for (const check of [
      'rights',
      'dead rows',
      'stuck executions',
      'held executions',
      'reconcilers',
      'event feed',
    ])
      expect(found.of(check).verdict).toBe('skipped');
    expect(found.of('clock').verdict).toBe('ok');
  });

  it.each([
    [`UPDATE ff_migration SET checksum = 'x' WHERE version = 1`, 'problem', 'different content'],
    [`INSERT INTO ff_migration VALUES (9999, '9999_later', 'x', true, 0)`, 'problem', '9999_later'],
    [`DELETE FROM ff_migration WHERE version > 1`, 'problem', 'at migration 1 of'],
    [`UPDATE ff_function_set SET version = 0`, 'problem', 'functions of an older version'],
    [`UPDATE ff_function_set SET checksum = 'x'`, 'warn', 'differ'],
    [`INSERT INTO ff_migration VALUES (9999, '9999_later', 'x', false, 0)`, 'ok', '1 newer'],
  ])('a schema of another version: %s', async (damage, verdict, words) => {
    await using database = await plainDatabase();
    await database.query(damage);
    const found = await diagnose(database.url);
    expect(found.of('schema')).toMatchObject({ verdict, detail: expect.stringContaining(words) });
    expect(found.exitCode).toBe(verdict === 'problem' ? 1 : 0);
  });

  it('an open transaction that keeps dead rows, with its process and application', async () => {
    await using database = await plainDatabase();
    const client = await database.connect();
    await client.query(`SET application_name TO 'forgotten report'`);
    await client.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    const { rows } = await client.query<{ pid: number }>('SELECT pg_backend_pid() AS pid');
    const young = await diagnose(database.url);
    expect(young.of('oldest transaction')).toMatchObject({ verdict: 'ok', fix: null });
    const { exitCode, of } = await diagnose(database.url, '--transaction-age', '0s');
    expect(exitCode).toBe(1);
    expect(of('oldest transaction')).toMatchObject({
      verdict: 'problem',
      detail: expect.stringMatching(
        new RegExp(`^pid ${rows[0]!.pid} \\(forgotten report, .*idle in transaction`),
      ),
      fix: `SELECT pg_terminate_backend(${rows[0]!.pid});`,
    });
  });

  it('dead rows that are not removed', async () => {
    await using database = await plainDatabase();
    await database.query('ALTER TABLE ff_ready SET (autovacuum_enabled = false)');
    await database.query(
      `INSERT INTO ff_ready (execution_id, lease_epoch, ready_at_ms, route_id, priority, attempt_index, partition_key)
       SELECT gen_random_uuid(), 0, 0, 1, 0, 0, 0 FROM generate_series(1, 25000)`,
    );
    const client = await database.connect();
    await client.query('DELETE FROM ff_ready');
    // Otherwise the server keeps what it counted to itself for some seconds.
    await client.query('SELECT pg_stat_force_next_flush()');
    const look = async () => (await diagnose(database.url)).of('dead rows');
    await expect.poll(look, PATIENCE).toMatchObject({
      verdict: 'warn',
      detail: expect.stringContaining('ff_ready has 25000 dead rows'),
      fix: 'VACUUM (TRUNCATE OFF) "flowfabric".ff_ready;',
    });
  });

  it('rights the role lacks, and no problem once they are granted', async () => {
    const { url } = roles.database;
    await migrate({ databaseUrl: url, schema: 'guarded' });
    const role = await roles.create();
    const stranger = await diagnose(role.url, '--schema', 'guarded');
    expect(stranger.exitCode).toBe(1);
    expect(stranger.of('schema')).toMatchObject({ verdict: 'problem' });
    expect(stranger.of('rights')).toMatchObject({
      verdict: 'problem',
      detail: expect.stringMatching(new RegExp(`^Role ${role.name} lacks .* and \\d+ more\\.$`)),
      fix: expect.stringContaining(`flowfabric migrate --schema guarded --grant-to ${role.name}`),
    });
    await migrate({ databaseUrl: url, schema: 'guarded', grantTo: role.name });
    const granted = await diagnose(role.url, '--schema', 'guarded');
    expect(granted.problems).toBe(0);
    expect(granted.of('rights')).toMatchObject({ verdict: 'ok' });
    await roles.admin(`REVOKE DELETE ON guarded.ff_grant FROM ${role.name}`);
    const reduced = await diagnose(role.url, '--schema', 'guarded');
    expect(reduced.of('rights').detail).toBe(`Role ${role.name} lacks DELETE on ff_grant.`);
  });

  it('a role whose transactions are not read committed', async () => {
    const role = await roles.create();
    await roles.admin(`ALTER ROLE ${role.name} SET default_transaction_isolation TO 'serializable'`);
    const found = await diagnose(role.url);
    expect(found.of('transactions')).toMatchObject({
      verdict: 'problem',
      fix: `ALTER ROLE "${role.name}" SET default_transaction_isolation TO 'read committed';`,
    });
  });

  it('a clock that is off', async () => {
    await using database = await testDatabase();
    await database.moveClock(-60_000);
    const found = await diagnose(database.url);
    expect(found.of('clock')).toMatchObject({
      verdict: 'warn',
      detail: expect.stringMatching(/^The database is (59|60)\.\d s behind this host/),
    });
  });

  it('a pool that is larger than the server allows', async () => {
    await using database = await plainDatabase();
    const found = await diagnose(database.url, '--pool-size', '1000');
    expect(found.of('connections')).toMatchObject({ verdict: 'problem' });
    expect(found.of('connections').detail).toContain('A process needs 1009 connections');
  });

  it('notifications that do not arrive', async () => {
    await using database = await plainDatabase();
    // Notifications of another database never arrive here.
    await using other = await emptyDatabase();
    const found = await diagnose(database.url, '--listen-url', other.url);
    expect(found.of('notifications')).toMatchObject({
      verdict: 'warn',
      detail: expect.stringContaining('not received within 5 s'),
      fix: expect.stringContaining('listenUrl'),
    });
  });

  it('executions that the reconcilers could not move on', async () => {
    await using database = await plainDatabase();
    const engine = await connect({ databaseUrl: database.url, reconcile: 'off' });
    onTestFinished(() => engine.close());
    const { executionId } = await engine.executions.submit({ kind: 'k', delay: 3_600_000 });
    const plant = (failures: number) =>
      database.query(
        `INSERT INTO ff_setback SELECT 'due-timers', execution_id, partition_key, $1, 0, 'database_error'
         FROM ff_execution ON CONFLICT (execution_id, partition_key, reconciler) DO UPDATE SET failures = $1`,
        [failures],
      );
    await plant(1);
    expect((await diagnose(database.url)).of('stuck executions')).toMatchObject({ verdict: 'warn' });
    await plant(9);
    expect((await diagnose(database.url)).of('stuck executions')).toEqual({
      check: 'stuck executions',
      verdict: 'problem',
      detail: `The reconcilers fail on 1: ${executionId} (due-timers, 9 failures, database_error).`,
      fix: `flowfabric describe '${executionId}'`,
    });
    await engine.cancel(executionId, { reason: 'r' });
    expect((await diagnose(database.url)).of('stuck executions')).toMatchObject({ verdict: 'ok' });
  });

  it('a session whose open transaction holds an execution', async () => {
    await using database = await plainDatabase();
    const engine = await connect({ databaseUrl: database.url, reconcile: 'off' });
    onTestFinished(() => engine.close());
    const { executionId } = await engine.executions.submit({ kind: 'k' });
    const request = { workerId: 'w', workerInstanceId: 'w', kinds: ['k'], limit: 1, leaseMs: 60_000 };
    await workerPort(engine).claim(request);
    await workerPort(engine).claim(request);
    const client = await database.connect();
    await client.query('BEGIN');
    const { rows } = await client.query('SELECT pg_backend_pid() AS pid FROM ff_execution FOR KEY SHARE');
    const { pid } = rows[0] as { pid: number };
    await expect
      .poll(async () => (await diagnose(database.url)).of('held executions'), PATIENCE)
      .toMatchObject({
        verdict: 'warn',
        detail: expect.stringMatching(
          new RegExp(`^Session ${pid}, open for \\d+s, idle in its transaction, locks \\${executionId}:`),
        ),
        fix: `SELECT pg_terminate_backend(${pid});`,
      });
    await client.query('ROLLBACK');
    expect((await diagnose(database.url)).of('held executions')).toMatchObject({ verdict: 'ok' });
  });

  it('open work that no process reconciles, and that is overdue', async () => {
    await using database = await testDatabase();
    const engine = await connect({ databaseUrl: database.url, reconcile: 'off' });
    onTestFinished(() => engine.close());
    await engine.executions.submit({ kind: 'k', delay: 1_000 });
    expect((await diagnose(database.url)).of('reconcilers')).toMatchObject({ verdict: 'warn' });
    await database.moveClock(60_000);
    expect((await diagnose(database.url)).of('reconcilers')).toMatchObject({
      verdict: 'problem',
      detail: 'Nothing acts on 0 lapsed leases and 1 due timers.',
    });
    const keeper = await connect({ databaseUrl: database.url });
    onTestFinished(() => keeper.close());
    await expect
      .poll(async () => (await diagnose(database.url)).of('reconcilers'), PATIENCE)
      .toMatchObject({ verdict: 'ok', detail: expect.stringContaining('due-timers') });
  });

  it('a consumer that stopped hours behind', async () => {
    await using database = await testDatabase();
    const engine = await connect({ databaseUrl: database.url, reconcile: 'off' });
    onTestFinished(() => engine.close());
    const consumer = await engine.events.consume('billing', async () => undefined, { from: 'now' });
    await consumer.stop();
    await engine.lanes.pause('one');
    await engine.lanes.pause('two');
    const [{ position } = { position: 0n }] = await engine.consumers.list();
    await engine.consumers.move('billing', encodeCursor(position + 1n));
    await database.moveClock(3 * 3_600_000);
    expect((await diagnose(database.url)).of('event feed')).toMatchObject({
      verdict: 'warn',
      detail: 'Consumer billing is 3 hours behind.',
    });
  });
});
