/**
 * Races between event writers, sequencers and readers: whatever the order, a reader gets every committed event once,
 * without a gap, and those of one execution in the order they happened. Each race also runs on a naive implementation
 * and must find what that one loses.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { moveConsumerInside } from '../../../src/engine/feed/consumers.sql.ts';
import { nameTransaction } from '../../../src/engine/database/inside.ts';
import { runRace, stepValue, tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { Interleaving, StepLike, StepSession } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import {
  expectNoFailure,
  failureOf,
  lateCommit,
  olderWithHigherId,
  sameExecution,
  tailFromNow,
  twoSequencers,
} from './races.ts';
import { sequenceEvents } from '../../../src/engine/feed/events.sql.ts';
import { BY_POSITION, sequencedBy, storeOn, type LogReader } from './log-reader.ts';
import { BY_ID, BY_ID_BELOW_HORIZON, BY_TRANSACTION, NAIVE_FEED_FUNCTIONS } from './naive-functions.ts';
import { patiently } from '../../setup/patience.ts';

const LONG = { timeout: patiently(120_000) };

let database: TestDatabase;

beforeAll(async () => {
  database = await testDatabase();
  for (const text of NAIVE_FEED_FUNCTIONS) await database.query(text);
});

afterAll(() => database?.drop());

type Race = (database: TestDatabase, reader: LogReader) => Promise<Interleaving[]>;

interface Naive {
  title: string;
  race: Race;
  reader: LogReader;
  says: RegExp;
}

const RACES: [string, Race, number][] = [
  ['a transaction that commits late', lateCommit, 90],
  ['two transactions on one execution', sameExecution, 60],
  ['an older transaction that takes the higher id', olderWithHigherId, 60],
];

describe('a reader by position', () => {
  it.each(RACES)('gets everything once and in order: %s', LONG, async (_, race, orders) => {
    expect(await race(database, BY_POSITION)).toHaveLength(orders);
  });

  it(
    'that begins now gets what is committed later, including what was in flight, and nothing else',
    LONG,
    async () => {
      const outcomes = await tailFromNow(database, BY_POSITION);
      expect(tablesWaitedOn(outcomes)).toEqual(['ff_sequencer']);
      const waited = outcomes.filter((outcome) => outcome.waited.includes('tail.begins'));
      expect(waited.length, 'orders in which it waited').toBeGreaterThan(0);
    },
  );
});

const OF_READERS: Naive[] = [
  { title: 'by id loses what commits late', race: lateCommit, reader: BY_ID, says: /lost: / },
  {
    title: 'by id, up to the oldest transaction, loses what an older one has overtaken',
    race: olderWithHigherId,
    reader: BY_ID_BELOW_HORIZON,
    says: /lost: .* tags_changed young/,
  },
  {
    title: 'by transaction reorders what happened to an execution',
    race: sameExecution,
    reader: BY_TRANSACTION,
    says: /turned around: /,
  },
  {
    title: 'that begins after the highest id loses what was in flight',
    race: tailFromNow,
    reader: BY_ID,
    says: /is delivered: expected false to be true/,
  },
  {
    title: 'that begins without waiting for a rival gets what was committed earlier',
    race: tailFromNow,
    reader: { ...BY_POSITION, now: async (ask) => (await sequenceEvents(storeOn(ask), 'skip')).last },
    says: /is delivered: expected true to be false/,
  },
];

describe('a naive reader', () => {
  it.each(OF_READERS.map((naive) => [naive.title, naive] as const))(
    '%s',
    LONG,
    async (_, { race, reader, says }) => {
      expect((await failureOf(race(database, reader))).says).toMatch(says);
    },
  );
});

describe('two sequencers and a writer', () => {
  it('duplicate nothing, lose nothing and leave no gap, even when both had to wait', LONG, async () => {
    const outcomes = await twoSequencers(database, { sequence: 'ff_sequence', rival: 'wait' });
    expect(outcomes).toHaveLength(180);
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_sequencer']);
    const both = outcomes.filter(({ waited }) =>
      ['one', 'two'].every((name) => waited.join().includes(name)),
    );
    expect(both.length, 'orders in which both waited').toBeGreaterThan(0);
  });

  it('do not wait when told not to', LONG, async () => {
    const outcomes = await twoSequencers(database, { sequence: 'ff_sequence', rival: 'skip' });
    expect(outcomes.flatMap(({ waited }) => waited)).toEqual([]);
  });

  it.each([
    ['naive_sequence_before_lock', /doubled: /],
    ['naive_sequence_at_once', /23505 duplicate key value/],
  ])('on a naive variant assign the same position twice: %s', LONG, async (sequence, says) => {
    const failure = await failureOf(twoSequencers(database, { sequence, rival: 'wait' }));
    expect(failure.says).toMatch(says);
    expect(failure.outcome.waited.length, 'steps that waited in the failing order').toBeGreaterThan(0);
  });

  it('on a naive variant are harmless without a collision', async () => {
    const ask = (text: string, params?: unknown[]) => database.query(text, params);
    const start = await BY_POSITION.now(ask);
    for (const name of ['naive_sequence_before_lock', 'naive_sequence_at_once']) {
      expect(await sequencedBy(name).read(ask, start)).toEqual({ seen: [], to: start });
    }
  });
});

interface Place extends Record<string, unknown> {
  name: string;
}

type Move = (session: StepSession, place: Place, to: bigint) => Promise<boolean>;

const FROM = 5n;
const moveFrom: Move = async ({ query }, { name }, to) => {
  const { transaction } = await nameTransaction(query);
  return moveConsumerInside(query, storeOn(query), name, { from: FROM, to, transaction });
};
const moveAnyway: Move = async ({ query }, { name }, to) => {
  const { rowCount } = await query('UPDATE ff_consumer SET position = $2 WHERE name = $1', [
    name,
    String(to),
  ]);
  return rowCount === 1;
};

function mover(move: Move, to: bigint, end: 'COMMIT' | 'ROLLBACK' = 'COMMIT'): StepLike<Place>[] {
  const run = async (session: StepSession, place: Place): Promise<boolean> => {
    await session.query('BEGIN');
    return move(session, place, to);
  };
  return [{ name: 'move', run }, end];
}

function moversRace(move: Move, end: 'COMMIT' | 'ROLLBACK' = 'COMMIT'): Promise<Interleaving[]> {
  return runRace<Place>({
    connect: () => database.connect(),
    async setup() {
      const name = `consumer-${randomUUID()}`;
      await database.query(
        'INSERT INTO ff_consumer (name, position, moved_at_ms, held_until_ms) VALUES ($1, $2, 0, 0)',
        [name, String(FROM)],
      );
      return { name };
    },
    sessions: { a: mover(move, 6n, end), b: mover(move, 7n) },
    async check(outcome, { name }) {
      expectNoFailure(outcome);
      const [a, b] = [stepValue<boolean>(outcome, 'a.move'), stepValue<boolean>(outcome, 'b.move')];
      const { rows } = await database.query('SELECT position FROM ff_consumer WHERE name = $1', [name]);
      const hasMoved = { a: a && end === 'COMMIT', b };
      expect(Number(hasMoved.a) + Number(hasMoved.b), 'movers of one place').toBe(1);
      expect(rows).toEqual([{ position: hasMoved.a ? 6 : 7 }]);
    },
  });
}

describe("a consumer's position", () => {
  it('is moved by exactly one of two that found it there', async () => {
    const outcomes = await moversRace(moveFrom);
    expect(outcomes).toHaveLength(6);
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_consumer']);
  });

  it('is moved by the other one when the first rolls back', async () => {
    await moversRace(moveFrom, 'ROLLBACK');
  });

  it('is moved by both on the naive variant', async () => {
    expect((await failureOf(moversRace(moveAnyway))).says).toMatch(/movers of one place: expected 2 to be 1/);
  });
});
