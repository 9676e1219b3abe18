/**
 * Transactions on connections that do not answer, or never arrive: each wait is limited, and the connection and the
 * slot are released.
 */
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { LIMITS } from '../../contract/limits.ts';
import { connectionBudget } from './connection-budget.ts';
import { ANSWER_LIMIT_MS, type ClientLike, type PoolLike } from './database.ts';
import { openTransactions, type Transactions } from './transactions.ts';

beforeEach(() => void vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] }));
afterEach(() => void vi.useRealTimers());

const NEVER = new Promise<never>(() => undefined);
const NAMED = { rows: [{ transaction: '7', pid: 1 }] };

/** What happened to a released connection: `kept` by the pool, or `dropped`. */
type Released = 'kept' | 'dropped';

function clientOf(answer: (text: string) => Promise<{ rows: unknown[] }>): {
  client: ClientLike;
  released: Released[];
} {
  const released: Released[] = [];
  return {
    client: {
      query: answer,
      release: (broken) => void released.push(broken === true ? 'dropped' : 'kept'),
    },
    released,
  };
}

function arrival(): { promise: Promise<ClientLike>; resolve(client: ClientLike): void } {
  let resolve: (client: ClientLike) => void = () => undefined;
  const promise = new Promise<ClientLike>((arrive) => {
    resolve = arrive;
  });
  return { promise, resolve };
}

/** Handled from the start: it may reject while the clock is advanced. */
function errorOf(run: Promise<unknown>): Promise<unknown> {
  return run.catch((error: unknown) => error);
}

/** Two connections at most, so one transaction at a time. */
function open(connect: () => Promise<ClientLike>): Transactions {
  const pool: PoolLike = { query: () => NEVER, connect, options: { max: 2 } };
  return openTransactions({ pool }, 'flowfabric.', connectionBudget()).transactions;
}

it.each([
  [/BEGIN/, 'beginning'],
  [/COMMIT$/, 'committing'],
])('end when there is no answer to %s', async (silent, doing) => {
  const { client, released } = clientOf((text) =>
    text.search(silent) >= 0 ? NEVER : Promise.resolve(NAMED),
  );
  const transactions = open(async () => client);
  const ended = errorOf(transactions.run(async () => 'done'));
  await vi.advanceTimersByTimeAsync(ANSWER_LIMIT_MS);
  expect(await ended).toMatchObject({
    code: 'unavailable',
    message: `While ${doing} a transaction: the database did not answer within ${ANSWER_LIMIT_MS / 1_000} s.`,
  });
  expect(released).toEqual(['dropped']);
  expect(vi.getTimerCount()).toBe(0);
});

it('end with the error of the work when there is no answer to ROLLBACK', async () => {
  const { client, released } = clientOf((text) => (text === 'ROLLBACK' ? NEVER : Promise.resolve(NAMED)));
  const work = () => Promise.reject(new Error('the work failed'));
  const ended = errorOf(open(async () => client).run(work));
  await vi.advanceTimersByTimeAsync(ANSWER_LIMIT_MS);
  expect(await ended).toMatchObject({ message: 'the work failed' });
  expect(released).toEqual(['dropped']);
});

it('do not give back a connection on which BEGIN was refused', async () => {
  const refuse = () => Promise.reject(new Error('refused'));
  const { client, released } = clientOf((text) =>
    text.includes('BEGIN') ? refuse() : Promise.resolve(NAMED),
  );
  await expect(open(async () => client).run(async () => 'done')).rejects.toMatchObject({
    code: 'database_error',
  });
  expect(released).toEqual(['dropped']);
});

it('are refused when the pool has no connection in time, and give back the one that comes later', async () => {
  const { client, released } = clientOf(() => Promise.resolve(NAMED));
  const arriving = arrival();
  const connects = [() => arriving.promise, async () => client];
  const transactions = open(() => connects.shift()!());
  const refused = errorOf(transactions.run(async () => 'done'));
  await vi.advanceTimersByTimeAsync(LIMITS.connectionWaitMs);
  expect(await refused).toMatchObject({ code: 'no_connection' });
  expect(await transactions.run(async () => 'next')).toBe('next');
  expect(released).toEqual(['kept']);
  const isBroken = await new Promise((release) => arriving.resolve({ ...client, release }));
  expect(isBroken).toBeFalsy();
});

it.each(['close', 'abandon'] as const)('call no user code after %s, whatever they wait for', async (end) => {
  const { client, released } = clientOf(() => Promise.resolve(NAMED));
  const arriving = arrival();
  const transactions = open(() => arriving.promise);
  const called: string[] = [];
  const runs = ['first', 'second'].map((name) => transactions.run(async () => void called.push(name)));
  const ended = Promise.allSettled(runs);
  await transactions[end]();
  arriving.resolve(client);
  expect(await ended).toMatchObject(runs.map(() => ({ status: 'rejected', reason: { code: 'closed' } })));
  await expect(transactions.run(async () => void called.push('late'))).rejects.toMatchObject({
    code: 'closed',
  });
  expect({ called, released }).toEqual({ called: [], released: ['kept'] });
  expect(vi.getTimerCount()).toBe(0);
});
