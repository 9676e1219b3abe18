/**
 * Races of opening waitpoints and suspending: with each other, with a signal, and with the loss of the lease. A zombie
 * writes nothing, and a waitpoint exists once.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, leased, meet, transaction, type Arena, type Scene } from '../arena.ts';
import { ask, LEASE_MS } from '../calls.ts';
import { WAITPOINT } from './calls.ts';
import { deliverTo, inTurn, lifeOf, opened, suspendOn } from './races.ts';

const steps = transaction;

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

const create =
  (...names: string[]) =>
  ({ leases }: Scene) =>
    arena.calls.create(
      leases[0]!,
      names.map((name) => ({ name })),
    );

async function rowsOf(table: string, { ids }: Scene): Promise<Record<string, unknown>[]> {
  const found = await arena.through(`SELECT * FROM ${table} WHERE execution_id = ANY ($1)`, [ids]);
  return found.rows;
}

describe('the suspension of a zombie', () => {
  it('is refused when its lease is revoked first, and has written nothing', async () => {
    await meet(arena, {
      steps,
      given: leased(1),
      a: suspendOn(arena),
      b: ({ leases }) => arena.calls.revoke(leases),
      expected: inTurn(['suspended', 'no_active_lease'], ['lease_revoked', 'revoked']),
      check: async (scene) => {
        const { phase, suspensions } = await lifeOf(arena, scene);
        expect(suspensions).toBe(phase === 'suspended' ? 1 : 0);
        expect(await rowsOf('ff_waitpoint', scene)).toHaveLength(suspensions);
        expect(await rowsOf('ff_step', scene)).toHaveLength(suspensions);
      },
    });
  });

  it('is refused when its lease has expired, and the reaper skips it', async () => {
    await meet(arena, {
      steps,
      given: async (on) => {
        const scene = await leased(1)(on);
        await database.moveClock(LEASE_MS + 1);
        return scene;
      },
      a: suspendOn(arena),
      b: ({ leases }) => arena.calls.lapse(leases),
      expected: {
        ...inTurn(['lease_expired', 'lapsed'], ['lease_expired', 'lapsed']),
        'b meets a': { told: ['lease_expired', 'nothing'], waitsOn: null },
      },
      check: async (scene) => expect(await rowsOf('ff_waitpoint', scene)).toEqual([]),
    });
  });

  it('returns the same when it is called twice', async () => {
    await meet(arena, {
      steps,
      given: opened(),
      a: suspendOn(arena),
      b: suspendOn(arena),
      expected: inTurn(['suspended', 'already_suspended again'], ['already_suspended again', 'suspended']),
    });
  });
});

describe('a waitpoint that is being opened', () => {
  it('and a signal for it: unknown before, and kept after', async () => {
    await meet(arena, {
      steps,
      given: leased(1),
      a: create(WAITPOINT),
      b: deliverTo(arena),
      expected: inTurn(['created', 'buffered'], ['created', 'unknown']),
    });
  });

  it('by two at once, with others in another order, exists once', async () => {
    const both: [string, string] = ['created, created', 'created, created'];
    await meet(arena, {
      steps,
      given: leased(1),
      a: create('one', 'two'),
      b: create('two', 'one'),
      expected: inTurn(both, both),
      check: async (scene) => expect(await rowsOf('ff_waitpoint', scene)).toHaveLength(2),
    });
  });

  it('and the suspension of its execution: it belongs to the suspension or is refused', async () => {
    await meet(arena, {
      steps,
      given: leased(1),
      a: create(WAITPOINT),
      b: suspendOn(arena),
      expected: inTurn(['created', 'suspended'], ['not_active', 'suspended']),
      check: async (scene) =>
        expect(await rowsOf('ff_waitpoint', scene)).toMatchObject([{ step_name: 'told' }]),
    });
  });
});

it('a wait that has ended opens no waitpoint, whatever is requested later', async () => {
  const scene = await opened()(arena);
  await ask(arena.through, deliverTo(arena)(scene));
  expect(await ask(arena.through, suspendOn(arena)(scene))).toMatchObject([{ word: 'satisfied' }]);
  const elsewhere = suspendOn(arena, { waitpoints: [WAITPOINT, 'elsewhere'] });
  expect(await ask(arena.through, elsewhere(scene))).toMatchObject([{ word: 'satisfied' }]);
  expect(await rowsOf('ff_waitpoint', scene)).toMatchObject([{ name: WAITPOINT, close_reason: 'satisfied' }]);
});
