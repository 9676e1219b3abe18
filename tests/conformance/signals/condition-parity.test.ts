/**
 * A condition is evaluated by the database and described by the model: on generated conditions and signals, both must
 * agree on which are met. The rows are written here, so that no signal finishes a wait.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LIMITS } from '../../../src/contract/limits.ts';
import type { CountedBy, Signal, SignalCondition } from '../../../src/contract/signals.ts';
import { conditionFault, isMet } from '../../../src/model/conditions.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { picks } from '../../setup/chance.ts';
import { testDatabase } from '../../setup/database.ts';

const SEED = 4_711;
const HISTORIES = 40;
const CONDITIONS_EACH = 60;
const MOST_SIGNALS = 12;
/** One more than exist: a condition may name a waitpoint that was never opened. */
const WAITPOINTS = ['a', 'b', 'c', 'never opened'];
/** Names that are equal only to themselves. */
const NAMES = ['yes', 'Yes', 'no', 'null', ''];
const SOURCES = [
  { type: 'user', identity: 'ann' },
  { type: 'user', identity: 'bob' },
  { type: 'service', identity: 'ann' },
  { type: 'user,ann', identity: '' },
];

type Pick = (below: number) => number;
type Said = Omit<Signal, 'payload' | 'acceptedAtMs'>;

let database: TestDatabase;

beforeAll(async () => {
  database = await testDatabase();
});

afterAll(() => database?.drop());

const oneOf = <Value>(pick: Pick, values: readonly Value[]): Value => values[pick(values.length)]!;
const several = <Value>(count: number, make: () => Value): Value[] => Array.from({ length: count }, make);

function someCondition(pick: Pick, depth: number): SignalCondition {
  if (depth < LIMITS.conditionDepth && pick(2) === 0) {
    const kind = oneOf(pick, ['all', 'any'] as const);
    return { kind, of: several(1 + pick(3), () => someCondition(pick, depth + 1)) };
  }
  // With repetitions: a waitpoint named twice counts once.
  const waitpoints = several(1 + pick(4), () => oneOf(pick, WAITPOINTS));
  const by = oneOf<CountedBy>(pick, ['signals', 'waitpoints', 'sources']);
  const n = 1 + pick(by === 'waitpoints' ? new Set(waitpoints).size : 4);
  const match = oneOf(pick, [undefined, undefined, 'yes', 'no', 'null']);
  return { kind: 'count', n, by, waitpoints, ...(match === undefined ? {} : { match }) };
}

function someSignal(pick: Pick): Said {
  return {
    signalId: randomUUID(),
    waitpoint: oneOf(pick, WAITPOINTS.slice(0, -1)),
    name: oneOf(pick, NAMES),
    source: oneOf(pick, SOURCES),
  };
}

/** Writes the signals of one execution, at current waitpoints or at those of an earlier run. */
async function write(executionId: string, signals: readonly Said[], retiredBy: number): Promise<void> {
  for (const name of WAITPOINTS.slice(0, -1)) {
    const waitpointId = randomUUID();
    const own = signals.filter(({ waitpoint }) => waitpoint === name);
    await database.query(
      `INSERT INTO ff_waitpoint (waitpoint_id, token_id, execution_id, created_at_ms, partition_key, name, retired_by)
       VALUES ($1, $1, $2, 0, 0, $3, $4)`,
      [waitpointId, executionId, name, retiredBy],
    );
    await database.query(
      `INSERT INTO ff_signal (execution_id, waitpoint_id, signal_id, accepted_at_ms, seq, partition_key, name, source_type,
         source_identity, effect, payload)
       SELECT $1, $2, (s ->> 'signalId')::uuid, 0, place, 0, s ->> 'name', s #>> '{source,type}', s #>> '{source,identity}',
         'buffered', 'null'
       FROM jsonb_array_elements($3) WITH ORDINALITY x(s, place)`,
      [executionId, waitpointId, JSON.stringify(own)],
    );
  }
}

async function metIn(executionId: string, conditions: readonly SignalCondition[]): Promise<boolean[]> {
  const found = await database.query<{ met: boolean }>(
    `SELECT ff_condition_met(c, $1) AS met FROM jsonb_array_elements($2) WITH ORDINALITY x(c, place) ORDER BY place`,
    [executionId, JSON.stringify(conditions)],
  );
  return found.rows.map(({ met }) => met);
}

it('the database and the model agree on which conditions are met', async () => {
  const pick = picks(SEED);
  const counts = { met: 0, unmet: 0 };
  for (let history = 0; history < HISTORIES; history += 1) {
    const executionId = randomUUID();
    const signals = several(pick(MOST_SIGNALS + 1), () => someSignal(pick));
    await write(executionId, signals, 0);
    // Signals of an earlier run no longer count.
    await write(
      executionId,
      several(MOST_SIGNALS, () => someSignal(pick)),
      1,
    );
    const conditions = several(CONDITIONS_EACH, () => someCondition(pick, 1));
    expect(
      conditions.map((condition) => conditionFault(condition)).filter((fault) => fault !== undefined),
    ).toEqual([]);
    const met = await metIn(executionId, conditions);
    conditions.forEach((condition, index) => {
      const expected = isMet(condition, signals);
      counts[expected ? 'met' : 'unmet'] += 1;
      expect(met[index], `${JSON.stringify({ condition, signals })}`).toBe(expected);
    });
  }
  // Both results occur often.
  const least = (HISTORIES * CONDITIONS_EACH) / 5;
  expect(Math.min(counts.met, counts.unmet)).toBeGreaterThan(least);
});

it('no signals meet nothing, and two signals count as two', async () => {
  const executionId = randomUUID();
  const condition: SignalCondition = { kind: 'count', n: 2, by: 'signals', waitpoints: ['a'] };
  expect(await metIn(executionId, [condition])).toEqual([false]);
  const said = { waitpoint: 'a', name: 'yes', source: SOURCES[0]! };
  await write(
    executionId,
    several(2, () => ({ ...said, signalId: randomUUID() })),
    0,
  );
  const bySource: SignalCondition = { ...condition, by: 'sources' };
  expect(await metIn(executionId, [condition, bySource])).toEqual([true, false]);
});
