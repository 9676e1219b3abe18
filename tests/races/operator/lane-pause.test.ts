/**
 * Races between pausing a lane and claims that still name it, as a process does that has not been notified. What is
 * committed before a claim begins decides; nobody waits for a claim, and no claim waits for anybody.
 */
import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openDatabase, type Database, type PoolLike } from '../../../src/engine/database/database.ts';
import { pauseLane, resumeLane } from '../../../src/engine/operator/lanes.sql.ts';
import { stepValue, type Interleaving, type StepLike } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { testDatabase } from '../../setup/database.ts';
import { alone, arenaOn, isBefore, saidTo, transaction } from '../arena.ts';
import type { Arena, Scene } from '../arena.ts';
import { ask, claimedBy, LEASE_MS, type Call } from '../calls.ts';
import { endOfLog } from '../invariants.ts';

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});

afterAll(() => database?.drop());

/** The store's own statements, on the connection of a race. */
function through(client: unknown): Database {
  return { ...openDatabase({ schema: database.schema, pool: client as PoolLike }), prefix: '' };
}

interface LaneScene extends Scene {
  lane: string;
}

const laneOf = (scene: Scene) => (scene as LaneScene).lane;
const newLane = () => `lane-${randomUUID()}`;

/** One execution that waits in its own lane. */
const waiting =
  (lanes: 'open' | 'paused' = 'open') =>
  async ({ calls, through: asked }: Arena): Promise<LaneScene> => {
    const [lane, ids] = [newLane(), [randomUUID()]];
    const { sql, params } = calls.submit({ ids, routes: [{ lane, kind: randomUUID() }] });
    const routeId = Number((await asked(sql, params)).rows[0]?.['route_id']);
    await database.query('UPDATE ff_lane SET paused = $2 WHERE lane = $1', [lane, lanes === 'paused']);
    return { ids, routeId, lane, leases: [], logged: await endOfLog(asked) };
  };

const SWITCHES = {
  pause: async (on: Database, lane: string) =>
    (await pauseLane(on, lane, { by: 'operator', reason: null })).changed,
  resume: resumeLane,
};

/** Whether the switch changed anything is the value of the step `call`. */
function turn(which: keyof typeof SWITCHES): StepLike<Scene>[] {
  const call: StepLike<Scene> = {
    name: 'call',
    run: async ({ client, query }, scene) => {
      await query('BEGIN');
      return SWITCHES[which](through(client), laneOf(scene));
    },
  };
  return [call, 'COMMIT'];
}

const claim = ({ routeId }: Scene): Call => arena.calls.claim(routeId, 1, 'w-1');

async function isPaused(scene: Scene): Promise<boolean> {
  const found = await database.query('SELECT paused FROM ff_lane WHERE lane = $1', [laneOf(scene)]);
  return found.rows[0]?.['paused'] === true;
}

/** The state of the lane when a step began: as left by the last change committed before. */
function wasPaused(outcome: Interleaving, step: string, before: 'open' | 'paused'): boolean {
  const turned = outcome.order
    .slice(0, outcome.order.indexOf(step))
    .filter((name) => /^(?:pause|resume)\.COMMIT$/.test(name))
    .map((name) => name.slice(0, name.indexOf('.')))
    .filter((session) => stepValue<boolean>(outcome, `${session}.call`));
  const last = turned.at(-1);
  return last === undefined ? before === 'paused' : last === 'pause';
}

describe('a claim that names a lane', () => {
  it('grants nothing once a pause is committed; one that begins earlier may', async () => {
    const told = new Set<string>();
    await arena.race({
      given: waiting(),
      sessions: { pause: turn('pause'), claim: transaction(claim) },
      check: async (outcome, scene) => {
        const late = isBefore(outcome, 'pause.COMMIT', 'claim.call');
        expect(saidTo(outcome, 'claim')).toBe(late ? 'nothing' : 'claimed');
        expect(outcome.waited).toEqual([]);
        expect(await isPaused(scene)).toBe(true);
        told.add(saidTo(outcome, 'claim'));
      },
    });
    expect([...told].toSorted()).toEqual(['claimed', 'nothing']);
  });

  it('is granted work once a resume is committed', async () => {
    await arena.race({
      given: waiting('paused'),
      sessions: { resume: turn('resume'), claim: transaction(claim) },
      check: async (outcome, scene) => {
        const late = isBefore(outcome, 'resume.COMMIT', 'claim.call');
        expect(saidTo(outcome, 'claim')).toBe(late ? 'claimed' : 'nothing');
        expect(outcome.waited).toEqual([]);
        expect(await isPaused(scene)).toBe(false);
      },
    });
  });

  it('takes the work of another lane it names besides the paused one', async () => {
    const claimBoth = (scene: Scene): Call => ({
      sql: claimedBy(`ff_claim($1::int[], '{NULL,NULL}', '{0,0}', 10, 'w', 'w-1', $2, $3)`),
      params: [[scene.routeId, scene['otherRoute']], randomUUID(), LEASE_MS],
    });
    await arena.race({
      given: async (given) => {
        const [scene, other] = [await waiting()(given), await waiting()(given)];
        return { ...scene, ids: [...scene.ids, ...other.ids].toSorted(), otherRoute: other.routeId };
      },
      sessions: { pause: turn('pause'), claim: transaction(claimBoth) },
      check: (outcome) => {
        const late = isBefore(outcome, 'pause.COMMIT', 'claim.call');
        expect(saidTo(outcome, 'claim')).toBe(late ? 'claimed' : 'claimed, claimed');
      },
    });
  });
});

describe('a pause and a resume', () => {
  it.each(['open', 'paused'] as const)(
    'of a lane that is %s, and a claim: the last committed change decides',
    async (before) => {
      await arena.race({
        given: waiting(before),
        sessions: { pause: turn('pause'), resume: turn('resume'), claim: alone(claim) },
        check: (outcome) => {
          const paused = wasPaused(outcome, 'claim.call', before);
          expect(saidTo(outcome, 'claim')).toBe(paused ? 'nothing' : 'claimed');
          // Only the switches may wait, for each other.
          expect(outcome.waited.filter((step) => step === 'claim.call')).toEqual([]);
        },
      });
    },
  );

  it('leave the lane as the last change set it', async () => {
    await arena.race({
      given: waiting('paused'),
      sessions: { pause: turn('pause'), resume: turn('resume') },
      check: async (outcome, scene) => {
        const paused = stepValue<boolean>(outcome, 'pause.call');
        // The resume always finds it paused; so does the pause, unless it comes after.
        expect(stepValue<boolean>(outcome, 'resume.call')).toBe(true);
        expect(await isPaused(scene)).toBe(paused);
      },
    });
  });
});

it('two pauses of an unused lane: one of them returns that it was already paused', async () => {
  await arena.race({
    given: async (given) => ({ ...(await waiting()(given)), lane: newLane() }),
    sessions: { a: turn('pause'), b: turn('pause') },
    check: async (outcome, scene) => {
      const changed = ['a.call', 'b.call'].filter((step) => stepValue<boolean>(outcome, step));
      expect(changed).toHaveLength(1);
      expect(await isPaused(scene)).toBe(true);
    },
  });
});

it('work claimed before a pause is kept and ends', async () => {
  await arena.race({
    given: async (given) => {
      const scene = await waiting()(given);
      const [granted] = await ask(given.through, claim(scene));
      const leases = [{ id: scene.ids[0]!, attempt: granted!.attempt, epoch: granted!.epoch }];
      return { ...scene, leases, logged: await endOfLog(given.through) };
    },
    sessions: {
      pause: turn('pause'),
      complete: transaction(({ leases }) => arena.calls.complete(leases)),
    },
    check: (outcome) => {
      expect(saidTo(outcome, 'complete')).toBe('completed');
      expect(outcome.waited).toEqual([]);
    },
  });
});
