/**
 * What lists cost beside a million executions: each filter finds its rows by an index and reads no more of them than a
 * page may, whatever the planner believes about the tables. Counted in buffers and rows, never in time.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ExecutionFilter, ListPage } from '../../src/contract/operations.ts';
import type { EngineContext } from '../../src/engine/kit/context.ts';
import { list, listAttempts } from '../../src/engine/operator/lists.ts';
import { LIMITS } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import {
  buffersOf,
  mostRowsOf,
  nodesOf,
  openRecorder,
  type PlanNode,
  type RecordedPlan,
  type Recorder,
} from './plan-recorder.ts';
import { compiled } from './plan-rules.ts';
import { vacuumedEmptyTables } from './table-states.ts';
import { patiently } from '../setup/patience.ts';

const EXECUTIONS = 1_000_000;
const NAMESPACES = 3;
const ROUTES = 200;
const ATTEMPTS = 50_000;
/** Executions submitted in the same millisecond, and ended in the same one. */
const TOGETHER = 100;
const LIMIT = 100;
/** A page whose rows all match: the rows, the one after them, and those that share a time with the first or last. */
const ROWS_OF_A_PAGE = LIMIT + 1 + 2 * TOGETHER;
/** A row is looked up in five tables, each by an index a few levels deep. */
const BUFFERS_PER_ROW = 30;
/** For a row that does not match, only the execution and the condition that excluded it are looked up. */
const BUFFERS_PER_LOOK = 14;
/** The most rows one statement reads, each twice. */
const ROWS_OF_A_WINDOW = 2 * (5_000 + 2 * TOGETHER);

const LIVE = { waiting: 40_000, delayed: 40_000, active: 10_000, suspended: 40_000, parents: 10_000 };
const ENDED = EXECUTIONS - Object.values(LIVE).reduce((sum, count) => sum + count);
/** The number at which the executions of each state begin. */
const FROM = {
  waiting: ENDED,
  delayed: ENDED + LIVE.waiting,
  active: ENDED + LIVE.waiting + LIVE.delayed,
  suspended: ENDED + LIVE.waiting + LIVE.delayed + LIVE.active,
  parents: EXECUTIONS - LIVE.parents,
};
/** The older ones have no tags. */
const TAGGED_FROM = 800_000;
const BIG_TABLES = [
  'ff_execution',
  'ff_tag',
  'ff_ready',
  'ff_timer',
  'ff_grant',
  'ff_child_wait',
  'ff_suspension',
  'ff_attempt_history',
];
const CLAIMED_TOGETHER = 100;
const FAR_MS = 10_000_000_000_000;
const ID = `lpad(to_hex(n), 32, '0')::uuid`;

const FILLING = [
  // Checked row by row in plpgsql, which takes most of the time of filling the table.
  'ALTER TABLE ff_execution DROP CONSTRAINT ff_execution_legal',
  // No list reads these.
  'DROP INDEX ff_ended_kept_until',
  `INSERT INTO ff_lane (lane) VALUES ('default')`,
  `INSERT INTO ff_route (lane, kind, capabilities)
   SELECT 'default', CASE n WHEN 1 THEN 'plain' ELSE 'rare' || n END, '{}' FROM generate_series(1, ${ROUTES}) n`,
  `INSERT INTO ff_execution (execution_id, created_at_ms, changed_at_ms, route_id, priority, lifecycle_phase,
     ownership_state, eligibility_state, blocking_reason, terminal_outcome, attempt_state, partition_key, namespace,
     eligible_at_ms, parent_id, tags, claim_no, lease_expires_at_ms)
   SELECT ${ID}, n / ${TOGETHER}, 0, CASE WHEN n = 5 THEN 2 ELSE 1 END, 0, s.phase::ff_lifecycle_phase, 'unowned',
     s.eligibility::ff_eligibility_state, 'none', s.outcome::ff_terminal_outcome, 'attempt_terminal', 0,
     'space-' || n % ${NAMESPACES}, CASE s.eligibility WHEN 'not_eligible_until_time' THEN ${FAR_MS} + n / ${TOGETHER} END,
     CASE WHEN n % 10 = 0 AND n > 20 THEN lpad(to_hex(n % 20), 32, '0')::uuid END,
     CASE WHEN n >= ${TAGGED_FROM} THEN '{"team": "plans"}'::jsonb ELSE '{}' END,
     CASE s.phase WHEN 'active' THEN n / ${CLAIMED_TOGETHER} END, CASE s.phase WHEN 'active' THEN 0 END
   FROM generate_series(1, ${EXECUTIONS}) n
   CROSS JOIN LATERAL (
     SELECT CASE WHEN n <= ${FROM.waiting} THEN 'terminal'
                 WHEN n > ${FROM.active} AND n <= ${FROM.suspended} THEN 'active'
                 WHEN n > ${FROM.suspended} AND n <= ${FROM.parents} THEN 'suspended' ELSE 'runnable' END AS phase,
            CASE WHEN n <= ${FROM.waiting} THEN 'not_applicable' WHEN n <= ${FROM.delayed} THEN 'eligible_now'
                 WHEN n <= ${FROM.active} THEN 'not_eligible_until_time' WHEN n <= ${FROM.parents} THEN 'not_applicable'
                 ELSE 'blocked_by_dependencies' END AS eligibility,
            CASE WHEN n > ${FROM.waiting} THEN 'none' ELSE 'success' END AS outcome) s`,
  `INSERT INTO ff_tag SELECT 'team', 'plans', n / ${TOGETHER}, ${ID}, 0 FROM generate_series(${TAGGED_FROM}, ${EXECUTIONS}) n`,
  `INSERT INTO ff_attempt_history (execution_id, lease_epoch, ended_at_ms, attempt_index, terminal_outcome, partition_key,
     namespace, failure_category)
   SELECT ${ID}, 1, n / ${TOGETHER}, 0, 'success', 0, 'space-' || n % ${NAMESPACES}, 'plain' FROM generate_series(1, ${ENDED}) n`,
  `INSERT INTO ff_ready (execution_id, lease_epoch, ready_at_ms, route_id, priority, attempt_index, partition_key)
   SELECT ${ID}, 0, 0, 1, 0, 0, 0 FROM generate_series(${FROM.waiting} + 1, ${FROM.delayed}) n`,
  `INSERT INTO ff_timer (due_at_ms, execution_id, lease_epoch, attempt_index, kind, partition_key)
   SELECT ${FAR_MS} + n / ${TOGETHER}, ${ID}, 0, 0, 'eligible', 0
   FROM generate_series(${FROM.delayed} + 1, ${FROM.active}) n`,
  `INSERT INTO ff_grant (claim_no, claim_id, acquired_at_ms, look_at_ms, lease_ms, worker_id, worker_instance_id, execution_ids)
   SELECT n / ${CLAIMED_TOGETHER}, gen_random_uuid(), 0, 0, 1000, 'w', 'w-1', array_agg(${ID})
   FROM generate_series(${FROM.active} + 1, ${FROM.suspended}) n GROUP BY 1`,
  `INSERT INTO ff_suspension (execution_id, suspended_at_ms, lease_epoch, attempt_index, partition_key, waits)
   SELECT ${ID}, 0, 0, 0, 0, '[]' FROM generate_series(${FROM.suspended} + 1, ${FROM.parents}) n`,
  // All waiting parents, and several times as many whose wait is over.
  `INSERT INTO ff_child_wait SELECT ${ID}, CASE WHEN n > ${FROM.parents} THEN 0 ELSE 1 END, 0, 0, 1, '{}'
   FROM generate_series(${EXECUTIONS} - 8 * ${LIVE.parents} + 1, ${EXECUTIONS}) n`,
  `INSERT INTO ff_attempt_history (execution_id, lease_epoch, started_at_ms, ended_at_ms, attempt_index, outcome, partition_key)
   SELECT lpad('1', 32, '0')::uuid, n, n, n, n, 'failed', 0 FROM generate_series(1, ${ATTEMPTS}) n`,
];

const PARENT = '{fp:0}:00000000-0000-0000-0000-00000000000a';
const MUCH_TRIED = '{fp:0}:00000000-0000-0000-0000-000000000001';

/** What the planner believes about the tables, rightly or not. */
const BELIEFS = {
  'without statistics': [],
  'believed to be empty': [
    `UPDATE pg_class SET reltuples = 0, relpages = 1000 WHERE relnamespace = 'flowfabric'::regnamespace AND relkind = 'r'`,
  ],
  'with statistics': ['ANALYZE'],
} as const;

/** Every row matches these. */
const PLAIN: Record<string, ExecutionFilter> = {
  'all there are': {},
  'the time of submission': { createdFromMs: 1_000, createdBeforeMs: 5_000 },
  'a tag': { tags: { team: 'plans' } },
  'a tag and the time of submission': {
    tags: { team: 'plans' },
    createdFromMs: 8_500,
    createdBeforeMs: 9_000,
  },
  'a parent': { parentId: PARENT },
  'a family': { parentId: PARENT, descendants: true },
  'a parent and the time of submission': { parentId: PARENT, createdFromMs: 1_000, createdBeforeMs: 5_000 },
  'what runs': { states: ['active'] },
  'what is suspended': { states: ['suspended'] },
  'what waits': { states: ['waiting'] },
  'what waits in one lane': { states: ['waiting'], lane: 'default' },
  'what ended in one namespace': { states: ['completed'], namespace: 'space-1' },
  'what ended in a time': {
    states: ['completed'],
    namespace: 'space-1',
    endedFromMs: 1_000,
    endedBeforeMs: 5_000,
  },
};

/** So few rows match these that a page reads all it may. */
const SPARSE: Record<string, ExecutionFilter> = {
  'a rare kind': { kind: 'rare2' },
  'no such namespace': { namespace: 'nobody' },
  'a tag and a rare kind': { tags: { team: 'plans' }, kind: 'rare2' },
  'two tags': { tags: { team: 'plans', tier: 'gold' } },
  'a parent and a rare kind': { parentId: PARENT, kind: 'rare2' },
  'a family and a rare kind': { parentId: PARENT, descendants: true, kind: 'rare2' },
  'what waits in no such namespace': { states: ['waiting'], namespace: 'nobody' },
  'what waits in one lane and no such namespace': {
    states: ['waiting'],
    namespace: 'nobody',
    lane: 'default',
  },
  'what is delayed in no such namespace': { states: ['delayed'], namespace: 'nobody' },
  'what waits for children in no such namespace': { states: ['waiting_children'], namespace: 'nobody' },
  'what is suspended in no such namespace': { states: ['suspended'], namespace: 'nobody' },
  'what ended of a rare kind': { states: ['completed'], kind: 'rare2' },
  'what failed in a rare way': { states: ['completed'], failure: { category: 'rare' } },
};

let test: TestDatabase;

beforeAll(async () => {
  test = await vacuumedEmptyTables();
  for (const statement of FILLING) await test.query(statement);
}, patiently(120_000));
afterAll(() => test.drop());

/** Big tables that were read in full. */
function readWhole(plans: readonly RecordedPlan[]): string[] {
  return plans
    .flatMap(({ root }) => nodesOf(root))
    .filter((node) => node['Node Type'] === 'Seq Scan' && BIG_TABLES.includes(node['Relation Name'] ?? ''))
    .map((node) => node['Relation Name']!);
}

/** The number of routes has a fixed limit: reading all of them at once is a sensible choice. */
function withoutRoutes(node: PlanNode): PlanNode {
  const below = (node.Plans ?? []).filter((child) => child['Relation Name'] !== 'ff_route');
  return { ...node, Plans: below.map(withoutRoutes) };
}

function expectBounded(plans: readonly RecordedPlan[], most: { rows: number; buffers: number }): void {
  expect(compiled(plans)).toEqual([]);
  expect(readWhole(plans)).toEqual([]);
  const { rows, at } = mostRowsOf(plans.map((plan) => ({ ...plan, root: withoutRoutes(plan.root) })));
  expect(rows, `rows looked at by ${at}`).toBeLessThanOrEqual(most.rows);
  expect(buffersOf(plans), 'buffers').toBeLessThanOrEqual(most.buffers);
}

describe.each(Object.entries(BELIEFS))('on tables %s', (_, statements) => {
  let recorder: Recorder;
  let context: EngineContext;

  beforeAll(async () => {
    for (const statement of statements) await test.query(statement);
    recorder = await openRecorder(test, 'counted');
    context = { database: recorder.database } as EngineContext;
    // The first statements of a connection also read the catalog.
    await list(context);
  });
  afterAll(() => recorder.client.end());

  async function listed(filter: ExecutionFilter): Promise<{ page: ListPage; plans: RecordedPlan[] }> {
    let page: ListPage | undefined;
    const plans = await recorder.record(async () => {
      page = await list(context, { filter, limit: LIMIT });
    });
    return { page: page!, plans };
  }

  it.each(Object.entries(PLAIN))('a page by %s costs its rows', async (__, filter) => {
    const { page, plans } = await listed(filter);
    expect(page.executions).toHaveLength(LIMIT);
    expect(page.cursor).not.toBeNull();
    expectBounded(plans, { rows: ROWS_OF_A_PAGE, buffers: ROWS_OF_A_PAGE * BUFFERS_PER_ROW });
  });

  it('a page of ended executions across namespaces costs its rows in each', async () => {
    const { page, plans } = await listed({ states: ['completed'] });
    expect(page.executions).toHaveLength(LIMIT);
    const rows = NAMESPACES * ROWS_OF_A_PAGE;
    expectBounded(plans, { rows, buffers: rows * BUFFERS_PER_ROW });
  });

  it.each(Object.entries(SPARSE))('a page by %s reads no more than a page may', async (__, filter) => {
    const { page, plans } = await listed(filter);
    expect(page.executions).toEqual([]);
    expect(page.cursor).not.toBeNull();
    expectBounded(plans, { rows: ROWS_OF_A_WINDOW, buffers: LIMITS.listExamined * BUFFERS_PER_LOOK });
  });

  it('a page of attempts costs its rows', async () => {
    const plans = await recorder.record(async () => {
      const page = await listAttempts(context, MUCH_TRIED, { before: ATTEMPTS / 2, limit: LIMIT });
      expect(page.before).toBe(ATTEMPTS / 2 - LIMIT);
    });
    expectBounded(plans, { rows: LIMIT + 1, buffers: LIMIT * BUFFERS_PER_ROW });
  });
});
