/**
 * Every statement of every function, planned on tables in every state they can be in, with the functions' own settings.
 * A plan that grows with a table or with the square of a batch is refused.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { openRecorder, type RecordedPlan } from './plan-recorder.ts';
import { compiled, EXCEPTIONS, findingsOf, isExcepted, refusals, type LeadingColumns } from './plan-rules.ts';
import { leadingColumns, statementsOf, unseen } from './statements.ts';
import {
  emptiedTables,
  freshTables,
  fullTables,
  resetFunctionSettings,
  tableStats,
  vacuumedEmptyTables,
  type TableStats,
} from './table-states.ts';
import { walk } from './walk.ts';

interface State {
  name: string;
  make: () => Promise<TestDatabase>;
  is: (stats: TableStats) => boolean;
  /** Rows per call of the walk: few where the tables should stay almost empty. */
  each: number;
}

const STATES: readonly State[] = [
  { name: 'fresh', make: freshTables, is: ({ reltuples }) => reltuples === -1, each: 1 },
  {
    name: 'vacuumed while empty',
    make: vacuumedEmptyTables,
    is: ({ reltuples, relpages }) => reltuples === 0 && relpages === 0,
    each: 1,
  },
  {
    name: 'full',
    make: fullTables,
    is: ({ reltuples }) => reltuples > 0,
    each: 200,
  },
  {
    name: 'emptied and vacuumed without shrinking',
    make: emptiedTables,
    is: ({ reltuples, relpages }) => reltuples === 0 && relpages > 0,
    each: 200,
  },
];

const seen: RecordedPlan[] = [];
let leading: LeadingColumns = new Map();

describe.each(STATES)('on tables that are $name', (state) => {
  let test: TestDatabase;
  let plans: RecordedPlan[] = [];

  beforeAll(async () => {
    test = await state.make();
    leading = await leadingColumns(test);
    const stats = await tableStats(test);
    expect(stats.filter((row) => !state.is(row))).toEqual([]);
    const walker = await openRecorder(test, 'planned');
    const rival = await openRecorder(test, 'planned');
    const recorded = await walker.record(() => walk(walker, rival, state.each));
    plans = recorded.filter(({ within }) => within !== null);
    seen.push(...plans);
  });
  afterAll(() => test.drop());

  it('every statement of every function is seen', async () => {
    const statements = await statementsOf(test);
    expect(statements.length).toBeGreaterThan(40);
    expect(unseen(statements, plans)).toEqual([]);
  });

  it('no statement is planned in a way that grows with a table or with the square of a batch', () => {
    // What ff_read runs uses the default planner settings, and is checked by store-statements and lists.
    const planned = plans.filter(({ within }) => within !== 'ff_read');
    expect(refusals(planned, leading)).toEqual([]);
  });

  it('no statement is compiled', () => {
    expect(compiled(plans)).toEqual([]);
  });
});

describe('a function that carries planner settings', () => {
  it('never compiles: a disabled scan looks expensive enough for it', async () => {
    const test = await freshTables();
    const { rows } = await test.query(
      `SELECT proname FROM pg_proc WHERE pronamespace = $1::regnamespace AND proconfig @> '{enable_seqscan=off}'
       AND NOT proconfig @> '{jit=off}'`,
      [test.schema],
    );
    await test.drop();
    expect(rows).toEqual([]);
  });
});

describe('the exceptions', () => {
  it('are all needed', () => {
    const findings = seen.flatMap((plan) => findingsOf(plan, leading));
    const unused = EXCEPTIONS.filter(
      (exception) => !findings.some((found) => isExcepted(found, [exception])),
    );
    expect(unused).toEqual([]);
  });
});

describe('without the settings the functions carry', () => {
  it('the same statements are refused', async () => {
    const test = await vacuumedEmptyTables();
    try {
      await resetFunctionSettings(test);
      const walker = await openRecorder(test, 'planned');
      const rival = await openRecorder(test, 'planned');
      const plans = await walker.record(() => walk(walker, rival, 1));
      const found = refusals(plans, leading);
      expect(found.some((line) => /^ff_lock_leased .*Seq Scan on ff_execution/.test(line))).toBe(true);
      expect(found.some((line) => /^ff_claim .*Seq Scan on ff_ready/.test(line))).toBe(true);
    } finally {
      await test.drop();
    }
  });
});
