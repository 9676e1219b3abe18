/**
 * Races around a stream: writers with each other, with a trim, and with whatever ends the attempt or takes the lease
 * away. Ids follow the order of commits, a frame is written before the close or refused, and a zombie writes nothing.
 * Each expectation is shown to catch a naive way to append. Waiting for news is in waking.test.ts.
 */
import { readFile } from 'node:fs/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { RaceFailure, tablesWaitedOn } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase, testDatabase } from '../../setup/database.ts';
import { arenaOn, claimAll, leased, meet, runOut, transaction, type Arena, type Scene } from '../arena.ts';
import { ask, type Lease } from '../calls.ts';
import { endOfLog } from '../invariants.ts';
import { NAIVE_STREAMS } from './naive-functions.ts';
import { inTurn } from '../signals/races.ts';
import {
  append,
  appendAndComplete,
  appendAndTrim,
  appendTwice,
  expectSound,
  followTwo,
  patchTwice,
  payloadsOf,
  written,
} from './races.ts';

const CLOCK_FILE = new URL('../../../sql/testing/clock.sql', import.meta.url);
const MINUTE_MS = 60_000;
const steps = transaction;

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});
afterAll(() => database?.drop());

describe('two appends', () => {
  it('wait for each other, and a follower sees their frames in commit order', async () => {
    const outcomes = await followTwo(arena);
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_stream_meta']);
  });

  it('by hosts whose clocks are two minutes apart: no frame is skipped', async () => {
    await followTwo(arena, MINUTE_MS);
  });

  it('that are the first ones create one stream', async () => {
    await arena.race({
      given: leased(1),
      sessions: { a: steps(append(arena)), b: steps(append(arena)) },
      check: async (_, scene) => {
        expect(await payloadsOf(arena, scene)).toEqual(['x', 'x']);
        await expectSound(arena, scene);
      },
    });
  });

  it('of which one is rolled back: its numbers are used again', async () => {
    await arena.race({
      given: written(),
      sessions: { a: steps(append(arena), 'ROLLBACK'), b: steps(append(arena)) },
      check: async (_, scene) => {
        expect(await payloadsOf(arena, scene)).toEqual(['first', 'x']);
        await expectSound(arena, scene);
      },
    });
  });

  it('that are the same call, repeated because its response was lost, count once', async () => {
    const outcomes = await appendTwice(arena);
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_stream_meta']);
  });

  it('under the id of their execution: the first is written, the second returns the same', async () => {
    const scene = await leased(1)(arena);
    const call = append(arena, { appendId: scene.ids[0]! });
    for (let n = 0; n < 2; n += 1)
      expect(await ask(arena.through, call(scene))).toMatchObject([{ word: 'appended', value: { seq: 1 } }]);
    expect(await payloadsOf(arena, scene)).toEqual(['x']);
  });

  it('that patch the document are both applied', async () => {
    await patchTwice(arena);
  });

  it('and a trim: only live frames are removed, and the newest stay', async () => {
    await appendAndTrim(arena);
  });
});

describe('an append and the end of its attempt', () => {
  it('by complete: it is written before the close, or refused', async () => {
    const outcomes = await appendAndComplete(arena);
    expect(tablesWaitedOn(outcomes)).toEqual(['ff_execution']);
  });

  it.each([
    ['cancel', 'cancelled', 'not_active'],
    ['fail', 'failed', 'not_active'],
    ['revoke', 'revoked', 'lease_revoked'],
  ] as const)('by %s: it is written before the close, or refused', async (verb, word, refused) => {
    await meet(arena, {
      steps,
      given: written(),
      a: append(arena),
      b: ({ leases }) => arena.calls[verb](leases),
      expected: inTurn(['appended', word], [refused, word], 'ff_execution'),
      check: (scene) => expectSound(arena, scene),
    });
  });

  it('by a pause: it is written before it, or refused; and the stream stays open', async () => {
    await meet(arena, {
      steps,
      given: written(),
      a: append(arena),
      b: ({ leases }) => arena.calls.pause(leases),
      expected: inTurn(['appended', 'paused'], ['not_active', 'paused'], 'ff_execution'),
      check: async (scene) => {
        const found = await arena.through('SELECT * FROM ff_stream_meta WHERE execution_id = $1', [
          scene.ids[0],
        ]);
        expect(found.rows).toMatchObject([{ closed_at_ms: null }]);
      },
    });
  });

  it('when the lease has expired: it is refused, and the reaper skips it', async () => {
    await meet(arena, {
      steps,
      given: runOut(1),
      a: append(arena),
      b: ({ leases }) => arena.calls.lapse(leases),
      expected: {
        ...inTurn(['lease_expired', 'lapsed'], ['lease_expired', 'lapsed'], 'ff_execution'),
        'b meets a': { told: ['lease_expired', 'nothing'], waitsOn: null },
      },
      check: async (scene) => expect(await payloadsOf(arena, scene)).toEqual([]),
    });
  });

  it('and a renewal: neither waits', async () => {
    await meet(arena, {
      steps,
      given: written(),
      a: append(arena),
      b: ({ leases }) => arena.calls.renew(leases),
      expected: inTurn(['appended', 'renewed'], ['appended', 'renewed'], null),
    });
  });
});

/** The lease expired, was taken away, and another worker has the execution. */
async function takenOver(on: Arena): Promise<Scene> {
  const scene = await runOut(1)(on);
  await ask(on.through, on.calls.lapse(scene.leases));
  const owners = await claimAll(on, scene, 'w-2');
  return { ...scene, owners, logged: await endOfLog(on.through) };
}
const owner = ({ owners }: Scene) => (owners as Lease[])[0]!;

/** It keeps writing because it learns late that its lease is gone. */
function zombieAndOwner(on: Arena): Promise<unknown> {
  return meet(on, {
    steps,
    given: takenOver,
    a: append(on, { frames: [['durable', 'zombie']] }),
    b: (scene) => on.calls.append(owner(scene), { frames: [['durable', 'owner']] }),
    expected: inTurn(['lease_expired', 'appended'], ['lease_expired', 'appended'], null),
    check: async (scene) => {
      expect(await payloadsOf(on, scene)).toEqual(['owner']);
      await expectSound(on, scene);
    },
  });
}

describe('a zombie', () => {
  it('writes nothing, whatever the new owner does', async () => {
    await zombieAndOwner(arena);
  });
});

describe('on a naive variant', () => {
  let plain: TestDatabase;
  beforeAll(async () => {
    plain = await plainDatabase();
    await plain.query(await readFile(CLOCK_FILE, 'utf8'));
    for (const text of NAIVE_STREAMS) await plain.query(text);
  });
  afterAll(() => plain?.drop());

  it.each<[string, string, (arena: Arena) => Promise<unknown>, RegExp]>([
    [
      'that uses the clocks of hosts, a follower skips frames',
      'naive_append_by_clock',
      (on) => followTwo(on, MINUTE_MS),
      /what the reader saw/,
    ],
    [
      'that takes its numbers from a sequence, a follower skips frames',
      'naive_append_by_sequence',
      (on) => followTwo(on),
      /what the reader saw/,
    ],
    [
      'that does not check the lease, frames come after the close',
      'naive_append_by_clock',
      appendAndComplete,
      /frames of a closed stream/,
    ],
    [
      'that does not recognise a repeated call, it is written twice',
      'naive_append_by_clock',
      appendTwice,
      /what is there/,
    ],
    ['that does not ask for the lease, a zombie writes', 'naive_append_by_clock', zombieAndOwner, /told/],
    [
      'that trims whatever is old, durable frames are lost',
      'naive_append_by_clock',
      appendAndTrim,
      /durable frames/,
    ],
    [
      'that folds what it read before the lock, a patch is lost',
      'naive_append_by_read',
      patchTwice,
      /the document/,
    ],
  ])('%s', async (_, name, race, says) => {
    const failure: unknown = await race(arenaOn(plain, { append: name })).catch((error: unknown) => error);
    expect(failure).toBeInstanceOf(RaceFailure);
    expect((failure as RaceFailure).message).toMatch(says);
  });
});
