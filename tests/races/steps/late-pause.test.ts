/**
 * A pause that commits while a timer of its execution is being fired: after the firing has begun to read, and before it
 * has the lock. The firing then has a locked row that is newer than anything else it reads in the same statement. A
 * clock that blocks holds it at that point.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { alone, answersOf, arenaOn, HOUR_MS, saidTo, transaction, type Arena } from '../arena.ts';
import { asFamily, childIds, expectToGoOn, family } from './families.ts';

/** The lock that the clock of a held session waits for. */
const GATE = 4_711;
const WAITING_CLOCK = `
CREATE OR REPLACE FUNCTION ff_now_ms() RETURNS bigint LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS $$
BEGIN
  IF current_setting('race.held', true) = 'yes' THEN
    PERFORM pg_advisory_lock_shared(${GATE});
    PERFORM pg_advisory_unlock_shared(${GATE});
  END IF;
  RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint + (SELECT offset_ms FROM ff_clock);
END $$`;

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  await database.query(WAITING_CLOCK);
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

it.each([
  ['its children alone', {}],
  ['its children or a time', { delayMs: HOUR_MS }],
])('a parent pausing for %s resumes when its last child ends meanwhile', async (_, request) => {
  await arena.race({
    given: family(1),
    sessions: {
      gate: [
        { name: 'shut', sql: `SELECT pg_advisory_lock(${GATE})` },
        { name: 'open', sql: `SELECT pg_advisory_unlock(${GATE})` },
      ],
      pause: transaction((scene) =>
        arena.calls.pause(scene.leases, { children: childIds(scene), ...request }),
      ),
      child: alone((scene) => arena.calls.complete(asFamily(scene).children)),
      fire: [
        { name: 'hold', sql: `SET race.held = 'yes'` },
        ...alone((scene) => arena.calls.fire([asFamily(scene).parent.id])),
      ],
    },
    permutations: [
      ['gate.shut', 'pause.call', 'child.call', 'fire.hold', 'fire.call', 'pause.COMMIT', 'gate.open'],
    ],
    check: async (outcome, scene) => {
      expect(outcome.waited).toEqual(['fire.call']);
      expect([saidTo(outcome, 'pause'), saidTo(outcome, 'child')]).toEqual(['paused', 'completed']);
      await expectToGoOn(arena, scene, answersOf(outcome, 'pause'));
    },
  });
});
