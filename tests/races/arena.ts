/**
 * Where races run: fresh executions for each permutation, calls turned into steps, and the check that ends every race,
 * whatever else it expects: no deadlock, no failed step, no violated invariant, every result kept. What a single race
 * expects is in the test files.
 */
import { randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { MAX_PERMUTATIONS, runRace, stepValue, tablesWaitedOn } from '../../src/testing/stepper.ts';
import type { Interleaving, StepLike } from '../../src/testing/stepper.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { ask, callsOf, LEASE_MS, wordsOf } from './calls.ts';
import type { Answer, Ask, Call, Calls, FunctionNames, Lease } from './calls.ts';
import { endOfLog, unkeptAnswers, violationsOf } from './invariants.ts';

export const HOUR_MS = 3_600_000;
const RETRYING = {
  retry_policy: { max_retries: 1_000, backoff: { type: 'fixed', delay_ms: HOUR_MS } },
};

/** The executions of one permutation, in id order, and the route only they use. */
export interface Scene extends Record<string, unknown> {
  ids: string[];
  routeId: number;
  leases: Lease[];
  /** Where the log ended before the race. */
  logged: number;
}

type Given = (arena: Arena) => Promise<Scene>;
type Placed = (scene: Scene) => Call;
type Steps = StepLike<Scene>[];

export interface Race {
  given: Given;
  sessions: Record<string, Steps>;
  /** What this race expects beyond the common checks. */
  check?: (outcome: Interleaving, scene: Scene) => Promise<void> | void;
  permutations?: 'all' | string[][];
}

/**
 * Every order, unless `FLOWFABRIC_TEST_ORDERS` asks for a sample of so many, evenly spread: two transactions have six orders, three have
 * ninety. Fewer than six leave out meetings that most races insist on.
 */
export const MOST_ORDERS = Number(process.env['FLOWFABRIC_TEST_ORDERS'] ?? MAX_PERMUTATIONS);

export interface Arena {
  database: TestDatabase;
  calls: Calls;
  through: Ask;
  race(race: Race): Promise<Interleaving[]>;
}

export function arenaOn(database: TestDatabase, names: FunctionNames = {}): Arena {
  const arena: Arena = {
    database,
    calls: callsOf(names),
    through: (text, params) => database.query(text, params),
    race: (race) =>
      runRace<Scene>({
        // A naive variant may fail in one order only.
        ...(Object.keys(names).length === 0 ? { most: MOST_ORDERS } : {}),
        connect: () => database.connect(),
        setup: () => race.given(arena),
        sessions: race.sessions,
        permutations: race.permutations ?? 'all',
        check: async (outcome, scene) => {
          await checkAll(arena, outcome, scene);
          await race.check?.(outcome, scene);
        },
      }),
  };
  return arena;
}

async function checkAll(arena: Arena, outcome: Interleaving, scene: Scene): Promise<void> {
  const failures = Object.entries(outcome.results).flatMap(([step, result]) =>
    result.ok ? [] : [`${step}: ${result.code ?? ''} ${result.message}`],
  );
  expect(outcome.deadlocks, 'deadlocks').toBe(0);
  expect(failures, 'failed steps').toEqual([]);
  expect(outcome.rolledBack, 'transactions left open').toEqual([]);
  expect(await violationsOf(arena.through, scene.ids), 'violations').toEqual([]);
  const answers = committedAnswers(outcome);
  expect(await unkeptAnswers(arena.through, answers, scene.logged), 'answers not kept').toEqual([]);
}

/** All results, except those whose session rolled back. */
function committedAnswers({ results }: Interleaving): Answer[] {
  return Object.entries(results).flatMap(([step, result]) => {
    const session = step.slice(0, step.indexOf('.'));
    if (!result.ok || !Array.isArray(result.value) || `${session}.ROLLBACK` in results) return [];
    return result.value as Answer[];
  });
}

/** A single call: it commits when it returns. */
export function alone(placed: Placed): Steps {
  return [{ name: 'call', run: (session, scene) => ask(session.query, placed(scene)) }];
}

/** A transaction in two steps: BEGIN takes neither locks nor a snapshot, so joining it to the call loses no order. */
export function transaction(placed: Placed, end: 'COMMIT' | 'ROLLBACK' = 'COMMIT'): Steps {
  const call: StepLike<Scene> = {
    name: 'call',
    run: async (session, scene) => {
      await session.query('BEGIN');
      return ask(session.query, placed(scene));
    },
  };
  return [call, end];
}

export function answersOf(outcome: Interleaving, session: string): Answer[] {
  return stepValue<Answer[]>(outcome, `${session}.call`);
}

export function saidTo(outcome: Interleaving, session: string): string {
  return wordsOf(answersOf(outcome, session));
}

/** How two transactions met: one after the other, or the second call while the first was still open. */
export const MEETINGS = ['a then b', 'b then a', 'b meets a', 'a meets b'] as const;
export type Meeting = (typeof MEETINGS)[number];

export function isBefore({ order }: Interleaving, one: string, other: string): boolean {
  return order.indexOf(one) < order.indexOf(other);
}

function meetingOf(outcome: Interleaving): Meeting {
  if (isBefore(outcome, 'a.COMMIT', 'b.call')) return 'a then b';
  if (isBefore(outcome, 'b.COMMIT', 'a.call')) return 'b then a';
  return isBefore(outcome, 'a.call', 'b.call') ? 'b meets a' : 'a meets b';
}

/**
 * The results of a and b, and the table the later one waits on; null when it does not wait. A wait for a unique key
 * does not name its table: then it is `x or y`, all the tables it can be.
 */
export interface Expected {
  told: [a: string, b: string];
  waitsOn: string | null;
}

export interface Pair {
  given: Given;
  a: Placed;
  b: Placed;
  expected: Record<Meeting, Expected>;
  /** Default `transaction`; a shorter one has fewer orders and the same meetings. */
  steps?: typeof transaction;
  check?: (scene: Scene) => Promise<void>;
}

/** Runs every permutation of two transactions; throws unless all four meetings occurred and went as expected. */
export async function meet(arena: Arena, pair: Pair): Promise<Interleaving[]> {
  const { given, a, b, expected, steps = transaction, check } = pair;
  const seen = new Set<Meeting>();
  const outcomes = await arena.race({
    given,
    sessions: { a: steps(a), b: steps(b) },
    check: async (outcome, scene) => {
      const meeting = meetingOf(outcome);
      seen.add(meeting);
      const { told, waitsOn } = expected[meeting];
      expect([saidTo(outcome, 'a'), saidTo(outcome, 'b')], `${meeting}: told`).toEqual(told);
      expect(tablesWaitedOn([outcome]).join(' or '), `${meeting}: waits on`).toBe(waitsOn ?? '');
      await check?.(scene);
    },
  });
  expect(seen.size, 'kinds of meeting').toBe(MEETINGS.length);
  return outcomes;
}

export function submitted(count: number, options: { delayMs?: number; policy?: object } = {}): Given {
  return async ({ calls, through }) => {
    const ids = Array.from({ length: count }, () => randomUUID()).toSorted();
    const call = calls.submit({ ids, routes: [{ lane: 'default', kind: randomUUID() }], ...options });
    const answer = await through(call.sql, call.params);
    const routeId = Number(answer.rows[0]?.route_id);
    return { ids, routeId, leases: [], logged: await endOfLog(through) };
  };
}

export function leased(count: number, policy: object = RETRYING): Given {
  return async (arena) => {
    const scene = await submitted(count, { policy })(arena);
    return { ...scene, leases: await claimAll(arena, scene, 'w-1'), logged: await endOfLog(arena.through) };
  };
}

/** Leased, and the lease has expired; nobody has noticed yet. */
export function runOut(count: number, policy: object = RETRYING): Given {
  return async (arena) => {
    const scene = await leased(count, policy)(arena);
    await arena.database.moveClock(LEASE_MS + 1);
    return scene;
  };
}

/** Waiting for a time that has passed. */
export function due(count: number): Given {
  return async (arena) => {
    const scene = await submitted(count, { delayMs: HOUR_MS })(arena);
    await arena.database.moveClock(HOUR_MS);
    return scene;
  };
}

export async function claimAll({ calls, through }: Arena, scene: Scene, worker: string): Promise<Lease[]> {
  const answers = await ask(through, calls.claim(scene.routeId, scene.ids.length, worker));
  return answers
    .map(({ id, attempt, epoch }) => ({ id: id ?? '', attempt, epoch }))
    .toSorted((one, other) => (one.id < other.id ? -1 : 1));
}
