/**
 * The orders a race is run in: turns a test's description into named steps, and merges the step lists of the sessions
 * into permutations. Everything here is pure; nothing that talks to a database belongs here.
 */

import type { Client, QueryResult } from 'pg';
import { EngineError } from '../contract/errors.ts';

/** More permutations take minutes to run: a race that needs more has steps that can be joined. */
export const MAX_PERMUTATIONS = 2000;
/** Each session is one real connection to the database. */
const MAX_SESSIONS = 16;

/** What a statement returned. */
export interface QueryAnswer {
  rows: QueryResult['rows'];
  rowCount: number | null;
  /** The command tag, for example `ROLLBACK` when a COMMIT met a failed transaction. */
  command: string;
}

/** The connection a step runs on. */
export interface StepSession {
  readonly name: string;
  /** The connection itself, for code under test that takes a client. */
  readonly client: Client;
  query(text: string, params?: unknown[]): Promise<QueryAnswer>;
}

export type Memory = Record<string, unknown>;

/** One step of a session. */
export interface Step<M extends Memory = Memory> {
  /** Name of the session that runs it. */
  session: string;
  /** `session.step`, unique in the race. */
  name: string;
  run(session: StepSession, memory: M): Promise<unknown>;
}

/**
 * How a test writes a step. A bare string is SQL and is its own name: `'BEGIN'` of session `a` is the step `a.BEGIN`.
 * The name of a step must be unique in its session only.
 */
export type StepLike<M extends Memory = Memory> =
  | string
  | { name: string; sql: string; params?: unknown[] | ((memory: M) => unknown[]) }
  | { name: string; run(session: StepSession, memory: M): Promise<unknown> };

/** The step list of every session, named and ready to run. */
type Script<M extends Memory = Memory> = Step<M>[][];

export function nameSteps<M extends Memory>(sessions: Record<string, StepLike<M>[]>): Script<M> {
  const names = Object.keys(sessions);
  if (names.length === 0)
    throw new EngineError('invalid_input', 'A race needs a session.', { field: 'sessions' });
  if (names.length > MAX_SESSIONS) {
    throw new EngineError('too_many', `A race has at most ${MAX_SESSIONS} sessions.`, { field: 'sessions' });
  }
  return names.map((session) => nameStepsOf(session, sessions[session] ?? []));
}

function nameStepsOf<M extends Memory>(session: string, list: StepLike<M>[]): Step<M>[] {
  const field = `sessions.${session}`;
  if (list.length === 0)
    throw new EngineError('invalid_input', `Session ${session} has no steps.`, { field });
  const steps = list.map((written) => nameStep(session, written));
  const repeated = steps.find((step, index) => steps.findIndex((other) => other.name === step.name) < index);
  if (repeated !== undefined) {
    throw new EngineError('invalid_input', `Two steps are called ${repeated.name}: rename one of them.`, {
      field,
    });
  }
  return steps;
}

function nameStep<M extends Memory>(session: string, written: StepLike<M>): Step<M> {
  if (typeof written === 'string') {
    const name = `${session}.${written.trim().replaceAll(/\s+/g, ' ')}`;
    return { session, name, run: (on) => on.query(written) };
  }
  const name = `${session}.${written.name}`;
  if ('run' in written) return { session, name, run: (on, memory) => written.run(on, memory) };
  const { sql, params } = written;
  return {
    session,
    name,
    run: (on, memory) => on.query(sql, typeof params === 'function' ? params(memory) : params),
  };
}

/** How many ways there are to merge lists of these lengths: the multinomial coefficient. */
export function countMerges(lengths: number[]): number {
  let total = 0;
  let count = 1;
  for (const length of lengths) {
    for (let taken = 1; taken <= length; taken += 1) {
      total += 1;
      count = (count * total) / taken;
    }
  }
  return Math.round(count);
}

/** Every order that keeps the order inside each list. */
export function mergeAll<T>(lists: T[][]): T[][] {
  if (lists.every((list) => list.length === 0)) return [[]];
  return lists.flatMap((list, index) => {
    const [first, ...rest] = list;
    if (first === undefined) return [];
    return mergeAll(lists.with(index, rest)).map((tail) => [first, ...tail]);
  });
}

/** The orders to run: all merges, or the ones the test names, each checked to be a merge. */
export function planOrders<M extends Memory>(script: Script<M>, wanted: 'all' | string[][]): Step<M>[][] {
  const count = wanted === 'all' ? countMerges(script.map((list) => list.length)) : wanted.length;
  if (count > MAX_PERMUTATIONS) {
    const sentence = `The race has ${count} permutations, the limit is ${MAX_PERMUTATIONS}: join steps, or list the permutations to run.`;
    throw new EngineError('too_many', sentence, { field: 'permutations' });
  }
  if (wanted === 'all') return mergeAll(script);
  return wanted.map((names, index) => resolveOrder(script, names, `permutations[${index}]`));
}

function resolveOrder<M extends Memory>(script: Script<M>, names: string[], field: string): Step<M>[] {
  const byName = new Map(script.flat().map((step) => [step.name, step]));
  const order = names.map((name) => {
    const step = byName.get(name);
    if (step !== undefined) return step;
    throw new EngineError(
      'invalid_input',
      `No step is called ${name}; there are ${[...byName.keys()].join(', ')}.`,
      {
        field,
      },
    );
  });
  for (const list of script) {
    const placed = order.filter((step) => step.session === list[0]?.session);
    if (placed.length === list.length && placed.every((step, at) => step === list[at])) continue;
    const sentence = `A permutation contains every step of session ${list[0]?.session} once, in the order of its list.`;
    throw new EngineError('invalid_input', sentence, { field });
  }
  return order;
}
