/**
 * Rows that a session holds for longer than whoever wants them should wait: who it is, and statements on behalf of a person that say so
 * instead of waiting. Never what the session said: that may quote data.
 */
import { EngineError } from '../../contract/errors.ts';
import { formatExecutionId, type ExecutionId } from '../../contract/ids.ts';
import { nameSession, type SessionDoing, type SessionFacts } from '../../model/gates/held.ts';
import { firstOf } from '../../model/wording.ts';
import { isLockTimeout, LOCK_TIMEOUT, run, type Database, type Statement } from './database.ts';

export interface Holder {
  execution_id: string;
  pid: number;
  /** Of its transaction. Null, as what it does: a session of a role this one may not look at. */
  age_ms: number | null;
  doing: SessionDoing | null;
}

/** The oldest first. */
export function readHolders(database: Database, uuids: readonly string[]): Promise<Holder[]> {
  return run<Holder>(database, {
    doing: 'looking who holds executions',
    text: `SELECT execution_id, pid, age_ms, doing FROM ${database.prefix}ff_holders($1::uuid[])`,
    params: [uuids],
    repeatable: 'yes',
  });
}

export interface HeldFacts {
  /** Sessions that hold executions which run or are overdue, the oldest first. */
  sessions: (SessionFacts & { executionIds: ExecutionId[] })[];
}

/** Executions looked at of each kind: those with a lease, and those with a timer that is late. */
const HELD_EXAMINED = 1_000;

export async function readHeld(database: Database, overdueMs: number): Promise<HeldFacts> {
  const { prefix } = database;
  const rows = await run<Holder & { partition_key: number }>(database, {
    doing: 'looking for executions that are held',
    text: `SELECT h.execution_id, e.partition_key, h.pid, h.age_ms, h.doing
           FROM ${prefix}ff_holders(ARRAY(
             (SELECT execution_id FROM ${prefix}ff_lease WHERE xmax::text <> '0' LIMIT $1)
             UNION
             (SELECT execution_id FROM ${prefix}ff_timer WHERE due_at_ms < ${prefix}ff_now_ms() - $2::bigint
              ORDER BY due_at_ms LIMIT $1))) h
           JOIN ${prefix}ff_execution e USING (execution_id) ORDER BY h.age_ms DESC NULLS LAST, h.execution_id`,
    params: [HELD_EXAMINED, overdueMs],
    repeatable: 'yes',
  });
  const sessions = new Map<number, HeldFacts['sessions'][number]>();
  for (const { pid, age_ms: ageMs, doing, execution_id: uuid, partition_key: partition } of rows) {
    if (!sessions.has(pid)) sessions.set(pid, { pid, ageMs, doing, executionIds: [] });
    sessions.get(pid)!.executionIds.push(formatExecutionId(partition, uuid));
  }
  return { sessions: [...sessions.values()] };
}

/** Runs a statement for a person, whose function limits how long it waits for a row. */
export async function runForPerson<Row>(
  database: Database,
  statement: Statement,
  uuids: readonly string[],
): Promise<Row[]> {
  try {
    return await run<Row>(database, { ...statement, waits: 'once' });
  } catch (error) {
    if (!isLockTimeout(error)) throw error;
    const holders = await readHolders(database, uuids).catch(() => []);
    const message = `While ${statement.doing}: ${whoHolds(holders)} Nothing was changed.`;
    throw new EngineError('contention', message, { cause: error.cause, sqlState: LOCK_TIMEOUT });
  }
}

function whoHolds(holders: readonly Holder[]): string {
  const sessions = [...new Map(holders.map((holder) => [holder.pid, holder])).values()];
  if (sessions.length === 0) return 'somebody held a row of it for too long, and has let it go: try again.';
  const named = sessions.map(({ pid, age_ms: ageMs, doing }) =>
    nameSession({ pid, ageMs, doing }, 'session'),
  );
  return `the row is held by ${firstOf(named, '; ')}. Try again when that is over, or end the session with pg_terminate_backend.`;
}
