/**
 * The interleaving tester: runs the steps of several sessions, each a real connection, in every order they can be
 * merged into, and lets the test check the outcome of each. One step is started at a time; the next starts only when
 * every running step has finished or is blocked in the lock table. Connections are reused for the next permutation, so
 * a step must not leave session settings behind; open transactions and advisory locks are released for it. Naming and
 * merging steps is in stepper-permutations.ts, reading the lock table in stepper-locks.ts.
 */

import type { Client } from 'pg';
import { EngineError } from '../contract/errors.ts';
import { describeWait, hasCircle, readStates, readWaits } from './stepper-locks.ts';
import type { LockWait, WaitRow } from './stepper-locks.ts';
import { nameSteps, planOrders } from './stepper-permutations.ts';
import type { Memory, QueryAnswer, Step, StepLike } from './stepper-permutations.ts';
import { closeSeat, freeSeat, openSeat, runStep } from './stepper-seat.ts';
import type { Seat, StepResult } from './stepper-seat.ts';

export { MAX_PERMUTATIONS } from './stepper-permutations.ts';
export type { QueryAnswer, Step, StepLike, StepSession } from './stepper-permutations.ts';
export type { LockWait } from './stepper-locks.ts';
export type { StepResult } from './stepper-seat.ts';

/** How long a race may be stuck before it is given up. Longer than the default deadlock_timeout of 1 s. */
const STANDSTILL_LIMIT_MS = 10_000;
const POLL_FIRST_MS = 1;
const POLL_LONGEST_MS = 16;

/** What happened in one permutation. Steps are named `session.step`. */
export interface Interleaving {
  /** Steps in the order they were started. Pass `permutations: [order]` to run the same race again. */
  order: string[];
  /** Steps that were blocked in the lock table until another step, or the end of a deadlock, released them. */
  waited: string[];
  /** The locks each of these waited for. A deadlock may be over before the locks of both sides are seen. */
  waitsOn: Record<string, LockWait[]>;
  /** Every step. A failed step does not end the race, so a check must look at the steps it relies on. */
  results: Record<string, StepResult>;
  /** How often the database broke a deadlock (40P01). It chooses which side fails. */
  deadlocks: number;
  /** Sessions that ran out of steps with a transaction open, which was then rolled back. */
  rolledBack: string[];
}

/** A race: its sessions, what they begin with and what must hold when they have finished. */
export interface RaceSpec<M extends Memory = Memory> {
  /** A new connection. Called once for each session and once, as `controller`, for the one that observes them. */
  connect(session: string): Promise<Client>;
  /** Creates fresh rows for a permutation; what it returns is passed to its steps and its check. */
  setup(): Promise<M>;
  /** The steps of each session, run in this order. */
  sessions: Record<string, StepLike<M>[]>;
  /** Called when every session has finished and released everything. Throws when the outcome is wrong. */
  check(outcome: Interleaving, memory: M): Promise<void> | void;
  /** Default `all`: every merge of the step lists, at most MAX_PERMUTATIONS. */
  permutations?: 'all' | string[][];
  /** Runs at most this many permutations, evenly spread. Default: all. */
  most?: number;
  /** How long the race may be stuck; default STANDSTILL_LIMIT_MS. */
  timeoutMs?: number;
}

/** A check that failed, or a race that got stuck. The message contains the order, ready to paste. */
export class RaceFailure extends Error {
  override readonly name = 'RaceFailure';
  readonly outcome: Interleaving;

  constructor(sentence: string, outcome: Interleaving, cause?: unknown) {
    const replay = `permutations: ${JSON.stringify([outcome.order])}`;
    super(`${sentence}\nin the order ${outcome.order.join(', ')}\n(replay with ${replay})`, { cause });
    this.outcome = outcome;
  }
}

interface Table {
  controller: Client;
  seats: Seat[];
  standstillMs: number;
}

/** One permutation in progress. */
interface Round extends Table {
  outcome: Interleaving;
  memory: Memory;
  pending: Step[];
  /** When a step was last started or finished, on the performance clock. */
  movedAt: number;
  /** Ends the controller's pause early because a step finished. */
  wake: () => void;
}

/** Deterministic: the same ones every time. */
function spread<Order>(orders: readonly Order[], most: number | undefined): readonly Order[] {
  if (most === undefined || orders.length <= most) return orders;
  return Array.from({ length: most }, (_, place) => orders[Math.floor((place * orders.length) / most)]!);
}

/** Runs a race in all its permutations. Throws RaceFailure at the first whose check fails. */
export async function runRace<M extends Memory>(spec: RaceSpec<M>): Promise<Interleaving[]> {
  const script = nameSteps(spec.sessions);
  const orders = spread(planOrders(script, spec.permutations ?? 'all'), spec.most);
  const connect = (session: string) => spec.connect(session);
  const controller = await openSeat('controller', connect);
  const seats: Seat[] = [];
  try {
    for (const name of Object.keys(spec.sessions)) seats.push(await openSeat(name, connect));
    const standstillMs = spec.timeoutMs ?? STANDSTILL_LIMIT_MS;
    const table: Table = { controller: controller.client, seats, standstillMs };
    const outcomes: Interleaving[] = [];
    for (const order of orders) outcomes.push(await playRound(spec, table, order));
    return outcomes;
  } finally {
    for (const seat of seats) await closeSeat(seat, controller.client);
    await closeSeat(controller, controller.client);
  }
}

/**
 * The value a step returned; for a plain SQL step, its query result. Throws when the step failed or did not run, so a
 * typo cannot pass for a result.
 */
export function stepValue<T = QueryAnswer>(outcome: Interleaving, step: string): T {
  const result = outcome.results[step];
  if (result?.ok === true) return result.value as T;
  throw new EngineError('not_found', `Step ${step} has no value: ${result?.message ?? 'it did not run'}.`);
}

/** Every table some step waited on, sorted, to assert that a race hit each lock it is about. */
export function tablesWaitedOn(outcomes: Interleaving[]): string[] {
  const waits = outcomes.flatMap((outcome) => Object.values(outcome.waitsOn).flat());
  return [...new Set(waits.flatMap((wait) => wait.table ?? wait.likely))].toSorted();
}

async function playRound<M extends Memory>(spec: RaceSpec<M>, table: Table, order: Step<M>[]) {
  for (const [index, seat] of table.seats.entries()) {
    if (!seat.lost) continue;
    await closeSeat(seat, table.controller);
    table.seats[index] = await openSeat(seat.name, (session) => spec.connect(session));
  }
  const memory = await spec.setup();
  const outcome: Interleaving = {
    order: [],
    waited: [],
    waitsOn: {},
    results: {},
    deadlocks: 0,
    rolledBack: [],
  };
  const pending = [...order] as Step[];
  const round: Round = { ...table, outcome, memory, pending, movedAt: performance.now(), wake: () => {} };
  await interleave(round);
  for (const seat of round.seats) await leaveRound(round, seat);
  try {
    await spec.check(outcome, memory);
  } catch (cause) {
    throw new RaceFailure(cause instanceof Error ? cause.message : String(cause), outcome, cause);
  }
  return outcome;
}

async function interleave(round: Round): Promise<void> {
  while (round.pending.length > 0 || round.seats.some((seat) => seat.running !== null)) {
    const waits = await settle(round);
    const next = takeNext(round);
    if (next !== undefined) {
      startStep(round, next.seat, next.step);
      continue;
    }
    if (waits.length > 0) await unblock(round, waits);
  }
}

/** The first step whose session is free: a step deferred by a blocked session runs as soon as it can. */
function takeNext(round: Round): { seat: Seat; step: Step } | undefined {
  for (const [index, step] of round.pending.entries()) {
    const seat = round.seats.find((one) => one.name === step.session && one.running === null);
    if (seat === undefined) continue;
    round.pending.splice(index, 1);
    return { seat, step };
  }
  return undefined;
}

function startStep(round: Round, seat: Seat, step: Step): void {
  const { outcome } = round;
  seat.running = step.name;
  seat.lastStep = step.name;
  round.movedAt = performance.now();
  outcome.order.push(step.name);
  void runStep(seat, step, round.memory).then(({ result, deadlocks, deadlockedPids }) => {
    outcome.results[step.name] = result;
    outcome.deadlocks += deadlocks;
    const pids = deadlocks > 0 ? [seat.pid, ...deadlockedPids] : [];
    const waiters = round.seats
      .filter((one) => pids.includes(one.pid))
      .map((one) => one.lastStep ?? step.name);
    outcome.waited = [...new Set([...outcome.waited, ...waiters])];
    seat.running = null;
    round.movedAt = performance.now();
    round.wake();
  });
}

/**
 * Returns when no session makes progress: each is free or waits for another session of the race. Waits in a cycle do
 * make progress, because the database breaks them, and a wait for an outside session ends by itself.
 */
async function settle(round: Round): Promise<WaitRow[]> {
  let pauseMs = POLL_FIRST_MS;
  for (;;) {
    const busy = round.seats.filter((seat) => seat.running !== null);
    if (busy.length === 0) return [];
    if (await stepFinishes(round, pauseMs)) {
      pauseMs = POLL_FIRST_MS;
      continue;
    }
    const steps = new Map(busy.map((seat) => [seat.pid, seat.running]));
    const waits = await readWaits(round.controller, pidsOf(round));
    const still = busy.every((seat) => seat.running !== null && waitsForUs(round, seat, waits));
    const lasts = still && !hasCircle(waits);
    if (still) recordWaits(round, lasts ? await readAgain(round, waits) : waits, steps);
    if (lasts) return waits;
    await checkStandstill(round);
    pauseMs = Math.min(pauseMs * 2, POLL_LONGEST_MS);
  }
}

/**
 * The server lists locks of tables before it lists waits, so a session that came to wait in between shows too few. Where these are all
 * there is to go by, they are read again: nothing moves any more.
 */
async function readAgain(round: Round, waits: WaitRow[]): Promise<WaitRow[]> {
  const isNamed = waits.every(({ table, key }) => table !== null || key !== null);
  return isNamed ? waits : readWaits(round.controller, pidsOf(round));
}

function stepFinishes(round: Round, pauseMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, pauseMs, false);
    round.wake = () => {
      clearTimeout(timer);
      resolve(true);
    };
  });
}

function recordWaits(round: Round, waits: WaitRow[], steps: Map<number, string | null>): void {
  const { waited, waitsOn } = round.outcome;
  for (const { pid, blockers, ...lock } of waits) {
    const step = steps.get(pid);
    if (step === undefined || step === null) continue;
    if (!waited.includes(step)) waited.push(step);
    const known = (waitsOn[step] ??= []);
    const blockedBy = round.seats.filter((seat) => blockers.includes(seat.pid)).map((seat) => seat.name);
    const wait: LockWait = { ...lock, blockedBy };
    if (!known.some((other) => JSON.stringify(other) === JSON.stringify(wait))) known.push(wait);
  }
}

/** Every remaining session waits for one that has no steps left: that one's transaction has to be rolled back. */
async function unblock(round: Round, waits: WaitRow[]): Promise<void> {
  const done = round.seats.find(
    (seat) => seat.running === null && waits.some((wait) => wait.blockers.includes(seat.pid)),
  );
  if (done !== undefined) await leaveRound(round, done);
  await stepFinishes(round, POLL_FIRST_MS);
  await checkStandstill(round);
}

async function leaveRound(round: Round, seat: Seat): Promise<void> {
  const wasOpen = await freeSeat(seat, round.controller);
  if (wasOpen) round.outcome.rolledBack.push(seat.name);
}

async function checkStandstill(round: Round): Promise<void> {
  if (performance.now() - round.movedAt > round.standstillMs) await giveUp(round);
}

async function giveUp(round: Round): Promise<never> {
  const pids = pidsOf(round);
  const waits = await readWaits(round.controller, pids);
  const strangers = waits.flatMap((wait) => wait.blockers).filter((pid) => !pids.includes(pid));
  const states = await readStates(round.controller, [...pids, ...strangers]);
  const nameOf = (pid: number) =>
    round.seats.find((seat) => seat.pid === pid)?.name ?? `a stranger (pid ${pid})`;
  const lines = states.map((one) => {
    const step = round.seats.find((seat) => seat.pid === one.pid)?.running ?? 'no step';
    const wait = waits.find((row) => row.pid === one.pid);
    const lock = wait && `${describeWait(wait)} held by ${wait.blockers.map(nameOf).join(', ')}`;
    const activity = `${one.state ?? 'unknown'}, ${one.waiting_on ?? 'not waiting'}`;
    return `  ${nameOf(one.pid)}: in ${step}; ${lock ?? activity}; last query: ${one.query}`;
  });
  const unstarted = round.pending.map((step) => step.name);
  const sentence = `Nothing moved for ${round.standstillMs} ms; not started: ${unstarted.join(', ') || 'none'}.`;
  const order = [...round.outcome.order, ...unstarted];
  throw new RaceFailure([sentence, ...lines].join('\n'), { ...round.outcome, order });
}

function waitsForUs(round: Round, seat: Seat, waits: WaitRow[]): boolean {
  const wait = waits.find((row) => row.pid === seat.pid);
  return round.seats.some((other) => wait?.blockers.includes(other.pid));
}

function pidsOf(round: Round): number[] {
  return round.seats.map((seat) => seat.pid);
}
