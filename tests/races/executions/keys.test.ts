/**
 * Races for a key: whoever submits by it meets whoever ends, claims, replays or forgets its execution, or submits by it
 * too. In every order the two are told what one of the two serial orders would tell them, and the key names the one open
 * execution. Without the locks of ff_give_keys the same races fail.
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RaceFailure } from '../../../src/testing/stepper.ts';
import type { Interleaving } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase, testDatabase } from '../../setup/database.ts';
import { arenaOn, claimAll, isBefore, saidTo, transaction, type Arena, type Scene } from '../arena.ts';
import { ask, INTERNED, type Call } from '../calls.ts';
import { endOfLog } from '../invariants.ts';

const PARTITION = 7;
const CLOCK_FILE = new URL('../../../sql/testing/clock.sql', import.meta.url);

/** One key, the execution it names, and two ids for those that submit by it. */
interface KeyScene extends Scene {
  key: string;
  kind: string;
  named: string;
  rivals: [string, string];
}

interface KeyedSubmit {
  id: string;
  ifExists: 'attach' | 'refuse' | 'replace';
  idempotencyKey?: string;
}

function submitCall({ key, kind }: Pick<KeyScene, 'key' | 'kind'>, submit: KeyedSubmit): Call {
  const { id, ifExists, idempotencyKey } = submit;
  const template = { route: 1, namespace: 'default', priority: 100, policy: {}, tags: {} };
  return {
    // The execution that was replaced is told of as well, as a line of its own.
    sql: `SELECT x.* FROM ff_submit(${INTERNED('$1')}, $2, $3, $4, '{1}', '{0}', '{null}', NULL, p_own_keys => $5, p_if_exists => $6,
      p_keys => $7, p_hashes => '{00}', p_windows => '{3600000}', p_patience_ms => 60000) s
      CROSS JOIN LATERAL (
        SELECT s.execution_id, s.outcome, s.route_id, NULL AS worker_instance_id
        UNION ALL SELECT s.existing_id, 'cancelled', NULL, s.worker_instance_id WHERE s.outcome = 'replaced') x`,
    params: [
      JSON.stringify([{ lane: 'default', kind, capabilities: [] }]),
      JSON.stringify([template]),
      [id],
      [PARTITION],
      [key],
      [ifExists],
      idempotencyKey === undefined ? null : [idempotencyKey],
    ],
  };
}

type State = 'free' | 'waiting' | 'leased' | 'ended';

function keyed(state: State): (arena: Arena) => Promise<KeyScene> {
  return async (arena) => {
    const [named, ...rivals] = Array.from({ length: 3 }, () => randomUUID()).toSorted();
    const scene = {
      key: randomUUID(),
      kind: randomUUID(),
      named: named!,
      rivals: rivals as [string, string],
    };
    const route = { ...scene, key: state === 'free' ? randomUUID() : scene.key };
    const { rows } = await (async () => {
      const call = submitCall(route, { id: named!, ifExists: 'attach' });
      return arena.through(call.sql, call.params);
    })();
    const whole: KeyScene = {
      ...scene,
      ids: state === 'free' ? rivals : [named!, ...rivals],
      routeId: Number(rows[0]!['route_id']),
      leases: [],
      logged: 0,
    };
    if (state === 'leased') whole.leases = await claimAll(arena, whole, 'w-1');
    if (state === 'ended') await ask(arena.through, arena.calls.cancel([{ id: named! }]));
    whole.logged = await endOfLog(arena.through);
    return whole;
  };
}

type Act = (arena: Arena) => (scene: KeyScene) => Call;

const submits =
  (rival: 0 | 1, ifExists: KeyedSubmit['ifExists'], idempotencyKey?: string): Act =>
  () =>
  (scene) =>
    submitCall(scene, {
      id: scene.rivals[rival],
      ifExists,
      // The idempotency key is of this scene.
      ...(idempotencyKey === undefined ? {} : { idempotencyKey: `${scene.key}/${idempotencyKey}` }),
    });
const completes: Act = (arena) => (scene) => arena.calls.complete(scene.leases);
const cancels: Act = (arena) => (scene) => arena.calls.cancel([{ id: scene.named }]);
const claims: Act = (arena) => (scene) => arena.calls.claim(scene.routeId, 10, 'w-2');
const replays: Act = (arena) => (scene) => arena.calls.replay([scene.named], 'failed_step');
const forgets: Act = (arena) => (scene) => arena.calls.forget([scene.named]);

interface KeyRace {
  given: State;
  a: Act;
  b: Act;
  /** What a and b are told when a comes first, and when b does; further ones are of an open meeting only. */
  told: [aFirst: string, bFirst: string, ...meeting: string[]];
}

const RACES: Record<string, KeyRace> = {
  'replace meets complete': {
    given: 'leased',
    a: submits(0, 'replace'),
    b: completes,
    told: ['cancelled, replaced | not_active', 'submitted | completed'],
  },
  'replace meets cancel': {
    given: 'leased',
    a: submits(0, 'replace'),
    b: cancels,
    told: ['cancelled, replaced | already_cancelled', 'submitted | cancelled'],
  },
  'replace meets claim': {
    given: 'waiting',
    a: submits(0, 'replace'),
    b: claims,
    // Of the new one when it is there; what is locked is passed by.
    told: ['cancelled, replaced | claimed', 'cancelled, replaced | claimed', 'cancelled, replaced | nothing'],
  },
  'replace meets replace': {
    given: 'leased',
    a: submits(0, 'replace'),
    b: submits(1, 'replace'),
    told: ['cancelled, replaced | cancelled, replaced', 'cancelled, replaced | cancelled, replaced'],
  },
  'replace meets attach': {
    given: 'waiting',
    a: submits(0, 'replace'),
    b: submits(1, 'attach'),
    told: ['cancelled, replaced | attached', 'cancelled, replaced | attached'],
  },
  'replace meets refuse': {
    given: 'waiting',
    a: submits(0, 'replace'),
    b: submits(1, 'refuse'),
    told: ['cancelled, replaced | refused', 'cancelled, replaced | refused'],
  },
  'replace meets itself, with one idempotency key': {
    given: 'waiting',
    a: submits(0, 'replace', 'once'),
    b: submits(1, 'replace', 'once'),
    told: ['cancelled, replaced | duplicate', 'duplicate | cancelled, replaced'],
  },
  'attach meets complete': {
    given: 'leased',
    a: submits(0, 'attach'),
    b: completes,
    told: ['attached | completed', 'submitted | completed'],
  },
  'two attach to a free key': {
    given: 'free',
    a: submits(0, 'attach'),
    b: submits(1, 'attach'),
    told: ['submitted | attached', 'attached | submitted'],
  },
  'two take the key of one that has ended': {
    given: 'ended',
    a: submits(0, 'attach'),
    b: submits(1, 'refuse'),
    told: ['submitted | refused', 'attached | submitted'],
  },
  'attach meets replay': {
    given: 'ended',
    a: submits(0, 'attach'),
    b: replays,
    told: ['submitted | key_taken', 'attached | replayed'],
  },
  'replace meets replay': {
    given: 'ended',
    a: submits(0, 'replace'),
    b: replays,
    told: ['submitted | key_taken', 'cancelled, replaced | replayed'],
  },
  'attach meets forget': {
    given: 'ended',
    a: submits(0, 'attach'),
    b: forgets,
    // Whoever forgets never waits.
    told: ['submitted | forgotten', 'submitted | forgotten', 'submitted | nothing'],
  },
};

/** The key names the one open execution; if none is open, one that was open. */
async function checkKey(arena: Arena, { key, ids }: KeyScene): Promise<void> {
  const { rows } = await arena.through(
    `SELECT count(*) FILTER (WHERE e.lifecycle_phase <> 'terminal')::int AS open,
            count(*) FILTER (WHERE e.lifecycle_phase <> 'terminal' AND e.execution_id = k.execution_id)::int AS named,
            bool_or(e.execution_id = k.execution_id) AS is_there
     FROM ff_execution e, ff_key k WHERE k.key = $1 AND e.execution_id = ANY ($2) AND e.traits & 2 <> 0`,
    [key, ids],
  );
  const { open, named, is_there: isThere } = rows[0]!;
  expect(open, 'open executions of the key').toBeLessThanOrEqual(1);
  expect(named, 'the open one is named').toBe(open);
  expect(isThere, 'the key names an execution').toBe(true);
}

function toldOf(outcome: Interleaving): string {
  const sorted = (words: string): string => words.split(', ').toSorted().join(', ');
  return ['a', 'b'].map((session) => sorted(saidTo(outcome, session))).join(' | ');
}

/** What may be told: by one order when the two did not meet, otherwise by either. */
function mayBeTold(outcome: Interleaving, [aFirst, bFirst, ...meeting]: KeyRace['told']): string[] {
  if (isBefore(outcome, 'a.COMMIT', 'b.call')) return [aFirst];
  if (isBefore(outcome, 'b.COMMIT', 'a.call')) return [bFirst];
  return [aFirst, bFirst, ...meeting];
}

function run(arena: Arena, { given, a, b, told }: KeyRace): Promise<Interleaving[]> {
  return arena.race({
    given: keyed(given),
    sessions: {
      a: transaction((scene) => a(arena)(scene as KeyScene)),
      b: transaction((scene) => b(arena)(scene as KeyScene)),
    },
    check: async (outcome, scene) => {
      expect(mayBeTold(outcome, told)).toContain(toldOf(outcome));
      await checkKey(arena, scene as KeyScene);
    },
  });
}

/** Both wait for the same execution, which a third is ending: the second must see what the first did to the key. */
function twoBehindAnEnd(arena: Arena): Promise<Interleaving[]> {
  const [a, b] = [submits(0, 'replace')(arena), submits(1, 'replace')(arena)];
  const ends = completes(arena);
  return arena.race({
    given: keyed('leased'),
    sessions: {
      a: transaction((scene) => a(scene as KeyScene)),
      b: transaction((scene) => b(scene as KeyScene)),
      c: transaction((scene) => ends(scene as KeyScene)),
    },
    permutations: [['c.call', 'a.call', 'b.call', 'c.COMMIT', 'a.COMMIT', 'b.COMMIT']],
    check: async (outcome, scene) => {
      expect(toldOf(outcome)).toBe('submitted | cancelled, replaced');
      expect(saidTo(outcome, 'c')).toBe('completed');
      await checkKey(arena, scene as KeyScene);
    },
  });
}

describe('in every order', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await testDatabase();
  });
  afterAll(() => database?.drop());

  it.each(Object.keys(RACES))('%s', async (name) => {
    expect(await run(arenaOn(database), RACES[name]!)).not.toHaveLength(0);
  });
});

describe('behind somebody who ends the execution', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await testDatabase();
  });
  afterAll(() => database?.drop());

  it('one replacement follows the other', async () => {
    await twoBehindAnEnd(arenaOn(database));
  });
});

describe('without a lock the races fail', () => {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await plainDatabase();
    await database.query(await readFile(CLOCK_FILE, 'utf8'));
  });
  afterAll(() => database?.drop());

  const named = (race: string) => (arena: Arena) => run(arena, RACES[race]!);

  /** Runs a race with a part of a function taken out. */
  async function failureWithout(
    functionName: string,
    part: RegExp,
    race: (arena: Arena) => Promise<unknown>,
  ): Promise<string> {
    const { rows } = await database.query<{ text: string }>(
      `SELECT pg_get_functiondef($1::text::regproc) AS text`,
      [functionName],
    );
    const { text } = rows[0]!;
    expect(text).toMatch(part);
    await database.query(text.replace(part, ''));
    try {
      await race(arenaOn(database));
      return 'the race passed';
    } catch (failure) {
      if (!(failure instanceof RaceFailure)) throw failure;
      return failure.message;
    } finally {
      await database.query(text);
    }
  }

  it.each([
    ['of the key', 'ff_give_keys', /FOR UPDATE(?=\) i)/, twoBehindAnEnd],
    ['of the one to be replaced', 'ff_lock_holders', /FOR UPDATE/, named('replace meets complete')],
    ['of the one that has ended', 'ff_lock_holders', /FOR KEY SHARE/, named('attach meets replay')],
  ] as const)('%s', async (_, functionName, part, race) => {
    expect(await failureWithout(functionName, part, race)).toMatch(
      /to include|open executions of the key|to be 'submitted|answers not kept/,
    );
  });
});
