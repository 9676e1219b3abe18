/**
 * Children that change the document of their parent, beside each other and beside whatever happens to the parent: each
 * change is made once, in the commit that records its step, and none after the end of the parent.
 */
import { randomUUID } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RaceFailure, type Interleaving } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase, testDatabase } from '../../setup/database.ts';
import {
  arenaOn,
  claimAll,
  isBefore,
  leased,
  saidTo,
  transaction,
  type Arena,
  type Scene,
} from '../arena.ts';
import type { Call, Lease } from '../calls.ts';
import { endOfLog } from '../invariants.ts';
import { NAIVE_STREAMS } from './naive-functions.ts';
import { expectSound } from './races.ts';

const CLOCK_FILE = new URL('../../../sql/testing/clock.sql', import.meta.url);

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});
afterAll(() => database?.drop());

/** Two children and their parent, whose id is the first or the last of them: rows are locked in the order of ids. */
function family(place: 'first' | 'last') {
  return async (on: Arena): Promise<Scene> => {
    const scene = await leased(1)(on);
    const parent = scene.leases[0]!;
    const ids = Array.from({ length: 2 }, () => {
      const start = place === 'first' ? 'ffffffff-ffff-4fff-8fff' : '00000000-0000-4000-8000';
      return `${start}-${randomUUID().slice(-12)}`;
    }).toSorted();
    const call = on.calls.spawn(parent, { ids, routes: [{ lane: 'default', kind: randomUUID() }] });
    // The first spawn only marks the parent.
    await on.through(call.sql, call.params);
    const { rows } = await on.through(call.sql, call.params);
    const routeId = Number(rows[0]?.['route_id']);
    const children = await claimAll(on, { ...scene, ids, routeId }, 'w-2');
    const all = [...scene.ids, ...ids].toSorted();
    return { ...scene, ids: all, parent, children, logged: await endOfLog(on.through) };
  };
}

const parentOf = (scene: Scene): Lease => scene['parent'] as Lease;
const child =
  (on: Arena, which: 0 | 1) =>
  (scene: Scene): Call =>
    on.calls.recordForParent((scene['children'] as Lease[])[which]!, 'work');

async function doneIn(on: Arena, scene: Scene, attempt = 0): Promise<unknown> {
  const { rows } = await on.through(
    'SELECT document_json AS document FROM ff_stream_summary WHERE execution_id = $1 AND attempt_index = $2',
    [parentOf(scene).id, attempt],
  );
  return (rows[0]?.['document'] as { done?: number } | undefined)?.done;
}

function countTwo(on: Arena, place: 'first' | 'last'): Promise<Interleaving[]> {
  return on.race({
    given: family(place),
    sessions: { a: transaction(child(on, 0)), b: transaction(child(on, 1)) },
    check: async (outcome, scene) => {
      expect([saidTo(outcome, 'a'), saidTo(outcome, 'b')]).toEqual(['recorded', 'recorded']);
      expect(await doneIn(on, scene), 'what was counted').toBe(2);
      if (on === arena) await expectSound(on, scene);
    },
  });
}

describe.each(['first', 'last'] as const)('a parent that is the %s in the order of locks', (place) => {
  it('counts what two children did at the same time', async () => {
    await countTwo(arena, place);
  });

  it('counts a step once that is recorded twice, because its reply was lost', async () => {
    await arena.race({
      given: family(place),
      sessions: { a: transaction(child(arena, 0)), b: transaction(child(arena, 0)) },
      check: async (_, scene) => {
        expect(await doneIn(arena, scene)).toBe(1);
        await expectSound(arena, scene);
      },
    });
  });

  it('that ends is changed before its end, or not at all; and the step is recorded', async () => {
    await arena.race({
      given: family(place),
      sessions: {
        a: transaction(child(arena, 0)),
        b: transaction((scene) => arena.calls.complete([parentOf(scene)])),
      },
      check: async (outcome, scene) => {
        const isInTime = isBefore(outcome, 'a.call', 'b.call');
        expect([saidTo(outcome, 'a'), saidTo(outcome, 'b')]).toEqual(['recorded', 'completed']);
        expect(await doneIn(arena, scene)).toBe(isInTime ? 1 : undefined);
        await expectSound(arena, scene);
      },
    });
  });

  it('that fails and is tried again has the change in its next attempt, whichever comes first', async () => {
    await arena.race({
      given: family(place),
      sessions: {
        a: transaction(child(arena, 0)),
        b: transaction((scene) => arena.calls.retry([parentOf(scene)])),
      },
      check: async (_, scene) => {
        expect(await doneIn(arena, scene, 1)).toBe(1);
      },
    });
  });

  it('is not changed by a child whose lease was taken away', async () => {
    await arena.race({
      given: family(place),
      sessions: {
        a: transaction(child(arena, 0)),
        b: transaction((scene) => arena.calls.revoke([(scene['children'] as Lease[])[0]!])),
      },
      check: async (outcome, scene) => {
        const isInTime = isBefore(outcome, 'a.call', 'b.call');
        expect(saidTo(outcome, 'a')).toBe(isInTime ? 'recorded' : 'lease_revoked');
        expect(await doneIn(arena, scene)).toBe(isInTime ? 1 : undefined);
      },
    });
  });
});

it('a variant that counts on from what it read before the lock loses a child', async () => {
  const plain = await plainDatabase();
  try {
    await plain.query(await readFile(CLOCK_FILE, 'utf8'));
    for (const text of NAIVE_STREAMS) await plain.query(text);
    const naive = arenaOn(plain, { recordForParent: 'naive_record_for_parent' });
    const failure: unknown = await countTwo(naive, 'first').catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RaceFailure);
    expect((failure as RaceFailure).message).toMatch(/what was counted/);
  } finally {
    await plain.drop();
  }
});
