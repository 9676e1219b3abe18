/**
 * The fault proxy between a real client and a real Postgres: what is written, and what the client sees, when the
 * connection breaks before or after a statement, or independently of one.
 */

import { once } from 'node:events';
import { connect as connectSocket, createServer } from 'node:net';
import type { AddressInfo, Socket } from 'node:net';
import pg from 'pg';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { startFaultProxy } from '../../src/testing/fault-proxy.ts';
import type { FaultProxy } from '../../src/testing/fault-proxy.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { emptyDatabase } from '../setup/database.ts';

const INSERT = 'INSERT INTO note (body) VALUES ($1)';

let database: TestDatabase;
let admin: pg.Client;
let proxy: FaultProxy;
const clients: pg.Client[] = [];

async function throughProxy({ port, ...config }: pg.ClientConfig = {}): Promise<pg.Client> {
  const url = new URL(proxy.url(database.url));
  if (port !== undefined) url.port = String(port);
  const client = new pg.Client({ connectionString: url.href, ...config });
  client.on('error', () => {});
  clients.push(client);
  await client.connect();
  return client;
}

/** Forwards data from `near` one byte at a time, and responses unchanged. */
async function trickle(near: Socket, port: number): Promise<void> {
  const far = connectSocket(port, '127.0.0.1').setNoDelay(true);
  far.on('error', () => {}).on('close', () => near.destroy());
  far.pipe(near).on('close', () => far.destroy());
  for await (const chunk of near as AsyncIterable<Buffer>) {
    for (const byte of chunk) await new Promise((resolve) => far.write(Buffer.from([byte]), resolve));
  }
}

async function notes(): Promise<string[]> {
  return (await admin.query('SELECT body FROM note ORDER BY body')).rows.map((row) => row.body);
}

async function othersInServer(): Promise<number> {
  const sql = `SELECT count(*)::int AS n FROM pg_stat_activity
               WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()`;
  return (await admin.query(sql)).rows[0].n;
}

beforeAll(async () => {
  database = await emptyDatabase();
  admin = new pg.Client({ connectionString: database.url });
  await admin.connect();
  await admin.query('CREATE TABLE note (body text PRIMARY KEY)');
});

afterAll(async () => {
  await admin?.end();
  await database?.drop();
});

beforeEach(async () => {
  await admin.query('TRUNCATE note');
  proxy = await startFaultProxy({ targetPort: Number(new URL(database.url).port) });
});

afterEach(async () => {
  await proxy.close();
  await Promise.all(clients.splice(0).map((client) => client.end()));
  await expect.poll(othersInServer).toBe(0);
});

describe('a proxy without a fault', () => {
  test('passes statements and responses of any size', async () => {
    const client = await throughProxy();
    const long = 'x'.repeat(3_000_000);
    expect((await client.query('SELECT $1 AS body', [long])).rows).toEqual([{ body: long }]);
    const many = await client.query('SELECT generate_series(1, 50000) AS n');
    expect(many.rows.at(-1)).toEqual({ n: 50_000 });
    await expect(client.query('SELECT nonsense')).rejects.toMatchObject({ code: '42703' });
  });

  test('reads messages that arrive byte by byte', async () => {
    const relay = createServer((near) => void trickle(near, proxy.port).catch(() => {}));
    await once(relay.listen(0, '127.0.0.1'), 'listening');
    try {
      const cut = proxy.cutAfter("'slow'");
      const client = await throughProxy({ port: (relay.address() as AddressInfo).port });
      await expect(client.query(`INSERT INTO note VALUES ('slow')`)).rejects.toThrow();
      expect(await cut).toBe('INSERT 0 1');
      expect(await notes()).toEqual(['slow']);
    } finally {
      relay.close();
    }
  });

  test('passes the TLS request and its response', async () => {
    const refused = throughProxy({ ssl: { rejectUnauthorized: false } });
    await expect(refused).rejects.toThrow('does not support SSL');
  });

  test('keeps the rest of a connection string', () => {
    const url = proxy.url('postgres://me:secret@db.example:5432/app?application_name=x&host=elsewhere');
    expect(url).toBe(`postgres://me:secret@127.0.0.1:${proxy.port}/app?application_name=x`);
  });

  test('delivers in order when it adds a delay', async () => {
    proxy.delay(1);
    const client = await throughProxy();
    const answers = await Promise.all([1, 2, 3].map((n) => client.query('SELECT $1::int AS n', [n])));
    expect(answers.map((answer) => answer.rows[0].n)).toEqual([1, 2, 3]);
  });
});

describe('cutBefore', () => {
  test('leaves nothing written and happens once', async () => {
    const client = await throughProxy();
    const cut = proxy.cutBefore('INSERT INTO note');
    await client.query('SELECT 1');
    await expect(client.query(INSERT, ['lost'])).rejects.toThrow();
    await cut;
    await expect.poll(othersInServer).toBe(0);
    expect(await notes()).toEqual([]);
    await (await throughProxy()).query(INSERT, ['second']);
    expect(await notes()).toEqual(['second']);
  });

  test('at COMMIT rolls the transaction back', async () => {
    const client = await throughProxy();
    const cut = proxy.cutBefore(/^commit/i);
    await client.query('BEGIN');
    await client.query(INSERT, ['lost']);
    await expect(client.query('COMMIT')).rejects.toThrow();
    await cut;
    await expect.poll(othersInServer).toBe(0);
    expect(await notes()).toEqual([]);
  });

  test('matches a named statement by its SQL when only its name is sent', async () => {
    const client = await throughProxy();
    await client.query({ name: 'add', text: INSERT, values: ['first'] });
    const cut = proxy.cutBefore('INSERT INTO note');
    await expect(client.query({ name: 'add', text: INSERT, values: ['lost'] })).rejects.toThrow();
    await cut;
    await expect.poll(othersInServer).toBe(0);
    expect(await notes()).toEqual(['first']);
  });
});

describe('cutAfter', () => {
  test.each([
    ['simple', (client: pg.Client) => client.query("INSERT INTO note VALUES ('kept')")],
    ['extended', (client: pg.Client) => client.query(INSERT, ['kept'])],
    ['named', (client: pg.Client) => client.query({ name: 'add', text: INSERT, values: ['kept'] })],
  ])('leaves the row of a %s statement written though the client got an error', async (_, insert) => {
    const client = await throughProxy();
    const cut = proxy.cutAfter('INSERT INTO note');
    await expect(insert(client)).rejects.toMatchObject({ code: 'ECONNRESET' });
    expect(await cut).toBe('INSERT 0 1');
    expect(await notes()).toEqual(['kept']);
  });

  test('matches a named statement by its SQL when only its name is sent', async () => {
    const client = await throughProxy();
    await client.query({ name: 'add', text: INSERT, values: ['first'] });
    const cut = proxy.cutAfter('INSERT INTO note');
    await expect(client.query({ name: 'add', text: INSERT, values: ['second'] })).rejects.toThrow();
    expect(await cut).toBe('INSERT 0 1');
    expect(await notes()).toEqual(['first', 'second']);
  });

  test('at COMMIT keeps the transaction', async () => {
    const client = await throughProxy();
    const cut = proxy.cutAfter('COMMIT');
    await client.query('BEGIN');
    await client.query(INSERT, ['kept']);
    await expect(client.query('COMMIT')).rejects.toThrow();
    expect(await cut).toBe('COMMIT');
    expect(await notes()).toEqual(['kept']);
  });

  test('resolves to the error the client did not see', async () => {
    await admin.query(INSERT, ['twice']);
    const client = await throughProxy();
    const cut = proxy.cutAfter('INSERT INTO note');
    await expect(client.query(INSERT, ['twice'])).rejects.toMatchObject({ code: 'ECONNRESET' });
    expect(await cut).toBe('ERROR 23505');
  });

  test('delivers the response to the previous statement and leaves other connections alone', async () => {
    const [client, bystander] = [await throughProxy({ pipeline: true }), await throughProxy()];
    const cut = proxy.cutAfter('INSERT INTO note');
    const before = client.query('SELECT 1 AS one');
    await expect(client.query(INSERT, ['kept'])).rejects.toThrow();
    expect((await before).rows).toEqual([{ one: 1 }]);
    expect(await cut).toBe('INSERT 0 1');
    expect((await bystander.query('SELECT 2 AS two')).rows).toEqual([{ two: 2 }]);
  });
});

describe('the proxy as a whole', () => {
  test('is noticed, when stalled, only by the timeout of the client', async () => {
    const client = await throughProxy({ query_timeout: 100 });
    proxy.stall();
    await expect(client.query(INSERT, ['held'])).rejects.toThrow('Query read timeout');
    expect(await notes()).toEqual([]);
    expect(proxy.connectionCount).toBe(1);
    expect(await othersInServer()).toBe(1);
    proxy.resume();
    await expect.poll(notes).toEqual(['held']);
    expect((await client.query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  });

  test('does not tell the server, when stalled, that a client has gone', async () => {
    const socket = connectSocket(proxy.port, '127.0.0.1');
    const client = await throughProxy();
    proxy.stall();
    socket.resetAndDestroy();
    const ended = client.end();
    expect(await othersInServer()).toBe(1);
    proxy.resume();
    await ended;
    await expect.poll(() => proxy.connectionCount).toBe(0);
  });

  test('resets every connection when cut, and accepts new ones', async () => {
    const both = [await throughProxy(), await throughProxy()];
    const errors = both.map((client) => new Promise((resolve) => client.once('error', resolve)));
    proxy.cutAll();
    for (const error of errors) expect(await error).toMatchObject({ code: 'ECONNRESET' });
    await expect.poll(() => proxy.connectionCount).toBe(0);
    expect((await (await throughProxy()).query('SELECT 1 AS one')).rows).toEqual([{ one: 1 }]);
  });

  test('rejects, when closed, the faults that did not happen', async () => {
    const never = proxy.cutBefore('no such statement');
    await proxy.close();
    await expect(never).rejects.toMatchObject({ code: 'closed' });
  });
});
