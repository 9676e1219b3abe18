/**
 * Races on the event log that are known to break simpler ways of reading and numbering it. The tests run each on the
 * engine's implementation, where it must pass, and on a naive one, where it must fail.
 */
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import {
  RaceFailure,
  runRace,
  type Interleaving,
  type StepLike,
  type StepSession,
} from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { arenaOn, submitted, type Scene } from '../arena.ts';
import { ask, type Ask } from '../calls.ts';
import { BY_POSITION, faultsOf, writtenAfter, type LogReader, type Seen } from './log-reader.ts';

export interface LogScene extends Scene {
  /** Where the reader began, and how far it has read. */
  start: bigint;
  to: bigint;
  seen: Seen[];
  /** What happened, in order. */
  happened: string[];
}

type Steps = StepLike<LogScene>[];
type Write = (query: Ask, scene: LogScene) => Promise<unknown>;

const PARTITION = 7;

/** A worker that registers: an event of no execution. */
export const tell =
  (name: string): Write =>
  (query) =>
    query(
      `SELECT ff_tell('worker', '{registered}', ARRAY[$1], ARRAY[jsonb_build_object('worker_id', $1::text)])`,
      [`${name}-${randomUUID()}`],
    );

const tag =
  (index: number, value: string): Write =>
  (query, { ids }) =>
    query(`SELECT * FROM ff_set_tags($1, $2, jsonb_build_object('step', $3::text), '{}', 10, 'somebody')`, [
      ids[index],
      PARTITION,
      value,
    ]);

/** Begins, and takes its transaction id before it writes. */
const begin: StepLike<LogScene> = {
  name: 'begin',
  run: ({ query }) => query('BEGIN; SELECT pg_current_xact_id()'),
};

/** Writes and commits in two steps. */
export function writer(write: Write): Steps {
  return [
    {
      name: 'write',
      async run({ query }, scene) {
        await query('BEGIN');
        await write(query, scene);
      },
    },
    committing,
  ];
}

const committing: StepLike<LogScene> = {
  name: 'COMMIT',
  async run({ name, query }, { happened }) {
    happened.push(`${name} commits`);
    await query('COMMIT');
    happened.push(`${name} committed`);
  },
};

/** One statement that commits by itself. */
export function alone(write: Write): Steps {
  return [
    {
      name: 'write',
      async run({ name, query }, scene) {
        scene.happened.push(`${name} commits`);
        await write(query, scene);
        scene.happened.push(`${name} committed`);
      },
    },
  ];
}

export function reads(reader: LogReader, times: number): Steps {
  return Array.from({ length: times }, (_, index) => ({
    name: `read ${index + 1}`,
    run: ({ query }, scene) => readOn(reader, query, scene),
  }));
}

async function readOn(reader: LogReader, query: Ask, scene: LogScene): Promise<void> {
  const { seen, to } = await reader.read(query, scene.to);
  scene.seen.push(...seen);
  scene.to = to;
}

/** Holds the sequencer's lock, so that rivals are seen to wait for it. */
export const HOLDER: Steps = [
  { name: 'hold', run: ({ query }) => query('BEGIN; SELECT 1 FROM ff_sequencer FOR UPDATE') },
  'COMMIT',
];

interface LogRace {
  database: TestDatabase;
  reader: LogReader;
  sessions: Record<string, Steps>;
  /** Committed after the reader's start, before the race. */
  before?: Write;
  check?: (outcome: Interleaving, scene: LogScene) => Promise<void> | void;
}

export function expectNoFailure(outcome: Interleaving): void {
  const failures = Object.entries(outcome.results).flatMap(([step, result]) =>
    result.ok ? [] : [`${step}: ${result.code ?? ''} ${result.message}`],
  );
  expect(outcome.deadlocks, 'deadlocks').toBe(0);
  expect(failures.join('\n'), 'failed steps').toBe('');
  expect(outcome.rolledBack, 'transactions left open').toEqual([]);
}

/** The failure of a race, with its full message. */
export async function failureOf(race: Promise<unknown>): Promise<{ says: string; outcome: Interleaving }> {
  const failure: unknown = await race.catch((error: unknown) => error);
  if (!(failure instanceof RaceFailure)) throw new Error('the race passed', { cause: failure });
  const cause = failure.cause as Error & { actual?: unknown };
  return { says: `${failure.message}\n${String(cause.actual)}`, outcome: failure.outcome };
}

/** Runs every order of the steps; after each, the reader reads once more and must have got everything once. */
function logRace({ database, reader, sessions, before, check }: LogRace): Promise<Interleaving[]> {
  const arena = arenaOn(database);
  const through: Ask = (text, params) => database.query(text, params);
  return runRace<LogScene>({
    connect: () => database.connect(),
    async setup() {
      // Events that another permutation left without a position do not belong to this one.
      await BY_POSITION.now(through);
      const scene = await submitted(2)(arena);
      const start = await reader.now(through);
      const placed: LogScene = { ...scene, start, to: start, seen: [], happened: [] };
      await before?.(through, placed);
      return placed;
    },
    sessions,
    async check(outcome, scene) {
      expectNoFailure(outcome);
      await readOn(reader, through, scene);
      await (check ?? expectAll(reader, through))(outcome, scene);
    },
  });
}

function expectAll(reader: LogReader, through: Ask) {
  return async (_: Interleaving, scene: LogScene): Promise<void> => {
    const written = await writtenAfter(through, scene.logged);
    expect(faultsOf(reader, scene.start, scene.seen, written)).toBe('');
  };
}

/** One writer commits while the other is still open, and the reader reads at any moment. */
export function lateCommit(database: TestDatabase, reader: LogReader): Promise<Interleaving[]> {
  const { calls } = arenaOn(database);
  const claim: Write = (query, { routeId }) => ask(query, calls.claim(routeId, 1, 'w-1'));
  const sessions = { claimer: writer(claim), teller: writer(tell('w')), reader: reads(reader, 2) };
  return logRace({ database, reader, sessions });
}

/** Two writers change one execution; the one that waits may have begun first. */
export function sameExecution(database: TestDatabase, reader: LogReader): Promise<Interleaving[]> {
  const late: Write = async (query, scene) => {
    await tag(0, 'late')(query, scene);
    await tag(0, 'later')(query, scene);
  };
  const sessions = {
    old: [
      begin,
      { name: 'write', run: ({ query }: StepSession, scene: LogScene) => late(query, scene) },
      committing,
    ],
    young: writer(tag(0, 'early')),
    reader: reads(reader, 1),
  };
  return logRace({ database, reader, sessions });
}

/** The older transaction takes the higher id and commits first. */
export function olderWithHigherId(database: TestDatabase, reader: LogReader): Promise<Interleaving[]> {
  const write: StepLike<LogScene> = { name: 'write', run: ({ query }, scene) => tell('old')(query, scene) };
  const sessions = {
    old: [begin, write, committing],
    young: writer(tag(0, 'young')),
    reader: reads(reader, 1),
  };
  return logRace({ database, reader, sessions });
}

/** Two sequencers wait for a third, and a writer commits before, between or after them. */
export function twoSequencers(
  database: TestDatabase,
  { sequence, rival }: { sequence: string; rival: 'wait' | 'skip' },
): Promise<Interleaving[]> {
  const stamp: Steps = [`SELECT * FROM ${sequence}(${rival === 'wait'}, NULL)`];
  const writing = rival === 'wait' ? writer(tag(0, 'during')) : alone(tag(0, 'during'));
  const sessions = { holder: HOLDER, one: stamp, two: stamp, writer: writing };
  return logRace({ database, reader: BY_POSITION, before: tell('before'), sessions });
}

/** What a reader that begins "now" gets, while one event is committed, one is in flight and one is still to come. */
export function tailFromNow(database: TestDatabase, reader: LogReader): Promise<Interleaving[]> {
  const begins: StepLike<LogScene> = {
    name: 'begins',
    async run({ query }, scene) {
      scene.happened.push('tail begins');
      scene.to = await reader.now(query);
      scene.happened.push('tail began');
      scene.seen = [];
    },
  };
  const sessions = {
    flying: writer(tag(0, 'flying')),
    other: alone(tell('other')),
    holder: HOLDER,
    tail: [begins],
  };
  const check = (_: Interleaving, { ids, seen, happened }: LogScene): void => {
    const isBefore = (one: string, two: string) => happened.indexOf(one) < happened.indexOf(two);
    const got = {
      before: seen.some(({ label }) => label.startsWith('before-')),
      flying: seen.some(({ subject }) => subject === ids[0]),
      other: seen.some(({ label }) => label.startsWith('other-')),
    };
    expect(got.before, 'what was committed before is delivered').toBe(false);
    for (const name of ['flying', 'other'] as const) {
      if (isBefore(`${name} committed`, 'tail begins')) expect(got[name], `${name} is delivered`).toBe(false);
      if (isBefore('tail began', `${name} commits`)) expect(got[name], `${name} is delivered`).toBe(true);
    }
  };
  return logRace({ database, reader, before: tell('before'), sessions, check });
}
