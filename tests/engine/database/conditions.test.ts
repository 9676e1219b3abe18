/**
 * What keeps an installation from working is reported with a code, the reason and the remedy, in the SDK and at the
 * command line. Each condition is tested on a server in that state.
 */
import { randomUUID } from 'node:crypto';
import { chmod, chown, mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished, vi } from 'vitest';
import pg from 'pg';
import { connect, isEngineError, migrate, type Connection, type EngineError } from '../../../src/index.ts';
import { startEmbedded, type EmbeddedServer } from '../../../src/embedded/index.ts';
import type { PoolLike } from '../../../src/engine/database/database.ts';
import { runCommand } from '../../cli/processes.ts';
import { selfSigned } from './certificate.ts';
import { useRoles, type Role } from './roles.ts';
import { workerPort } from '../../../src/connect/port.ts';
import { patiently } from '../../setup/patience.ts';

const roles = useRoles();
/** The role the engine runs as; a test changes it and restores it. */
let role: Role;

beforeAll(async () => {
  role = await roles.create();
  await migrate({ databaseUrl: roles.database.url, grantTo: role.name });
});

async function errorOf(answer: Promise<unknown>): Promise<EngineError> {
  const error: unknown = await answer.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!isEngineError(error)) throw new Error(`not refused by the engine: ${String(error)}`);
  expect(error.message).toMatch(/^[A-Za-z_]+ .*\.$/);
  expect(error.message).not.toContain(role.password);
  return error;
}

async function set(what: string): Promise<void> {
  await roles.admin(`ALTER ROLE ${role.name} ${what}`);
}

async function opened(databaseUrl = role.url, pool?: PoolLike): Promise<Connection> {
  const where = pool === undefined ? { databaseUrl } : { pool };
  const connection = await connect({ ...where, reconcile: 'off', listen: 'off' });
  onTestFinished(() => connection.close());
  return connection;
}

function urlWith(change: (url: URL) => void, original = role.url): string {
  const url = new URL(original);
  change(url);
  return url.href;
}

describe('a role', () => {
  it('whose statement_timeout cancels a statement gets that reason, and the statement is not retried', async () => {
    await set(`SET statement_timeout = '150ms'`);
    onTestFinished(() => set('RESET statement_timeout'));
    const pool = new pg.Pool({ connectionString: role.url, max: 1 });
    onTestFinished(() => pool.end());
    let sent = 0;
    const counting = {
      query: (config: pg.QueryConfig) => {
        sent += 1;
        return pool.query(config);
      },
    } as PoolLike;
    const connection = await opened(role.url, counting);
    const holder = await roles.database.connect();
    await holder.query('BEGIN; LOCK TABLE ff_execution');
    sent = 0;
    const error = await errorOf(connection.executions.explain('{fp:1}:00000000-0000-4000-8000-000000000000'));
    await holder.end();
    expect(error).toMatchObject({
      code: 'statement_cancelled',
      sqlState: '57014',
      message: expect.stringMatching(/statement_timeout.*ALTER ROLE … SET statement_timeout/),
    });
    expect(sent).toBe(1);
  });

  it('without a free connection gets the limits', async () => {
    await set('CONNECTION LIMIT 0');
    onTestFinished(() => set('CONNECTION LIMIT -1'));
    expect(await errorOf(opened())).toMatchObject({
      code: 'no_connection',
      sqlState: '53300',
      message: expect.stringMatching(/CONNECTION LIMIT.*poolSize/),
    });
  });

  it('that may only read gets the reason that the server accepts no writes', async () => {
    await set('SET default_transaction_read_only = on');
    onTestFinished(() => set('RESET default_transaction_read_only'));
    const connection = await opened();
    expect(await errorOf(connection.executions.submit({ kind: 'k' }))).toMatchObject({
      code: 'unavailable',
      sqlState: '25006',
      message: expect.stringMatching(/accepts no writes.*connect to the primary/),
    });
  });

  it('that may not log in gets what to check', async () => {
    await set('NOLOGIN');
    onTestFinished(() => set('LOGIN'));
    expect(await errorOf(opened())).toMatchObject({
      code: 'permission_denied',
      message: expect.stringMatching(/refused the role: .*pg_hba/),
    });
  });

  it('with array_nulls off is refused', async () => {
    await set('SET array_nulls = off');
    onTestFinished(() => set('RESET array_nulls'));
    const refused = {
      code: 'database_unsupported',
      message: expect.stringMatching(/array_nulls is off.*ALTER ROLE … SET array_nulls TO on/),
    };
    expect(await errorOf(opened())).toMatchObject(refused);
    expect(await errorOf(migrate({ databaseUrl: role.url }))).toMatchObject(refused);
  });

  it('with standard_conforming_strings off can migrate, work and run doctor', async () => {
    const owner = await roles.create();
    const name = `ff_test_${randomUUID().replaceAll('-', '')}`;
    await roles.admin(
      `ALTER ROLE ${owner.name} SET standard_conforming_strings = off`,
      `CREATE DATABASE ${name} OWNER ${owner.name}`,
    );
    onTestFinished(() => roles.admin(`DROP DATABASE ${name} WITH (FORCE)`));
    const databaseUrl = urlWith((url) => (url.pathname = `/${name}`), owner.url);
    await migrate({ databaseUrl });
    const connection = await opened(databaseUrl);
    const text = String.raw`back\slash \u0041 'quoted'`;
    const { executionId } = await connection.executions.submit({ kind: 'k', payload: { text } });
    const claim = { workerId: 'w', workerInstanceId: 'w-1', kinds: ['k'], limit: 1, leaseMs: 30_000 };
    const [lease] = (await workerPort(connection).claim(claim)).claims;
    expect(lease!.payload).toEqual({ text });
    await workerPort(connection).appendFrames(lease!, [{ frameType: 'said', payload: { text } }]);
    await workerPort(connection).complete(lease!, { text });
    expect(await connection.executions.result(executionId)).toMatchObject({ result: { text } });
    const examined = await runCommand({ args: ['doctor', '--json'], databaseUrl });
    expect(examined.exitCode).toBe(0);
  });
});

describe('a database', () => {
  it('in another encoding than UTF8 is refused', async () => {
    const name = `ff_test_${randomUUID().replaceAll('-', '')}`;
    await roles.admin(`CREATE DATABASE ${name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`);
    onTestFinished(() => roles.admin(`DROP DATABASE ${name} WITH (FORCE)`));
    const databaseUrl = urlWith((url) => (url.pathname = `/${name}`), roles.database.url);
    for (const act of [() => migrate({ databaseUrl }), () => connect({ databaseUrl })])
      expect(await errorOf(act())).toMatchObject({
        code: 'database_unsupported',
        message: expect.stringMatching(/encoding LATIN1.*CREATE DATABASE … ENCODING 'UTF8'/),
      });
    const printed = await runCommand({ args: ['migrate'], databaseUrl });
    expect(printed).toMatchObject({ exitCode: 1, errors: expect.stringContaining('LATIN1') as unknown });
  });

  it('is migrated only for a role that exists', async () => {
    const databaseUrl = roles.database.url;
    expect(await errorOf(migrate({ databaseUrl, grantTo: 'nobody_here' }))).toMatchObject({
      code: 'invalid_input',
      field: 'grantTo',
      message: expect.stringMatching(/no role nobody_here.*CREATE ROLE/),
    });
    const printed = await runCommand({ args: ['migrate', '--grant-to', 'nobody_here'], databaseUrl });
    expect(printed).toMatchObject({ exitCode: 2, errors: expect.stringContaining('CREATE ROLE') as unknown });
  });

  it('does not let a schema of Postgres itself be migrated', async () => {
    const databaseUrl = roles.database.url;
    expect(await errorOf(migrate({ databaseUrl, schema: 'information_schema' }))).toMatchObject({
      code: 'invalid_input',
      field: 'schema',
    });
  });
});

describe('a URL', () => {
  it.each([
    ['several hosts', (url: string) => url.replace(/@[^/]*/, '@one:5432,two:5433'), /several hosts/],
    ['several hosts as a parameter', (url: string) => `${url}?host=one,two`, /several hosts/],
    ['an invalid port', (url: string) => url.replace(/:\d+\//, ':54x2/'), /port/],
    ['a port that is too high', (url: string) => url.replace(/:\d+\//, ':99999/'), /port/],
    ['an invalid port as a parameter', (url: string) => `${url}?port=x`, /port/],
    [
      'a root certificate that does not exist',
      (url: string) => `${url}?sslrootcert=/nowhere/ca.pem`,
      /sslrootcert/,
    ],
  ])('with %s is refused before anything is opened', async (_what, broken, words) => {
    const databaseUrl = broken(role.url);
    const refused = { code: 'invalid_input', message: expect.stringMatching(words) };
    expect(await errorOf(migrate({ databaseUrl }))).toMatchObject({ ...refused, field: 'databaseUrl' });
    expect(await errorOf(connect({ databaseUrl }))).toMatchObject({ ...refused, field: 'databaseUrl' });
    expect(await errorOf(connect({ databaseUrl: role.url, listenUrl: databaseUrl }))).toMatchObject({
      ...refused,
      field: 'listenUrl',
    });
    const printed = await runCommand({ args: ['list'], databaseUrl });
    expect(printed).toMatchObject({ exitCode: 2, errors: expect.stringMatching(words) as unknown });
  });
});

describe('TLS', () => {
  let parent: string;
  let server: EmbeddedServer;
  let certificateFile: string;

  beforeAll(async () => {
    parent = await mkdtemp(join(tmpdir(), 'flowfabric-tls-'));
    // Run by root, the server drops to another account, which must be able to reach its directory.
    await chmod(parent, 0o755);
    server = await startEmbedded({ dataDir: join(parent, 'postgres'), settings: { fsync: 'off' } });
    const data = join(server.dataDir, 'pgdata');
    const { uid, gid } = await stat(data);
    const { certificate, key } = selfSigned('elsewhere.example');
    certificateFile = join(parent, 'server.crt');
    await writeFile(certificateFile, certificate);
    for (const [file, text] of [
      ['server.crt', certificate],
      ['server.key', key],
    ] as const) {
      await writeFile(join(data, file), text, { mode: 0o600 });
      await chown(join(data, file), uid, gid);
    }
    const client = new pg.Client({ connectionString: server.url });
    await client.connect();
    await client.query('ALTER SYSTEM SET ssl = on');
    await client.query('SELECT pg_reload_conf()');
    await client.end();
    await vi.waitFor(async () => expect(await encrypted(`${server.url}?sslmode=no-verify`)).toBe(true), {
      timeout: patiently(20_000),
    });
  }, patiently(60_000));

  afterAll(async () => {
    await server?.stop('immediate');
    await rm(parent, { recursive: true, force: true, maxRetries: 3 });
  }, patiently(60_000));

  async function encrypted(connectionString: string): Promise<boolean> {
    const client = new pg.Client({ connectionString });
    client.on('error', () => undefined);
    try {
      await client.connect();
      return (
        await client.query<{ ssl: boolean }>('SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()')
      ).rows[0]!.ssl;
    } catch {
      return false;
    } finally {
      await client.end().catch(() => undefined);
    }
  }

  it('with an untrusted certificate reports that, and how to trust it', async () => {
    const databaseUrl = `${server.url}?sslmode=verify-full`;
    const refused = {
      code: 'unavailable',
      message: expect.stringMatching(/certificate.*sslrootcert=FILE.*DEPTH_ZERO_SELF_SIGNED_CERT/) as unknown,
    };
    expect(await errorOf(migrate({ databaseUrl }))).toMatchObject(refused);
    expect(await errorOf(connect({ databaseUrl }))).toMatchObject(refused);
    const printed = await runCommand({ args: ['list'], databaseUrl });
    expect(printed).toMatchObject({
      exitCode: 69,
      errors: expect.stringContaining('sslrootcert') as unknown,
    });
  });

  it('with a certificate for another host reports that', async () => {
    const databaseUrl = `${server.url}?sslmode=verify-full&sslrootcert=${encodeURIComponent(certificateFile)}`;
    expect(await errorOf(migrate({ databaseUrl }))).toMatchObject({
      code: 'unavailable',
      message: expect.stringMatching(/does not match the host/),
    });
  });

  it('that the server does not offer is reported', async () => {
    const databaseUrl = `${inject('testServer').url}?sslmode=verify-full`;
    expect(await errorOf(migrate({ databaseUrl }))).toMatchObject({
      code: 'unavailable',
      message: expect.stringMatching(/does not offer it.*ssl = on/),
    });
  });

  it('or not, a server that is shutting down reports that', async () => {
    const last = new pg.Client({ connectionString: server.url });
    last.on('error', () => undefined);
    await last.connect();
    // A smart shutdown waits for the last session and refuses new ones.
    process.kill(server.pid, 'SIGTERM');
    await expect
      .poll(() => errorOf(migrate({ databaseUrl: server.url })), { timeout: patiently(20_000) })
      .toMatchObject({
        code: 'unavailable',
        sqlState: '57P03',
        message: expect.stringMatching(/shutting down/),
      });
    await last.end();
  });
});
