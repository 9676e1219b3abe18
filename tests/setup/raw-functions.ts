/**
 * The engine's SQL functions called one row at a time, for tests below the level of the engine. Each execution gets its
 * own route, so that a claim finds exactly that one. Needs a database with the movable clock.
 */
import { completedBy, failedBy, releasedBy } from './ended-rows.ts';
import { randomUUID } from 'node:crypto';
import type { TestDatabase } from '../../src/testing/test-database.ts';

/** Every execution created here is in this partition. */
export const PARTITION = 7;

const LEASE_MS = 30_000;
const LONGEST_DELAY_MS = 3_600_000;
/** How often a lease may be revoked before the execution fails. */
const MAX_RECLAIMS = 2;

export interface RawLease {
  id: string;
  attempt: number;
  epoch: number;
}

export interface RawFunctions {
  /** Delays, including the policy's backoff, are at most an hour: that is how far `fire` moves the clock. */
  submit(options?: { delayMs?: number; policy?: object }): Promise<string>;
  claim(id: string): Promise<RawLease>;
  complete(lease: RawLease): Promise<string>;
  fail(lease: RawLease): Promise<string>;
  release(lease: RawLease): Promise<string>;
  cancel(id: string): Promise<string>;
  revoke(id: string): Promise<string>;
  /** Moves the clock past the lease first. */
  lapse(lease: RawLease): Promise<string>;
  /** Moves the clock past the delay first. */
  fire(id: string): Promise<string>;
  /** The events of an execution, oldest first, as `family.type`. */
  eventsOf(id: string): Promise<string[]>;
}

/** The first arguments of every function a lease holder calls. */
export function leaseArrays({ id, attempt, epoch }: RawLease): unknown[] {
  return [[id], [PARTITION], [attempt], [epoch]];
}

/** Each function returns the outcome of its row. */
export function rawFunctions(database: TestDatabase): RawFunctions {
  const first = async (sql: string, params: unknown[]): Promise<string> => {
    const answer = await database.query<{ outcome: string }>(sql, params);
    return answer.rows[0]?.outcome ?? 'nothing';
  };
  const outcome = (call: string, params: unknown[]): Promise<string> =>
    first(`SELECT outcome FROM ${call}`, params);
  return {
    submit: (options = {}) => submit(database, options.delayMs ?? 0, options.policy ?? {}),
    claim: (id) => claim(database, id),
    complete: (lease) => first(completedBy(`ff_complete($1, $2, $3, $4, '{null}')`), leaseArrays(lease)),
    fail: (lease) =>
      first(failedBy(`ff_fail($1, $2, $3, $4, '{no}', '{x}', '{NULL}', '{false}')`), leaseArrays(lease)),
    release: (lease) => first(releasedBy('ff_release($1, $2, $3, $4)'), leaseArrays(lease)),
    cancel: (id) => outcome(`ff_cancel($1, $2, 'why', 'me')`, [[id], [PARTITION]]),
    revoke: (id) =>
      outcome(`ff_revoke_leases($1, $2, '{NULL}', 'why', 'me', $3)`, [[id], [PARTITION], MAX_RECLAIMS]),
    lapse: async ({ id, epoch }) => {
      await database.moveClock(LEASE_MS + 1);
      return outcome('ff_lapse_leases($1, $2, $3)', [[id], [PARTITION], [epoch]]);
    },
    fire: async (id) => {
      await database.moveClock(LONGEST_DELAY_MS);
      return outcome('ff_fire_timers(ARRAY(SELECT timer_id FROM ff_timer WHERE execution_id = $1))', [id]);
    },
    eventsOf: (id) => eventsOf(database, id),
  };
}

async function submit(database: TestDatabase, delayMs: number, policy: object): Promise<string> {
  const id = randomUUID();
  const routes = JSON.stringify([{ lane: 'default', kind: id, capabilities: [] }]);
  await database.query('SELECT FROM ff_intern_routes($1, 10000)', [routes]);
  await database.query('SELECT * FROM ff_submit($1, $2, $3, $4, $5, $6, $7, NULL)', [
    routes,
    JSON.stringify([{ route: 1, namespace: 'default', priority: 100, policy, tags: {} }]),
    [id],
    [PARTITION],
    [1],
    [delayMs],
    ['{"work": 1}'],
  ]);
  return id;
}

async function claim(database: TestDatabase, id: string): Promise<RawLease> {
  const answer = await database.query<{ attempt_index: number; lease_epoch: number }>(
    `SELECT (p -> 'attemptIndex' ->> 0)::int AS attempt_index, (p -> 'leaseEpoch' ->> 0)::int AS lease_epoch
     FROM ff_claim(ARRAY(SELECT route_id FROM ff_execution WHERE execution_id = $1), '{NULL}', '{0}', 1, 'w', 'w-1',
       gen_random_uuid(), $2), unnest(pages) p
     WHERE p -> 'uuid' ->> 0 = $1::text`,
    [id, LEASE_MS],
  );
  const lease = answer.rows[0];
  if (lease === undefined) throw new Error(`${id} could not be claimed`);
  return { id, attempt: lease.attempt_index, epoch: lease.lease_epoch };
}

async function eventsOf(database: TestDatabase, id: string): Promise<string[]> {
  const found = await database.query<{ event: string }>(
    `SELECT family || '.' || event_type AS event FROM ff_event WHERE execution_id = $1 ORDER BY ev_id`,
    [id],
  );
  return found.rows.map(({ event }) => event);
}
