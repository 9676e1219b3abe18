/**
 * The model and its twin in SQL agree: which states are legal, how they read, what a transition results in, what
 * follows a failure, and the id of a lease. Compared over whole cross products, in a few set-wise queries.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  COMPLETION_EVENTS,
  EXECUTION_EVENTS,
  FLOW_EVENTS,
  LEASE_EVENTS,
  OPERATOR_EVENTS,
  SIGNAL_EVENTS,
  TAG_EVENTS,
  WORKER_EVENTS,
} from '../../../src/contract/events.ts';
import {
  ATTEMPT_STATES,
  BLOCKING_REASONS,
  ELIGIBILITY_STATES,
  LIFECYCLE_PHASES,
  OWNERSHIP_STATES,
  TERMINAL_OUTCOMES,
  type StateVector,
} from '../../../src/contract/states.ts';
import { leaseIdOf } from '../../../src/model/lease-id.ts';
import { publicState } from '../../../src/model/public-state.ts';
import { backoffMs, DEFAULT_BACKOFF, decideRetry } from '../../../src/model/retry.ts';
import type { StoredBackoff, StoredRetryPolicy } from '../../../src/model/retry.ts';
import { SITUATIONS, situationOf } from '../../../src/model/situations.ts';
import {
  leavesSuspension,
  streamCloseOf,
  TRANSITIONS,
  type Transition,
} from '../../../src/model/transitions.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { picks } from '../../setup/chance.ts';
import { plainDatabase, testDatabase } from '../../setup/database.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await plainDatabase();
});

afterAll(() => database?.drop());

const ENUMS: Record<string, readonly string[]> = {
  ff_lifecycle_phase: LIFECYCLE_PHASES,
  ff_ownership_state: OWNERSHIP_STATES,
  ff_eligibility_state: ELIGIBILITY_STATES,
  ff_blocking_reason: BLOCKING_REASONS,
  ff_terminal_outcome: TERMINAL_OUTCOMES,
  ff_attempt_state: ATTEMPT_STATES,
};

/** Every entry combined with every value of one more dimension. */
function times<Known, Value>(known: readonly Known[], values: readonly Value[]): [Known, Value][] {
  return known.flatMap((entry) => values.map((value): [Known, Value] => [entry, value]));
}

function everyVector(): StateVector[] {
  const owners = times(LIFECYCLE_PHASES, OWNERSHIP_STATES);
  const reasons = times(ELIGIBILITY_STATES, BLOCKING_REASONS);
  const attempts = times(TERMINAL_OUTCOMES, ATTEMPT_STATES);
  return times(times(owners, reasons), attempts).map(([[owner, reason], attempt]) => ({
    lifecyclePhase: owner[0],
    ownershipState: owner[1],
    eligibilityState: reason[0],
    blockingReason: reason[1],
    terminalOutcome: attempt[0],
    attemptState: attempt[1],
  }));
}

function text(vector: StateVector): string {
  return [
    vector.lifecyclePhase,
    vector.ownershipState,
    vector.eligibilityState,
    vector.blockingReason,
    vector.terminalOutcome,
    vector.attemptState,
  ].join('/');
}

it('the enum literals are those of the contract', async () => {
  const { rows } = await database.query<{ type: string; values: string[] }>(
    `SELECT enumtypid::regtype::text AS type, array_agg(enumlabel::text ORDER BY enumsortorder) AS values
     FROM pg_enum GROUP BY 1`,
  );
  expect(Object.fromEntries(rows.map(({ type, values }) => [type, values]))).toMatchObject(ENUMS);
});

describe('the legal combinations', () => {
  it('of the whole cross product are those of the model', async () => {
    const { rows } = await database.query<{ tried: number; legal: string[] }>(`
      SELECT count(*) AS tried,
             array_agg(concat_ws('/', p, o, e, b, t, a)) FILTER (WHERE ff_is_legal(p, o, e, b, t, a)) AS legal
      FROM unnest(enum_range(NULL::ff_lifecycle_phase)) p, unnest(enum_range(NULL::ff_ownership_state)) o,
           unnest(enum_range(NULL::ff_eligibility_state)) e, unnest(enum_range(NULL::ff_blocking_reason)) b,
           unnest(enum_range(NULL::ff_terminal_outcome)) t, unnest(enum_range(NULL::ff_attempt_state)) a`);
    const vectors = everyVector();
    const model = vectors.filter((vector) => situationOf(vector) !== undefined).map(text);
    expect(rows[0]!.tried).toBe(vectors.length);
    expect(model.length).toBeGreaterThan(Object.keys(SITUATIONS).length);
    expect(rows[0]!.legal.toSorted()).toEqual(model.toSorted());
  });
});

describe('the public state', () => {
  it('is derived as in the model, for every combination and every moment', async () => {
    const NOW = 1_000;
    const { rows } = await database.query<Record<string, string> & { at: number | null }>(
      `SELECT p::text, e::text, t::text, at, ff_public_state(p, e, t, at, $1) AS state
       FROM unnest(enum_range(NULL::ff_lifecycle_phase)) p, unnest(enum_range(NULL::ff_eligibility_state)) e,
            unnest(enum_range(NULL::ff_terminal_outcome)) t, unnest(ARRAY[NULL, 0, 999, 1000, 1001]::bigint[]) at`,
      [NOW],
    );
    expect(rows).toHaveLength(
      LIFECYCLE_PHASES.length * ELIGIBILITY_STATES.length * TERMINAL_OUTCOMES.length * 5,
    );
    const differing = rows.filter(({ p, e, t, at, state }) => {
      const vector = { lifecyclePhase: p, eligibilityState: e, terminalOutcome: t } as unknown as StateVector;
      return publicState(vector, at, NOW) !== state;
    });
    expect(differing).toEqual([]);
  });
});

describe('the transition table', () => {
  it('has the rows of the model, with the vectors of their situations', async () => {
    const { rows } = await database.query('SELECT * FROM ff_transition ORDER BY transition');
    const model = Object.entries<Transition>(TRANSITIONS).map(([transition, row]) => {
      const to = SITUATIONS[row.to];
      return {
        transition,
        lifecycle_phase: to.lifecyclePhase,
        ownership_state: to.ownershipState,
        eligibility_state: to.eligibilityState,
        blocking_reason: row.blockingReason ?? to.blockingReasons[0],
        terminal_outcome: to.terminalOutcome,
        attempt_state: row.attemptState,
        attempt_outcome: row.attemptOutcome,
        lease_event: row.leaseEvent,
        operator_event: row.operatorEvent,
        signal_event: row.signalEvent,
        execution_event: row.executionEvent,
        leaves_suspension: leavesSuspension(row),
        stream_close: streamCloseOf(row),
        epoch_step: row.epochStep,
        attempt_step: row.attemptStep,
        retry_step: row.retryStep,
        reclaim_step: row.reclaimStep,
        replay_step: row.replayStep,
        run_step: row.runStep,
      };
    });
    expect(rows).toEqual(model.toSorted((a, b) => (a.transition < b.transition ? -1 : 1)));
  });
});

describe('the events of the log', () => {
  it('are those of the contract', async () => {
    const known: Record<string, readonly string[]> = {
      lease: LEASE_EVENTS,
      completion: COMPLETION_EVENTS,
      signal: SIGNAL_EVENTS,
      operator: OPERATOR_EVENTS,
      tag: TAG_EVENTS,
      flow: FLOW_EVENTS,
      worker: WORKER_EVENTS,
      execution: EXECUTION_EVENTS,
    };
    const types = [...new Set(Object.values(known).flat()), 'toString', ''];
    // Only test schemas check them.
    const asserted = await testDatabase();
    const { rows } = await asserted.query<{ family: string; types: string[]; packed: string[] }>(
      `SELECT f::text AS family, array_agg(t) FILTER (WHERE ff_is_known_event(f, 1, t, NULL)) AS types,
              array_agg(t) FILTER (WHERE ff_is_known_event(f, 2, NULL, ARRAY[t, t])) AS packed
       FROM unnest(enum_range(NULL::ff_event_family)) f, unnest($1::text[]) t GROUP BY 1`,
      [types],
    );
    await asserted.drop();
    const taken = Object.fromEntries(rows.map((row) => [row.family, row.types.toSorted()]));
    const sorted = Object.entries(known).map(([name, all]) => [name, all.toSorted()]);
    expect(taken).toEqual(Object.fromEntries(sorted));
    expect(rows.map(({ packed }) => packed)).toEqual(rows.map((row) => row.types));
  });
});

const exponential = (initial_delay_ms: number, max_delay_ms: number, multiplier: number, jitter = false) =>
  ({ type: 'exponential', initial_delay_ms, max_delay_ms, multiplier, jitter }) as const;

const BACKOFFS: StoredBackoff[] = [
  DEFAULT_BACKOFF,
  { ...DEFAULT_BACKOFF, jitter: true } as StoredBackoff,
  { type: 'fixed', delay_ms: 0 },
  { type: 'fixed', delay_ms: 315_360_000_000 },
  exponential(0, 0, 2),
  exponential(0, 1_000, 1_000, true),
  exponential(1, 315_360_000_000, 1_000),
  exponential(100, 1_000, 3),
  exponential(100, 100, 1),
  exponential(100, 60_000, 1),
  exponential(1_000, 600_000, 1.5),
  exponential(1_000, 600_000, 1.1, true),
  exponential(7, 86_400_000, 1.01),
  exponential(315_360_000_000, 315_360_000_000, 1_000, true),
];
const RETRIES = [...Array.from({ length: 70 }, (_, index) => index), 1_000, 1_000_000];
const DRAWS = [0, 0.25, 0.5, 0.999_999];

describe('the delay before a retry', () => {
  it('is that of the model, for every backoff and any number of retries', async () => {
    const { rows } = await database.query<{ b: number; retries: number; draw: number; ms: number }>(
      `SELECT b::integer, retries, draw, ff_backoff_ms(backoff, retries, draw) AS ms
       FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY x(backoff, b), unnest($2::integer[]) retries,
            unnest($3::double precision[]) draw`,
      [JSON.stringify(BACKOFFS), RETRIES, DRAWS],
    );
    expect(rows).toHaveLength(BACKOFFS.length * RETRIES.length * DRAWS.length);
    const differing = rows.filter(
      ({ b, retries, draw, ms }) => backoffMs(BACKOFFS[b - 1]!, retries, draw) !== ms,
    );
    expect(differing).toEqual([]);
  });

  it('of a stored backoff without any settings is the default', async () => {
    const { rows } = await database.query<{ ms: number; none: number }>(
      `SELECT ff_backoff_ms('{"type": "exponential"}', retries, 0) AS ms, ff_backoff_ms(NULL, retries, 0) AS none
       FROM generate_series(0, 9) retries`,
    );
    const model = rows.map((_, retries) => backoffMs(DEFAULT_BACKOFF, retries, 0));
    expect(rows.map(({ ms }) => ms)).toEqual(model);
    expect(rows.map(({ none }) => none)).toEqual(model);
  });
});

const POLICIES: (StoredRetryPolicy | null)[] = [
  null,
  { max_retries: 0 },
  { max_retries: 1 },
  { max_retries: 3, retryable_categories: [] },
  { max_retries: 3, retryable_categories: ['timeout'] },
  { max_retries: 3, retryable_categories: ['timeout', 'ünï "quoted"', 'a.b'] },
  { max_retries: 1_000_000 },
];
const CATEGORIES = ['timeout', 'transient', 'TIMEOUT', 'ünï "quoted"', 'a.b', 'a', '{}'];

describe('whether a failure is retried', () => {
  it('is decided as in the model, for every policy, count and category', async () => {
    const { rows } = await database.query<{ p: number; retries: number; category: string; again: boolean }>(
      `SELECT p::integer, retries, category, ff_may_retry(nullif(policy, 'null'::jsonb), retries, category) AS again
       FROM jsonb_array_elements($1::jsonb) WITH ORDINALITY x(policy, p), unnest($2::integer[]) retries,
            unnest($3::text[]) category`,
      [JSON.stringify(POLICIES), [0, 1, 2, 3, 4, 999_999, 1_000_000], CATEGORIES],
    );
    expect(rows).toHaveLength(POLICIES.length * 7 * CATEGORIES.length);
    const differing = rows.filter(({ p, retries, category, again }) => {
      const failure = { retryCount: retries, category, terminal: false, retryAfterMs: null };
      return decideRetry(POLICIES[p - 1] ?? undefined, failure, 0).retry !== again;
    });
    expect(differing).toEqual([]);
  });
});

/** Around the ends of the digits that an id has room for, and far beyond them. */
const EPOCHS = [0, 1, 2, 255, 2 ** 31 - 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, 2 ** 40, 2 ** 53 - 1];
const UUIDS = ['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'];

function randomUuids(count: number): string[] {
  const pick = picks(20_265);
  const digits = (length: number) => Array.from({ length }, () => pick(16).toString(16)).join('');
  return Array.from({ length: count }, () => [8, 4, 4, 4, 12].map(digits).join('-'));
}

describe('the id of a lease', () => {
  it('is that of the model, for any execution and any epoch', async () => {
    const pick = picks(4_711);
    const epochs = [...EPOCHS, ...Array.from({ length: 30 }, (_, bits) => pick(2 ** (bits + 24)))];
    const uuids = [...UUIDS, ...randomUuids(200)];
    const { rows } = await database.query<{ uuid: string; epoch: number; id: string }>(
      `SELECT uuid, epoch, ff_lease_id(uuid, epoch) AS id FROM unnest($1::uuid[]) uuid, unnest($2::bigint[]) epoch`,
      [uuids, epochs],
    );
    expect(rows).toHaveLength(uuids.length * epochs.length);
    expect(rows.filter(({ uuid, epoch, id }) => leaseIdOf(uuid, epoch) !== id)).toEqual([]);
  });
});
