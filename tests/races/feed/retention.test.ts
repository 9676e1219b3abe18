/**
 * Races of dropping the oldest part of the log: with writers that still write to it, with sequencers and with readers.
 * What is not old stays, whoever was first, and a reader learns what it missed.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { decodeCursor } from '../../../src/contract/cursor.ts';
import { isEngineError } from '../../../src/contract/errors.ts';
import { readEvents, sequenceEvents } from '../../../src/engine/feed/events.sql.ts';
import { dropEventSlot, openEventSlot } from '../../../src/engine/upkeep/retention.sql.ts';
import { DatabaseFeed } from '../../../src/engine/feed/database-feed.ts';
import { runRace, stepValue, tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { Interleaving, StepLike, StepSession } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import type { Ask } from '../calls.ts';
import { alone, expectNoFailure, failureOf, HOLDER, reads, tell, writer, type LogScene } from './races.ts';
import { BY_POSITION, EVERYTHING, storeOn } from './log-reader.ts';
import { NAIVE_FEED_FUNCTIONS } from './naive-functions.ts';
import { patiently } from '../../setup/patience.ts';

const LONG = { timeout: patiently(120_000) };
const SOON = { timeout: patiently(20_000), interval: 15 };
const RETENTION_MS = 7_000;
const OLD = 4;
const SLOTS = 8;

let database: TestDatabase;
const through: Ask = (text, params) => database.query(text, params);

beforeAll(async () => {
  database = await testDatabase();
  for (const text of NAIVE_FEED_FUNCTIONS) await database.query(text);
});

afterAll(() => database?.drop());

const sequence = (ask: Ask) => sequenceEvents(storeOn(ask), 'wait');
const open = (ask: Ask) => openEventSlot(storeOn(ask), RETENTION_MS);
const drop = (ask: Ask) => dropEventSlot(storeOn(ask), RETENTION_MS, 0);
const age = () => database.moveClock(2 * RETENTION_MS);

async function write(name: string, count = 1): Promise<void> {
  for (let index = 0; index < count; index += 1) await tell(name)(through, {} as LogScene);
}

async function dropAll(): Promise<void> {
  for (let tries = 0; tries < SLOTS && (await drop(through)); tries += 1);
}

/** The current slot contains old events, and nothing else is in the log. The reader has read them. */
async function oldOnly(): Promise<LogScene> {
  await sequence(through);
  await age();
  await dropAll();
  await open(through);
  await dropAll();
  await write('old', OLD);
  const { last } = await sequence(through);
  await age();
  return { ids: [], routeId: 0, leases: [], logged: 0, start: last, to: last, seen: [], happened: [] };
}

/** The old events are no longer in the current slot. */
async function oldBehind(): Promise<LogScene> {
  const scene = await oldOnly();
  expect(await open(through)).toBe(true);
  return scene;
}

type Steps = StepLike<LogScene>[];

const opens: StepLike<LogScene> = { name: 'open', run: ({ query }) => open(query) };
const drops: StepLike<LogScene> = { name: 'drop', run: ({ query }) => drop(query) };
const dropsBy = (name: string): StepLike<LogScene> => ({
  name: 'drop',
  run: async ({ query }) => {
    const { rows } = await query(`SELECT ${name}($1, 0) AS dropped`, [RETENTION_MS]);
    return rows[0].dropped as boolean;
  },
});
const within = (...steps: Steps): Steps => ['BEGIN', ...steps, 'COMMIT'];
const SEQUENCER: Steps = [{ name: 'sequence', run: ({ query }) => sequence(query) }];

function raceOn(
  setup: () => Promise<LogScene>,
  sessions: Record<string, Steps>,
  check: (outcome: Interleaving, scene: LogScene) => Promise<void>,
): Promise<Interleaving[]> {
  return runRace<LogScene>({
    connect: () => database.connect(),
    setup,
    sessions,
    async check(outcome, scene) {
      expectNoFailure(outcome);
      await check(outcome, scene);
    },
  });
}

const didDrop = (outcome: Interleaving): boolean => stepValue<boolean>(outcome, 'keeper.drop');

/** The reader gets exactly the events with these names after what it has read, without a gap. */
async function expectDelivered(scene: LogScene, names: string[]): Promise<void> {
  const { seen } = await BY_POSITION.read(through, scene.to);
  const all = [...scene.seen, ...seen];
  expect(all.map(({ label }) => label.replace(/-.*/, '')).toSorted(), 'delivered').toEqual(names);
  expect(all.map(({ position }) => position)).toEqual(
    names.map((_, index) => scene.start + BigInt(index) + 1n),
  );
}

async function expectOldKept(scene: LogScene, isKept: boolean): Promise<void> {
  const { floor } = await sequence(through);
  expect(floor).toBe(scene.start + (isKept ? 1n - BigInt(OLD) : 1n));
}

describe('a slot with a late event', () => {
  const lateWriter = (keeper: Steps, others: Record<string, Steps> = {}) =>
    raceOn(oldOnly, { keeper, writer: writer(tell('late')), ...others }, async (outcome, scene) => {
      await expectDelivered(scene, ['late']);
      await expectOldKept(scene, !didDrop(outcome));
    });

  it('is kept whether the event is in flight, committed or has a position', LONG, async () => {
    const outcomes = await lateWriter([opens, drops], { sequencer: SEQUENCER });
    expect(outcomes).toHaveLength(30);
    expect(new Set(outcomes.map(didDrop))).toEqual(new Set([true, false]));
    const waited = outcomes.filter((outcome) => outcome.waited.includes('keeper.drop'));
    expect(tablesWaitedOn(waited)).toContain('ff_event_pack');
  });

  it.each(['naive_drop_unlooked', 'naive_drop_before_lock'])(
    'loses it on the naive variant: %s',
    async (name) => {
      const failure = await failureOf(lateWriter([opens, dropsBy(name)]));
      expect(failure.says).toMatch(/delivered: expected \[\] to deeply equal \[ 'late' \]/);
    },
  );

  it('is kept by a single dropper at each of these stages, until the event is old itself', async () => {
    const scene = await oldOnly();
    const late = await database.connect();
    await late.query('BEGIN');
    await tell('late')((text, params) => late.query(text, params), scene);
    expect(await open(through)).toBe(true);
    expect(await drop(through), 'while the writer is under way').toBe(false);
    await late.query('COMMIT');
    await late.end();
    expect(await drop(through), 'while it has no position').toBe(false);
    await sequence(through);
    expect(await drop(through), 'while it is not old').toBe(false);
    await expectDelivered(scene, ['late']);
    await age();
    expect(await drop(through), 'when it is old').toBe(true);
    expect((await sequence(through)).floor).toBe(scene.start + 2n);
  });
});

describe('a writer that saw the slot before it was closed', () => {
  it('writes to it after it was truncated, and the event is read like any other', LONG, async () => {
    const keeper: Steps = within(opens, drops);
    const sessions = { keeper, writer: alone(tell('late')), reader: reads(BY_POSITION, 1) };
    const outcomes = await raceOn(oldOnly, sessions, async (_, scene) => {
      await expectDelivered(scene, ['late']);
    });
    const waited = outcomes.filter((outcome) => outcome.waited.includes('writer.write') && didDrop(outcome));
    expect(waited.length, 'orders in which it waited for the slot to be emptied').toBeGreaterThan(0);
    expect(tablesWaitedOn(waited)).toContain('ff_event_pack');
  });

  it('commits before, after or while the next one is opened, and nothing is lost', LONG, async () => {
    const sessions = {
      opener: within(opens),
      late: writer(tell('late')),
      reader: reads(BY_POSITION, 1),
    };
    const outcomes = await raceOn(oldOnly, sessions, (_, scene) => expectDelivered(scene, ['late']));
    expect(outcomes.every((outcome) => stepValue<boolean>(outcome, 'opener.open'))).toBe(true);
  });
});

describe('an old slot', () => {
  it('is truncated by exactly one of two that find it', LONG, async () => {
    const sessions = { keeper: within(drops), other: within(drops) };
    const outcomes = await raceOn(oldBehind, sessions, async (outcome, scene) => {
      const done = [didDrop(outcome), stepValue<boolean>(outcome, 'other.drop')];
      expect(done.filter(Boolean)).toHaveLength(1);
      await expectOldKept(scene, false);
    });
    expect(outcomes).toHaveLength(20);
  });
});

describe('sequencers', () => {
  const withSequencer = (dropping: StepLike<LogScene>) => {
    const sessions = {
      holder: HOLDER,
      sequencer: SEQUENCER,
      keeper: [dropping],
      writer: alone(tell('during')),
    };
    const setup = async (): Promise<LogScene> => {
      const scene = await oldBehind();
      await write('before');
      return scene;
    };
    return raceOn(setup, sessions, (_, scene) => expectDelivered(scene, ['before', 'during']));
  };

  async function deadlocks(): Promise<number> {
    const { rows } = await database.query(
      'SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()',
    );
    return rows[0]!['deadlocks'] as number;
  }

  it('do not deadlock with a dropped slot', LONG, async () => {
    const before = await deadlocks();
    // A dropper gives way silently in a deadlock, so the server is asked how many there were.
    const counted: StepLike<LogScene> = {
      name: 'drop',
      async run({ query }) {
        const dropped = await drop(query);
        await query('SELECT pg_stat_force_next_flush()');
        return dropped;
      },
    };
    const outcomes = await withSequencer(counted);
    expect(new Set(outcomes.map(didDrop))).toContain(true);
    expect(await deadlocks()).toBe(before);
    expect(tablesWaitedOn(outcomes)).toContain('ff_sequencer');
  });

  it('deadlock on the naive variant', LONG, async () => {
    const before = await deadlocks();
    const failure = await failureOf(withSequencer(dropsBy('naive_drop_sequencer_first')));
    expect(failure.says).toMatch(/deadlocks: expected 1 to be \+?0/);
    await expect.poll(deadlocks, SOON).toBeGreaterThan(before);
  });
});

type Item = { position: bigint } | { oldest: bigint };
type ReadPage = (query: Ask, after: bigint) => Promise<{ positions: bigint[]; to: bigint }>;

const NEW = 2;
const PAGES = 3;
const LIMIT = 2;

interface Reading extends LogScene {
  items: Item[];
}

const oldAndNew = async (): Promise<Reading> => {
  const scene = await oldBehind();
  await write('new', NEW);
  await sequence(through);
  const start = scene.start - BigInt(OLD);
  return { ...scene, start, to: start, items: [] };
};

const checkedPage: ReadPage = async (query, after) => {
  const feed = new DatabaseFeed(storeOn(query), () => () => undefined);
  const { events, to } = await feed.read(after, EVERYTHING, LIMIT);
  return { positions: events.map(({ position }) => position), to };
};
const trustingPage: ReadPage = async (query, after) => {
  const { rows, to } = await readEvents(storeOn(query), after, { examined: LIMIT, limit: LIMIT }, EVERYTHING);
  return { positions: rows.map((row) => BigInt(row.position)), to };
};

async function turnPage(page: ReadPage, query: Ask, reading: Reading): Promise<void> {
  try {
    const { positions, to } = await page(query, reading.to);
    reading.items.push(...positions.map((position) => ({ position })));
    reading.to = to;
  } catch (error) {
    if (!isEngineError(error) || error.code !== 'cursor_expired') throw error;
    const oldest = decodeCursor(error.oldest)!;
    reading.items.push({ oldest });
    reading.to = oldest;
  }
}

const raceWith = (page: ReadPage, got = new Set<string>()) =>
  raceOn(
    oldAndNew,
    {
      keeper: within(drops),
      reader: Array.from({ length: PAGES }, (_, index) => ({
        name: `page ${index + 1}`,
        run: ({ query }: StepSession, scene: LogScene) => turnPage(page, query, scene as Reading),
      })),
    },
    async (_, scene) => {
      const reading = scene as Reading;
      for (let pages = 0; pages < PAGES; pages += 1) await turnPage(page, through, reading);
      let at = reading.start;
      for (const item of reading.items) {
        const next = 'oldest' in item ? reading.start + BigInt(OLD) : at + 1n;
        at = 'oldest' in item ? item.oldest : item.position;
        expect(at, 'goes on at').toBe(next);
      }
      expect(at, 'ends at').toBe(reading.start + BigInt(OLD + NEW));
      for (const item of reading.items) got.add('oldest' in item ? 'oldest' : 'position');
    },
  );

describe('a reader between two pages', () => {
  it('gets every event, or learns what is no longer kept and gets the rest', LONG, async () => {
    const got = new Set<string>();
    const outcomes = await raceWith(checkedPage, got);
    expect(got).toEqual(new Set(['oldest', 'position']));
    expect(tablesWaitedOn(outcomes)).toContain('ff_event_pack');
    expect(outcomes.filter(({ waited }) => waited.join().includes('reader.page')).length).toBeGreaterThan(0);
  });

  it('that trusts what it finds misses events', LONG, async () => {
    expect((await failureOf(raceWith(trustingPage))).says).toMatch(/goes on at|ends at/);
  });
});
