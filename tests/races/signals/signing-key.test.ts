/**
 * Races of signing keys: whoever creates, replaces or ends one meanwhile, exactly one signs; and a signal whose key is
 * ended while it waits is refused.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { arenaOn, isBefore, meet, saidTo, transaction, type Arena, type Scene } from '../arena.ts';
import { ask } from '../calls.ts';
import { endOfLog } from '../invariants.ts';
import { inTurn, opened } from './races.ts';

const steps = transaction;

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

/** Only these keys, created one after the other: the last one signs. */
const keys =
  (...kids: string[]) =>
  async (on: Arena): Promise<Scene> => {
    await on.through('DELETE FROM ff_signing_key');
    for (const kid of kids) await ask(on.through, on.calls.rotateKey(kid));
    return { ids: [], leases: [], routeId: 0, logged: await endOfLog(on.through) };
  };

const rotate = (kid: string) => () => arena.calls.rotateKey(kid);
const current = (kid: string) => () => arena.calls.currentKey(kid);
/** The same, and the last one has signed. */
const used =
  (...kids: string[]) =>
  async (on: Arena): Promise<Scene> => {
    const scene = await keys(...kids)(on);
    await ask(on.through, on.calls.currentKey('nobody’s'));
    return scene;
  };

/** A caller that got a key to sign with issued tokens of it, valid until they expire; only such keys have a time. */
async function expectGood(...kids: string[]): Promise<void> {
  const found = await arena.through(
    `SELECT kid FROM ff_signing_key
     WHERE tokens_until_ms > created_at_ms AND coalesce(verify_until_ms >= tokens_until_ms, true) ORDER BY kid`,
    [],
  );
  expect(found.rows.map((row) => row.kid)).toEqual(kids);
}

async function expectSigning(kids: string[], others: number): Promise<void> {
  const found = await arena.through(
    'SELECT kid, verify_until_ms AS until, revoked_at_ms AS revoked FROM ff_signing_key',
  );
  const signing = found.rows
    .filter((row) => row.until === null && row.revoked === null)
    .map((row) => row.kid);
  expect(signing).toHaveLength(1);
  expect(kids).toContain(signing[0]);
  expect(found.rows).toHaveLength(1 + others);
}

describe('a rotation', () => {
  it('and another: both keys are created, the later signs, and each has replaced the one before', async () => {
    await meet(arena, {
      steps,
      given: keys('old'),
      a: rotate('a'),
      b: rotate('b'),
      expected: inTurn(['old', 'a'], ['b', 'old'], 'ff_signing_key'),
      check: () => expectSigning(['a', 'b'], 2),
    });
  });

  it('and another, without an earlier key: the later replaces the first', async () => {
    await meet(arena, {
      steps,
      given: keys(),
      a: rotate('a'),
      b: rotate('b'),
      expected: inTurn(['none', 'a'], ['b', 'none'], 'ff_signing_key'),
      check: () => expectSigning(['a', 'b'], 1),
    });
  });

  it('and the first use of a key: whichever comes second uses or replaces it', async () => {
    await meet(arena, {
      steps,
      given: keys(),
      a: rotate('a'),
      b: current('b'),
      expected: inTurn(['none', 'a'], ['b', 'b'], 'ff_signing_key'),
      check: () =>
        expectSigning(['a'], 0).then(
          () => expectGood('a'),
          () => expectSigning(['a'], 1).then(() => expectGood('b')),
        ),
    });
  });

  it('and the first use of the previous key: returns the one that signs next, or the old one stays valid', async () => {
    await meet(arena, {
      steps,
      given: keys('old'),
      a: rotate('a'),
      b: current('b'),
      expected: inTurn(['old', 'a'], ['old', 'old'], 'ff_signing_key'),
      check: async () => {
        await expectSigning(['a'], 1);
        await expectGood('a').catch(() => expectGood('old'));
      },
    });
  });

  it('and a later use of it: it is returned until the rotation is committed, and stays valid after', async () => {
    await meet(arena, {
      steps,
      given: used('old'),
      a: rotate('a'),
      b: current('b'),
      expected: {
        ...inTurn(['old', 'a'], ['old', 'old'], null),
        'b meets a': { told: ['old', 'old'], waitsOn: null },
      },
      check: async () => {
        await expectSigning(['a'], 1);
        await expectGood('old').catch(() => expectGood('a', 'old'));
      },
    });
  });

  it('and a revocation of the key it replaces: the signing key cannot be revoked', async () => {
    await meet(arena, {
      steps,
      given: keys('old'),
      a: rotate('a'),
      b: () => arena.calls.revokeKey('old'),
      expected: inTurn(['old', 'revoked'], ['old', 'is_current'], 'ff_signing_key'),
      check: () => expectSigning(['a'], 1),
    });
  });

  it('with the name of an existing key fails and changes nothing', async () => {
    await keys('old', 'new')(arena);
    await expect(ask(arena.through, arena.calls.rotateKey('old'))).rejects.toMatchObject({ code: '23505' });
    await expect(ask(arena.through, arena.calls.rotateKey('new'))).rejects.toMatchObject({ code: '23505' });
    await expectSigning(['new'], 1);
  });
});

it('two first uses of a key agree on one', async () => {
  await meet(arena, {
    steps,
    given: keys(),
    a: current('a'),
    b: current('b'),
    expected: inTurn(['a', 'a'], ['b', 'b'], 'ff_signing_key'),
    check: () => expectSigning(['a', 'b'], 0),
  });
});

describe('a signal with a token of a key', () => {
  const byToken = ({ ids, waitpointId }: Scene) =>
    arena.calls.deliver(ids[0]!, { token: { kid: 'old', waitpointId: waitpointId as string } });
  const rotated = async (on: Arena): Promise<Scene> => {
    await used('old')(on);
    await ask(on.through, on.calls.rotateKey(randomUUID()));
    return opened()(on);
  };

  it('whose waitpoint has its tokens revoked: accepted before, and unknown after', async () => {
    await meet(arena, {
      steps,
      given: rotated,
      a: byToken,
      b: ({ ids }) => arena.calls.revokeTokens(ids[0]!),
      expected: inTurn(['buffered', 'ended'], ['unknown', 'ended']),
    });
  });

  it('that is revoked: accepted before the commit, and unknown after', async () => {
    await meet(arena, {
      steps,
      given: rotated,
      a: byToken,
      b: () => arena.calls.revokeKey('old'),
      expected: {
        ...inTurn(['buffered', 'revoked'], ['unknown', 'revoked'], null),
        'a meets b': { told: ['buffered', 'revoked'], waitsOn: null },
      },
    });
  });

  it('that is revoked while the signal waits for its execution: unknown', async () => {
    await arena.race({
      given: rotated,
      sessions: {
        blocker: transaction(({ leases }) => arena.calls.cancel(leases), 'ROLLBACK'),
        signal: transaction(byToken),
        revoke: transaction(() => arena.calls.revokeKey('old')),
      },
      check: (outcome) => {
        const waited = outcome.waited.includes('signal.call');
        const decides = waited ? 'blocker.ROLLBACK' : 'signal.call';
        const revoked = isBefore(outcome, 'revoke.COMMIT', decides);
        expect(saidTo(outcome, 'signal')).toBe(revoked ? 'unknown' : 'buffered');
      },
    });
  });
});
