/**
 * Races of messages: sending with receiving, with a timeout, with a crash, with the next run, with a cancel and with the
 * end. No message is lost or handed over twice, in any order. Every race also passes the invariants of messages.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { readFile } from 'node:fs/promises';
import { RaceFailure } from '../../../src/testing/stepper.ts';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { plainDatabase, testDatabase } from '../../setup/database.ts';
import { alone, arenaOn, leased, meet, runOut, transaction, type Arena, type Scene } from '../arena.ts';
import { ask, callsOf, LEASE_MS, type Call } from '../calls.ts';
import { endOfLog } from '../invariants.ts';
import { inTurn } from '../signals/races.ts';
import type { Receiving } from './calls.ts';
import { NAIVE_MESSAGES } from './naive-functions.ts';

const CLOCK_FILE = new URL('../../../sql/testing/clock.sql', import.meta.url);
const TIMEOUT_MS = LEASE_MS;

type Given = (arena: Arena) => Promise<Scene>;
type Placed = (scene: Scene) => Call;

let database: TestDatabase;
let arena: Arena;

beforeAll(async () => {
  database = await testDatabase();
  arena = arenaOn(database);
});
afterAll(() => database?.drop());

const send =
  (by: () => Arena, messageId?: string): Placed =>
  ({ ids }) =>
    by().calls.send(ids[0]!, messageId);
const receive =
  (by: () => Arena, receiving: Receiving = {}): Placed =>
  ({ leases }) =>
    by().calls.receive(leases[0]!, receiving);
const here = (): Arena => arena;
const sending = send(here);
const receiving = receive(here);
const continuing: Placed = ({ leases }) => arena.calls.continueAs(leases[0]!);
const cancelling: Placed = ({ leases }) => arena.calls.cancel(leases);
const completing: Placed = ({ leases }) => arena.calls.complete(leases);
const lapsing: Placed = ({ leases }) => arena.calls.lapse(leases);
const firing: Placed = ({ ids }) => arena.calls.fire(ids);

/** Something done before the race. */
function after(given: Given, ...before: Placed[]): Given {
  return async (at) => {
    const scene = await given(at);
    for (const placed of before) await ask(at.through, placed(scene));
    return { ...scene, logged: await endOfLog(at.through) };
  };
}

/** Waiting for a message, and its time is over. */
const overdue: Given = async (at) => {
  const scene = await after(
    leased(1),
    receive(() => at, { timeoutMs: TIMEOUT_MS }),
  )(at);
  await at.database.moveClock(TIMEOUT_MS + 1);
  return scene;
};

/** Where each message of the execution is: in a step, or waiting. */
async function placesOf({ ids }: Scene): Promise<{ handed: number; pending: number }> {
  const { rows } = await arena.through(
    `SELECT (SELECT count(*)::integer FROM ff_step WHERE execution_id = $1 AND value ? 'message') AS handed,
            (SELECT count(*)::integer FROM ff_message WHERE execution_id = $1 AND handed_at_ms IS NULL) AS pending`,
    [ids[0]],
  );
  return rows[0] as { handed: number; pending: number };
}

const kept = (handed: number, pending: number) => async (scene: Scene) =>
  expect(await placesOf(scene)).toEqual({ handed, pending });

/** Whoever is next receives the message; nobody else does. */
async function received(scene: Scene): Promise<void> {
  const places = await placesOf(scene);
  expect(places.handed + places.pending).toBe(1);
  const [claim] = await ask(arena.through, arena.calls.claim(scene.routeId, 1, 'w-2'));
  if (claim === undefined || places.handed > 0) return;
  const lease = { id: claim.id!, attempt: claim.attempt, epoch: claim.epoch };
  const key = String(2 + claim.attempt);
  expect(await ask(arena.through, arena.calls.receive(lease, { key }))).toMatchObject([
    { word: 'satisfied' },
  ]);
}

const receiveAndSend = (by: () => Arena, given = leased(1)) =>
  meet(by(), {
    given,
    a: receive(by),
    b: send(by),
    expected: inTurn(['suspended', 'woken'], ['satisfied', 'sent']),
  });

describe('a message and its receiver', () => {
  it('meet in any order: it is found, or it resumes the execution', async () => {
    await receiveAndSend(here);
  });

  it('two messages wake a receiver once, and the other waits', async () => {
    await meet(arena, {
      given: after(leased(1), receiving),
      a: sending,
      b: sending,
      expected: inTurn(['woken', 'sent'], ['sent', 'woken']),
      check: kept(1, 1),
    });
  });

  it('the same id twice is one message', async () => {
    await meet(arena, {
      given: leased(1),
      a: send(here, 'same'),
      b: send(here, 'same'),
      expected: inTurn(['sent', 'duplicate'], ['duplicate', 'sent']),
      check: kept(0, 1),
    });
  });

  it('a timeout is recorded only if no message is there', async () => {
    const expected = inTurn(['fired', 'sent'], ['nothing', 'woken'], 'ff_execution');
    // Firing never waits: it leaves what another transaction holds.
    expected['a meets b'] = { told: ['nothing', 'woken'], waitsOn: null };
    await meet(arena, {
      given: overdue,
      a: firing,
      b: sending,
      expected,
      check: async (scene) => {
        const { rows } = await arena.through(
          `SELECT value ->> 'outcome' AS outcome FROM ff_step WHERE execution_id = $1`,
          [scene.ids[0]],
        );
        const { handed } = await placesOf(scene);
        expect(rows).toEqual([{ outcome: handed === 1 ? 'satisfied' : 'timed_out' }]);
      },
    });
  });
});

describe('a message and what ends its receiver', () => {
  it('a cancel: it is refused afterwards, and stays readable before', async () => {
    await meet(arena, {
      given: after(leased(1), receiving),
      a: cancelling,
      b: sending,
      expected: inTurn(['cancelled', 'not_active'], ['cancelled', 'woken']),
    });
  });

  it('the end: it is refused afterwards, and counted as unread before', async () => {
    await meet(arena, {
      given: leased(1),
      a: completing,
      b: sending,
      expected: inTurn(['completed', 'not_active'], ['completed', 'sent']),
      check: async (scene) => {
        const { pending } = await placesOf(scene);
        const { rows } = await arena.through(
          `SELECT coalesce((detail ->> 'unread_messages')::integer, 0) AS unread FROM ff_event
           WHERE execution_id = $1 AND family = 'completion'`,
          [scene.ids[0]],
        );
        expect(rows).toEqual([{ unread: pending }]);
      },
    });
  });

  it('a crash: the next attempt receives it', async () => {
    const expected = inTurn(['lapsed', 'sent'], ['lapsed', 'sent']);
    expected['a meets b'] = { told: ['nothing', 'sent'], waitsOn: null };
    await meet(arena, {
      given: runOut(1),
      a: lapsing,
      b: sending,
      expected,
      check: async (scene) => {
        await ask(arena.through, lapsing(scene));
        await received(scene);
      },
    });
  });

  it('the next run: it stays, and that run receives it', async () => {
    await meet(arena, {
      given: leased(1),
      a: continuing,
      b: sending,
      expected: inTurn(['run_continued', 'sent'], ['run_continued', 'sent']),
      check: received,
    });
  });
});

describe('the next run', () => {
  it('and a cancel: one of them ends the attempt', async () => {
    await meet(arena, {
      given: after(leased(1), sending, receiving),
      a: continuing,
      b: cancelling,
      expected: inTurn(['run_continued', 'cancelled'], ['not_active', 'cancelled']),
    });
  });

  it('twice by the same lease is the same', async () => {
    await meet(arena, {
      given: after(leased(1), sending, receiving),
      a: continuing,
      b: continuing,
      expected: inTurn(['run_continued', 'run_continued again'], ['run_continued again', 'run_continued']),
    });
  });

  it('and receiving by the same lease: what was received before goes with its run', async () => {
    await meet(arena, {
      given: after(leased(1), sending),
      a: continuing,
      b: receiving,
      expected: inTurn(['run_continued', 'conflict'], ['run_continued', 'satisfied']),
      check: async (scene) => {
        const { handed, pending } = await placesOf(scene);
        expect(handed).toBe(0);
        expect(pending).toBeLessThanOrEqual(1);
      },
    });
  });

  it('and the completion of the same lease: the first one counts', async () => {
    await meet(arena, {
      given: after(leased(1), sending),
      a: continuing,
      b: completing,
      expected: inTurn(['run_continued', 'conflict'], ['conflict', 'completed']),
      check: kept(0, 1),
    });
  });

  it('begins after the rest was deleted, whoever cancels or sends in between', async () => {
    await arena.race({
      given: after(
        leased(1),
        ...[1, 2, 3].flatMap((n): Placed[] => [sending, receive(here, { key: String(n) })]),
        ({ leases }) => arena.calls.continueAs(leases[0]!, 1),
      ),
      sessions: { fire: transaction(firing), cancel: transaction(cancelling), send: alone(sending) },
    });
  });
});

describe('three at once', () => {
  it('receiving, sending and a timeout leave one message in one place', async () => {
    await arena.race({
      given: leased(1),
      sessions: {
        receive: transaction(receive(here, { timeoutMs: 0 })),
        send: transaction(sending),
        fire: alone(firing),
      },
      check: async (_, scene) => {
        const { handed, pending } = await placesOf(scene);
        expect(handed + pending).toBe(1);
      },
    });
  });

  it('sending, the next run and a cancel lose no message', async () => {
    await arena.race({
      given: leased(1),
      sessions: {
        send: transaction(sending),
        continue: alone(continuing),
        cancel: transaction(cancelling),
      },
    });
  });
});

describe('without the lock of the execution', () => {
  it('a sender is not seen by whoever suspends, and nobody wakes it', async () => {
    const plain = await plainDatabase();
    await plain.query(await readFile(CLOCK_FILE, 'utf8'));
    for (const text of NAIVE_MESSAGES) await plain.query(text);
    const naive = arenaOn(plain, { send: 'naive_send_unlocked' });
    // The variant cannot note that there are messages without waiting for the lock: one was sent and received before.
    const known = after(
      leased(1),
      ({ ids }) => callsOf({}).send(ids[0]!),
      ({ leases }) => naive.calls.receive(leases[0]!, { key: '0' }),
    );
    const failure: unknown = await receiveAndSend(() => naive, known).catch((error: unknown) => error);
    if (!(failure instanceof RaceFailure)) throw new Error('the race passed', { cause: failure });
    const { actual } = failure.cause as Error & { actual?: unknown };
    expect(JSON.stringify(actual)).toMatch(/waits for a message in in, and there is one/);
    expect(failure.outcome.order.slice(0, 2)).toEqual(['a.call', 'b.call']);
    await plain.drop();
  });
});
