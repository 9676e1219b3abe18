/**
 * Rows that a session keeps locked for longer than others should wait: which session it is, and statements for an
 * operator that report it instead of waiting. The session's query is never shown, since it may quote data.
 */
import { EngineError } from '../../contract/errors.ts';
import type { ExecutionId } from '../../contract/ids.ts';
import { nameSession, type SessionFacts } from '../../model/gates/held.ts';
import { firstOf } from '../../model/wording.ts';
import { columns, columnsOf, idText, withColumns } from './columns.ts';
import { isLockTimeout, LOCK_TIMEOUT, run, type Database, type Statement } from './database.ts';

const SESSION = columnsOf<SessionFacts>('h')('pid', 'ageMs', 'doing');

/** The oldest first. */
export function readHolders(database: Database, uuids: readonly string[]): Promise<SessionFacts[]> {
  return run(database, {
    doing: 'finding the sessions that lock executions',
    columns: SESSION,
    text: `SELECT ${SESSION.list} FROM ${database.prefix}ff_holders($1::uuid[]) h`,
    params: [uuids],
    repeatable: 'yes',
  });
}

export interface HeldFacts {
  /** Sessions that lock running or overdue executions, the oldest first. */
  sessions: (SessionFacts & { executionIds: ExecutionId[] })[];
}

const HELD = withColumns(
  SESSION,
  columns<{ executionId: ExecutionId }>({ executionId: idText('e.partition_key', 'e.execution_id') }),
);

/** Executions examined of each kind: those with a lease, and those with an overdue timer. */
const HELD_EXAMINED = 1_000;

export async function readHeld(database: Database, overdueMs: number): Promise<HeldFacts> {
  const { prefix } = database;
  const rows = await run(database, {
    doing: 'finding locked executions',
    columns: HELD,
    text: `SELECT ${HELD.list}
           FROM ${prefix}ff_holders(ARRAY(
             (SELECT e.execution_id FROM ${prefix}ff_grant g, unnest(g.execution_ids) x(id)
                JOIN ${prefix}ff_execution e ON e.execution_id = x.id
              WHERE e.claim_no = g.claim_no AND e.xmax::text <> '0' LIMIT $1)
             UNION
             (SELECT execution_id FROM ${prefix}ff_timer WHERE due_at_ms < ${prefix}ff_now_ms() - $2::bigint
              ORDER BY due_at_ms LIMIT $1))) h
           JOIN ${prefix}ff_execution e USING (execution_id) ORDER BY h.age_ms DESC NULLS LAST, h.execution_id`,
    params: [HELD_EXAMINED, overdueMs],
    repeatable: 'yes',
  });
  const sessions = new Map<number, HeldFacts['sessions'][number]>();
  for (const { executionId, ...session } of rows) {
    if (!sessions.has(session.pid)) sessions.set(session.pid, { ...session, executionIds: [] });
    sessions.get(session.pid)!.executionIds.push(executionId);
  }
  return { sessions: [...sessions.values()] };
}

/** Runs a statement for an operator. Its SQL function limits how long it waits for a row. */
export async function runForPerson<Row>(
  database: Database,
  statement: Statement<Row>,
  uuids: readonly string[],
): Promise<Row[]> {
  try {
    return await run<Row>(database, { ...statement, waits: 'once' });
  } catch (error) {
    if (!isLockTimeout(error)) throw error;
    const holders = await readHolders(database, uuids).catch(() => []);
    const message = `While ${statement.doing}: ${describeHolders(holders)} Nothing was changed.`;
    throw new EngineError('contention', message, { cause: error.cause, sqlState: LOCK_TIMEOUT });
  }
}

function describeHolders(holders: readonly SessionFacts[]): string {
  const sessions = [...new Map(holders.map((holder) => [holder.pid, holder])).values()];
  if (sessions.length === 0)
    return 'another session locked the row for too long and has released it: try again.';
  const named = sessions.map((session) => nameSession(session, 'session'));
  return `the row is locked by ${firstOf(named, '; ')}. Try again when its transaction has ended, or end the session with pg_terminate_backend.`;
}
