/**
 * Whatever keeps a process from its database for a while, everything that runs waits for it, reports it once, and
 * continues by itself: subscriptions, consumers, tails, callers that wait for an outcome, and workers.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, inject, it, onTestFinished } from 'vitest';
import pg from 'pg';
import { connect } from '../../../src/connect/connect.ts';
import type { Connection } from '../../../src/connect/connection.ts';
import { EngineError, isEngineError, type ExecutionId, type FeedEvent } from '../../../src/index.ts';
import { task } from '../../../src/define/task.ts';
import { migrate } from '../../../src/engine/database/migrations/migrate.ts';
import { handle } from '../../../src/define/handlers.ts';
import { startWorker } from '../../../src/connect/worker.ts';
import { latch } from '../../worker/crew.ts';
import { useRoles, type Role } from './roles.ts';
import { patiently } from '../../setup/patience.ts';

const roles = useRoles();
/** Shorter than the limit of a test, so that a failure says what was found instead. */
const LONG = { timeout: patiently(30_000) };
const CASE_LIMIT = { timeout: patiently(150_000) };
/** Far more than the pool has connections from during the outage. */
const MAX_TRIES = 100;
let server: pg.Client;
let renamer: pg.Client;
let role: Role;

beforeAll(async () => {
  // Not connected to the database of the file, which is renamed.
  server = new pg.Client({ connectionString: inject('testServer').url });
  await server.connect();
  renamer = new pg.Client({ connectionString: inject('testServer').url });
  await renamer.connect();
  role = await roles.create();
  await migrate({ databaseUrl: roles.database.url, grantTo: role.name });
});
afterAll(() => Promise.all([server.end(), renamer.end()]));

interface Trouble {
  /** Statements of the superuser that cause it, and that end it. */
  begin: string;
  end: string;
}

/** By the SQLSTATE under which the outage is reported. */
function troubles(): Record<string, Trouble & { code: string }> {
  const { name, password } = role;
  const database = roles.database.name;
  return {
    '28P01': {
      code: 'permission_denied',
      begin: `ALTER ROLE ${name} PASSWORD 'another'`,
      end: `ALTER ROLE ${name} PASSWORD '${password}'`,
    },
    '28000': {
      code: 'permission_denied',
      begin: `ALTER ROLE ${name} NOLOGIN`,
      end: `ALTER ROLE ${name} LOGIN`,
    },
    '3D000': {
      code: 'unavailable',
      begin: `ALTER DATABASE ${database} RENAME TO ${database}_away`,
      end: `ALTER DATABASE ${database}_away RENAME TO ${database}`,
    },
    '53300': {
      code: 'no_connection',
      begin: `ALTER ROLE ${name} CONNECTION LIMIT 0`,
      end: `ALTER ROLE ${name} CONNECTION LIMIT -1`,
    },
    '25006': {
      code: 'unavailable',
      begin: `ALTER ROLE ${name} SET default_transaction_read_only = on`,
      end: `ALTER ROLE ${name} RESET default_transaction_read_only`,
    },
    '55000': {
      code: 'unavailable',
      begin: `ALTER DATABASE ${database} ALLOW_CONNECTIONS false`,
      end: `ALTER DATABASE ${database} ALLOW_CONNECTIONS true`,
    },
  };
}

/**
 * Terminates the existing connections too. A database is renamed when none is left, and accepts none while it waits for
 * that.
 */
async function bringAbout({ begin }: Trouble): Promise<void> {
  const renames = begin.includes('RENAME');
  const changing = renames ? renamer.query(begin) : await server.query(begin);
  const endAll = 'SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = $1';
  const left = async () => (await server.query(endAll, [roles.database.name])).rowCount;
  if (renames) await expect.poll(left, LONG).toBe(0);
  else await left();
  await changing;
}

async function open(): Promise<Connection> {
  const connection = await connect({ databaseUrl: role.url, poolSize: 4 });
  onTestFinished(() => connection.close());
  return connection;
}

/** Everything that a process can run, on one kind of execution. */
async function runEverything(connection: Connection, kind: string) {
  const filter = { kind };
  const heard: (FeedEvent | { type: 'disconnected' })[] = [];
  // By position: a handler whose transaction was cut off before its commit is called again with the same events.
  const handled = new Map<bigint, FeedEvent>();
  const errors: { error: unknown; failures: number }[] = [];
  const disconnected = latch<{ type: string }>();
  const told = latch<unknown>();
  const subscription = await connection.events.subscribe({ filter });
  onTestFinished(() => subscription.close());
  const reading = (async () => {
    for await (const event of subscription) {
      heard.push(event);
      if (event.type === 'disconnected') disconnected.open(event);
    }
  })();
  const consumer = await connection.events.consume(
    `consumer-${kind}`,
    async (events) => {
      for (const event of events) handled.set(event.position, event);
    },
    {
      filter,
      onError(error, failures) {
        errors.push({ error, failures });
        told.open(error);
      },
    },
  );
  const waited = (await connection.executions.submit({ kind: `${kind}-waited` })).executionId;
  const flow = await connection.flows.create({ name: 'waited' });
  await connection.flows.addMembers(flow.flowId, [{ name: 'only', kind: `${kind}-member` }]);
  await connection.flows.seal(flow.flowId);
  const tail = (async () => {
    const items: string[] = [];
    for await (const item of connection.streams.tail(waited)) items.push(item.type);
    return items;
  })();
  const end = connection.executions.wait(waited);
  const flowEnd = connection.flows.wait(flow.flowId);
  const died = latch();
  const deaths: string[] = [];
  for (const [what, running] of Object.entries({ reading, consumer: consumer.done, end, flowEnd, tail }))
    running.catch((error: unknown) => {
      if (isEngineError(error) && error.code !== 'closed') deaths.push(`${what}: ${error.message}`);
      died.open();
    });
  const worker = startWorker(connection, {
    log: 'silent',
    handlers: [handle(task(kind), () => 1)],
    poll: 100,
  });
  onTestFinished(() => worker.stop({ deadline: 0 }));
  return {
    heard,
    handled,
    errors,
    deaths,
    /** Resolves when the outage has been reported, or has ended something for good. */
    noticed: Promise.race([Promise.all([disconnected.opened, told.opened]), died.opened]),
    waited,
    flowId: flow.flowId,
    end,
    flowEnd,
    tail,
  };
}

describe('everything that runs continues by itself after', () => {
  it.each(['28P01', '28000', '3D000', '53300', '25006', '55000'])('%s', CASE_LIMIT, async (sqlState) => {
    const trouble = troubles()[sqlState]!;
    const kind = `kind-${randomUUID()}`;
    const connection = await open();
    const running = await runEverything(connection, kind);
    const first = (await connection.executions.submit({ kind })).executionId;
    await expect.poll(() => endedOf([...running.handled.values()]), LONG).toEqual([first]);

    await bringAbout(trouble);
    try {
      await running.noticed;
      expect(running.deaths).toEqual([]);
      const reason = expect.stringMatching(/^[A-Z].*\.$/) as unknown;
      expect(running.heard.at(-1)).toMatchObject({ type: 'disconnected', reason });
      expect(running.errors).toMatchObject([{ error: expect.any(EngineError) as unknown, failures: 0 }]);
      const { code, sqlState: reported } = running.errors[0]!.error as EngineError;
      // A statement that was running when its connection was terminated is the first to fail.
      const terminated = { code: 'unavailable', reported: '57P01' };
      expect([{ code: trouble.code, reported: sqlState }, terminated]).toContainEqual({ code, reported });
    } finally {
      await server.query(trouble.end);
    }

    const second = await insisting(() => connection.executions.submit({ kind }));
    await expect
      .poll(() => endedOf([...running.handled.values()]), LONG)
      .toEqual([first, second.executionId]);
    await expect.poll(() => endedOf(running.heard), LONG).toEqual([first, second.executionId]);
    await insisting(() => connection.cancel(running.waited, { reason: 'to have an end' }));
    await insisting(() => connection.flows.cancel(running.flowId, { reason: 'to have an end' }));
    expect(await running.end).toMatchObject({ outcome: 'cancelled' });
    expect(await running.flowEnd).toBe('cancelled');
    expect(await running.tail).toEqual(['closed']);
    // Once each: for the outage, not for every poll.
    expect(running.heard.filter(({ type }) => type === 'disconnected')).toHaveLength(1);
    expect(running.errors.map(({ failures }) => failures)).toEqual([0]);
  });
});

it('a first connect with a wrong password is refused', async () => {
  const url = new URL(role.url);
  url.password = 'another';
  await expect(connect({ databaseUrl: url.href })).rejects.toMatchObject({
    code: 'permission_denied',
    sqlState: '28P01',
  });
});

function endedOf(events: readonly { type: string }[]): ExecutionId[] {
  return (events as FeedEvent[]).flatMap((event) => (event.type === 'success' ? [event.executionId] : []));
}

/** Repeats a call: the pool may still have connections from during the outage. */
async function insisting<Answer>(call: () => Promise<Answer>): Promise<Answer> {
  let last: unknown;
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    try {
      return await call();
    } catch (error) {
      if (!isEngineError(error)) throw error;
      last = error;
    }
  }
  throw new Error(`Failed ${MAX_TRIES} times after the outage had ended.`, { cause: last });
}
