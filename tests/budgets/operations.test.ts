/**
 * Counts what the hot operations write and touch per execution and compares it to their budgets. The server counts for
 * this one connection, so neither load nor other tests matter.
 */
import { randomBytes, randomUUID } from 'node:crypto';
import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { uuidV7 } from '../../src/contract/ids.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { BUDGETS, type Budget } from './budgets.ts';

const ROUTES = JSON.stringify([{ lane: 'default', kind: 'counted', capabilities: [] }]);
const PAYLOAD = '{"orderId": "o-1234567", "cents": 4200}';
const TEMPLATE = {
  route: 1,
  namespace: 'default',
  priority: 0,
  policy: { retry_policy: { max_retries: 3 } },
  tags: { 'team.name': 'billing' },
};
/** Calls before counting, to fill caches and pages, so that extending a table is not counted. */
const WARM_UP = 3;
/** Lives counted at most, until one is within its budgets. */
const COUNTED = 30;

type Cost = Omit<Budget, 'why'>;
type Costs = Record<keyof typeof BUDGETS, Cost>;
type Form = 'single' | 'batched';

const OPERATIONS = Object.keys(BUDGETS) as (keyof Costs)[];

let database: TestDatabase;
let client: pg.Client;
let moment = 1;

beforeAll(async () => {
  database = await plainDatabase();
  client = await database.connect();
  await keepAutovacuumOut();
  await client.query('SELECT FROM ff_intern_routes($1, 10000)', [ROUTES]);
});
afterAll(() => database.drop());

/** The snapshot of an automatic ANALYZE keeps dead rows on their pages, so that updates cost more than they do alone. */
async function keepAutovacuumOut(): Promise<void> {
  const tables = await client.query<{ name: string }>(
    `SELECT c.oid::regclass::text AS name FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace`,
  );
  for (const { name } of tables.rows)
    await client.query(`ALTER TABLE ${name} SET (autovacuum_enabled = off)`);
}

const same = <Value>(count: number, value: Value): Value[] => Array.from({ length: count }, () => value);

async function counted(count: number, text: string, params: unknown[]): Promise<Cost> {
  const answer = await client.query<{ 'QUERY PLAN': [{ Plan: Record<string, number> }] }>(
    `EXPLAIN (ANALYZE, WAL, BUFFERS, TIMING OFF, FORMAT JSON) ${text}`,
    params,
  );
  const plan = answer.rows[0]!['QUERY PLAN'][0].Plan;
  const of = (name: string): number => (plan[name] ?? 0) / count;
  return {
    walRecords: of('WAL Records'),
    walBytes: of('WAL Bytes'),
    buffers: of('Shared Hit Blocks') + of('Shared Read Blocks'),
  };
}

/** Appends a frame to the stream of each execution. */
function appended(ids: string[]): Promise<Cost> {
  const count = ids.length;
  const frame = (...values: unknown[]): unknown[] => values.map((value) => same(count, value));
  const text = 'x'.repeat(200);
  if (count === 1)
    return counted(
      1,
      `SELECT ff_append_frame($1, 7::smallint, 0, 1, gen_random_uuid(), 'text', 'event', NULL, NULL, NULL, NULL, $2, 50, NULL, NULL)`,
      [ids[0], Buffer.from(text)],
    );
  return counted(
    count,
    `SELECT ff_append_streams($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, NULL, $11, $12, $13, NULL, NULL, NULL, NULL, $14, $15, $16, 10000, 64,
       16384, 0.2, 1000000, 50)`,
    [
      ids,
      ...frame(7, 0, 1),
      ids.map(() => randomUUID()),
      ...frame(1, 0, text.length),
      ids.map((_, place) => place + 1),
      ...frame(1, 'durable', 'text', 'event'),
      ids.map((_, place) => place * text.length),
      ...frame(text.length),
      Buffer.from(text.repeat(count)),
    ],
  );
}

function submittedAlone(id: string): Promise<Cost> {
  return counted(
    1,
    `SELECT ff_submit_one('default', 'counted', '{}', 'default', 0, $1, $2, $3, 7::smallint, 0, $4)`,
    [JSON.stringify(TEMPLATE.policy), JSON.stringify(TEMPLATE.tags), id, PAYLOAD],
  );
}

function submittedTogether(ids: string[]): Promise<Cost> {
  const count = ids.length;
  return counted(count, 'SELECT * FROM ff_submit($1, $2, $3, $4, $5, $6, $7, NULL)', [
    ROUTES,
    JSON.stringify([TEMPLATE]),
    ids,
    same(count, 7),
    same(count, 1),
    same(count, 0),
    same(count, PAYLOAD),
  ]);
}

/** Submits and claims `count` executions. */
async function begun(count: number): Promise<Pick<Costs, 'submit' | 'claim'> & { ids: string[] }> {
  const ids = Array.from({ length: count }, () => uuidV7((moment += 1), randomBytes(10))).toSorted();
  const submit = count === 1 ? await submittedAlone(ids[0]!) : await submittedTogether(ids);
  const claim = await counted(
    count,
    `SELECT * FROM ff_claim(ARRAY(SELECT route_id FROM ff_route), '{NULL}', '{0}', $1, 'worker', 'worker-1',
       gen_random_uuid(), 30000)`,
    [count],
  );
  return { ids, submit, claim };
}

const leasesOf = (ids: string[]): unknown[] => [
  ids,
  same(ids.length, 7),
  same(ids.length, 0),
  same(ids.length, 1),
];

/** What the third append to each stream costs. Apart, since an attempt with a stream is completed at another cost. */
async function written(count: number): Promise<Cost> {
  const { ids } = await begun(count);
  await appended(ids);
  await appended(ids);
  const append = await appended(ids);
  await client.query('SELECT FROM ff_complete($1, $2, $3, $4, $5)', [...leasesOf(ids), same(count, null)]);
  return append;
}

/** Runs the whole life of `count` executions and returns what each call cost. */
async function life(count: number): Promise<Costs> {
  const append = await written(count);
  const { ids, submit, claim } = await begun(count);
  const leases = leasesOf(ids);
  const renew = await counted(count, 'SELECT * FROM ff_renew($1, $2, $3, $4, 30000)', leases);
  const record = await counted(count, 'SELECT * FROM ff_record_steps($1, $2, $3, $4, $5, $6, $7, $8, $9)', [
    ...leases,
    same(count, 'step'),
    same(count, 'charge'),
    same(count, ''),
    same(count, null),
    same(count, PAYLOAD),
  ]);
  const complete = await counted(count, 'SELECT * FROM ff_complete($1, $2, $3, $4, $5)', [
    ...leases,
    same(count, '{"charged": true}'),
  ]);
  await client.query('VACUUM ff_ready, ff_grant');
  return { submit, claim, renew, record, append, complete };
}

/**
 * The least of several lives. Other databases of the server disturb some of them: their changes make a connection reload
 * its catalog cache, and a transaction that stays open there keeps this one from noticing that rows are dead, because
 * the horizon is computed again only when the oldest transaction of the whole server is another one.
 */
async function warmLife(form: Form, count: number): Promise<Costs> {
  for (let round = 0; round < WARM_UP; round += 1) await life(count);
  let least = await life(count);
  const isOver = (): boolean => OPERATIONS.some((operation) => overBudget(least, operation, form).length > 0);
  for (let round = 1; round < COUNTED && isOver(); round += 1) least = lesser(least, await life(count));
  return least;
}

/** What an operation costs too much of. */
function overBudget(costs: Costs, operation: keyof Costs, form: Form): (keyof Cost)[] {
  const [cost, budget] = [costs[operation], BUDGETS[operation][form]];
  return (Object.keys(cost) as (keyof Cost)[]).filter((name) => cost[name] > budget[name]);
}

function lesser(one: Costs, other: Costs): Costs {
  const costs = { ...one };
  for (const operation of OPERATIONS) {
    if (other[operation].buffers < costs[operation].buffers) costs[operation] = other[operation];
  }
  return costs;
}

describe.each([
  ['single', 1],
  ['batched', 100],
] as const)('%s calls', (form, count) => {
  let costs: Costs;
  beforeAll(async () => {
    costs = await warmLife(form, count);
  });

  it.each(OPERATIONS)('%s stays within its budget', (operation) => {
    const budget = BUDGETS[operation][form];
    const cost = costs[operation];
    const over = overBudget(costs, operation, form);
    expect(over, `${operation} costs ${JSON.stringify(cost)} (${budget.why})`).toEqual([]);
  });

  it('completes everything it claimed', async () => {
    const left = await client.query('SELECT 1 FROM ff_lease UNION ALL SELECT 1 FROM ff_ready');
    expect(left.rowCount).toBe(0);
  });
});
