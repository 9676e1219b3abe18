/**
 * One session of a race: its connection, the step it is running, and how it is opened, used, freed and closed. Which
 * step runs when is decided in stepper.ts.
 */

import type { Client } from 'pg';
import type { Memory, Step, StepSession } from './stepper-permutations.ts';

/**
 * The shortest Postgres accepts: a wait is usually checked for a deadlock before the next step starts, so the step that
 * closes the cycle is the one that fails, in every run.
 */
const DEADLOCK_TIMEOUT_MS = 1;
/** How long closing a connection waits for its backend to exit. */
const TERMINATE_LIMIT_MS = 5_000;
/** How many causes of an error are searched for a deadlock. */
const MAX_CAUSES = 8;

const DEADLOCK_DETECTED = '40P01';
const INSUFFICIENT_PRIVILEGE = '42501';

/** What a step returned, or how it failed. */
export type StepResult = { ok: true; value: unknown } | { ok: false; code?: string; message: string };

interface StepReport {
  result: StepResult;
  /** How many deadlocks the database broke by failing this step. */
  deadlocks: number;
  /** The processes involved in them. */
  deadlockedPids: number[];
}

export interface Seat {
  name: string;
  client: Client;
  pid: number;
  /** Name of the step it is running. */
  running: string | null;
  /** Name of the step it started last. */
  lastStep: string | null;
  /** The connection broke, for example because a step terminated it. */
  lost: boolean;
}

export async function openSeat(name: string, connect: (session: string) => Promise<Client>): Promise<Seat> {
  const client = await connect(name);
  const seat: Seat = { name, client, pid: 0, running: null, lastStep: null, lost: false };
  const lose = () => {
    seat.lost = true;
  };
  client.on('error', lose);
  client.on('end', lose);
  try {
    seat.pid = (await client.query('SELECT pg_catalog.pg_backend_pid() AS pid')).rows[0].pid;
    await client.query(`SET deadlock_timeout = ${DEADLOCK_TIMEOUT_MS}`).catch(ignoreMissingRight);
  } catch (error) {
    await client.end();
    throw error;
  }
  return seat;
}

/** A role that may not change deadlock_timeout can run races too; only deadlocks take longer to break. */
function ignoreMissingRight(error: unknown): void {
  if (codeOf(error) !== INSUFFICIENT_PRIVILEGE) throw error;
}

/** Runs a step to completion. Never rejects: the result says how the step went. */
export async function runStep<M extends Memory>(seat: Seat, step: Step<M>, memory: M): Promise<StepReport> {
  const deadlocks = new Set<unknown>();
  const session: StepSession = {
    name: seat.name,
    client: seat.client,
    query: async (text, params) => {
      try {
        return await seat.client.query(text, params);
      } catch (error) {
        if (codeOf(error) === DEADLOCK_DETECTED) deadlocks.add(error);
        throw error;
      }
    },
  };
  let result: StepResult;
  try {
    result = { ok: true, value: await step.run(session, memory) };
  } catch (error) {
    const deadlock = findDeadlock(error);
    if (deadlock !== undefined && deadlocks.size === 0) deadlocks.add(deadlock);
    result = failure(error);
  }
  await untilReady(seat);
  return { result, deadlocks: deadlocks.size, deadlockedPids: [...deadlocks].flatMap(pidsInDeadlock) };
}

/** Both sides of a deadlock waited, but it can be over before the lock table is read: the error names them. */
function pidsInDeadlock(error: unknown): number[] {
  const detail = error instanceof Error && 'detail' in error ? String(error.detail) : '';
  return [...detail.matchAll(/process (\d+)/gi)].map((match) => Number(match[1]));
}

/**
 * A failed statement is reported before its transaction is rolled back and its locks are released. The response to an
 * empty query, which a failed transaction accepts too, comes after that.
 */
async function untilReady(seat: Seat): Promise<void> {
  await seat.client.query('').catch(() => {});
}

function failure(error: unknown): StepResult {
  const message = error instanceof Error ? error.message : String(error);
  const code = codeOf(error);
  return code === undefined ? { ok: false, message } : { ok: false, code, message };
}

function codeOf(error: unknown): string | undefined {
  const code = error instanceof Error && 'code' in error ? error.code : undefined;
  return typeof code === 'string' ? code : undefined;
}

/** Code under test may wrap the database's error, with a cause or its SQLSTATE. */
function findDeadlock(error: unknown): unknown {
  let one = error;
  for (let depth = 0; depth < MAX_CAUSES && one instanceof Error; depth += 1) {
    if (codeOf(one) === DEADLOCK_DETECTED) return one;
    if ('sqlState' in one && one.sqlState === DEADLOCK_DETECTED) return one;
    one = one.cause;
  }
  return undefined;
}

/** Makes a session release everything it holds. True when it had a transaction open. */
export async function freeSeat(seat: Seat, controller: Client): Promise<boolean> {
  const wasOpen = seat.client.getTransactionStatus() !== 'I';
  try {
    if (wasOpen) await seat.client.query('ROLLBACK');
    await seat.client.query('SELECT pg_catalog.pg_advisory_unlock_all()');
  } catch {
    seat.lost = true;
    await terminate(seat, controller);
  }
  return wasOpen;
}

/** Closes a session, including one whose step is blocked on a lock and would not notice that its client is gone. */
export async function closeSeat(seat: Seat, controller: Client): Promise<void> {
  if (seat.running !== null) await terminate(seat, controller);
  await seat.client.end();
}

/** Returns when the backend and its locks are gone. One that is already gone is fine. */
async function terminate(seat: Seat, controller: Client): Promise<void> {
  const sql = 'SELECT pg_catalog.pg_terminate_backend($1::int, $2::bigint)';
  await controller.query(sql, [seat.pid, TERMINATE_LIMIT_MS]).catch(() => {});
}
