/**
 * Calls the SQL functions that let children end with their parent, and begin again with it.
 */
import { LIMITS } from '../../contract/limits.ts';
import { columnsOf, type RowOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { Answered } from '../executions/answered.sql.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';

/** `left`: another process is doing it, or it is done. */
export type FamilyPart = 'done' | 'more' | 'held' | 'left';

/** How many children one part looks at. */
const EXAMINED = 5_000;
/** Within this time the next part must follow, or another process takes over. */
const KEEP_MS = 5_000;
/** When to try again after somebody held the parent or a child. */
const HELD_MS = 250;

const SETTLED = columnsOf<Answered>()('uuid', 'outcome', 'routeId', 'workerInstanceId');
type SettledChild = RowOf<typeof SETTLED>;

/** Does the next part of what a parent's end or replay means for its children. */
export async function settleFamily(
  database: Database,
  timerId: number,
): Promise<{ outcome: FamilyPart; children: SettledChild[] }> {
  const rows = await run(database, {
    doing: 'ending children with their parent',
    columns: SETTLED,
    text: `SELECT ${SETTLED.list} FROM ${database.prefix}ff_settle_family($1, $2, $3, $4, $5)`,
    params: [timerId, LIMITS.familyPart, EXAMINED, KEEP_MS, HELD_MS],
    repeatable: 'yes',
  });
  const said = rows.find((row) => row.uuid === null) as { outcome: string } | undefined;
  return { outcome: said!.outcome as FamilyPart, children: rows.filter((row) => row.uuid !== null) };
}

/** Replays children that had ended with their parent, which runs again. Some may be held by somebody else. */
export function settleChildren(
  database: Database,
  parent: ExecutionKey,
  children: readonly string[],
): Promise<SettledChild[]> {
  return run(database, {
    doing: 'replaying children with their parent',
    columns: SETTLED,
    text: `SELECT ${SETTLED.list} FROM ${database.prefix}ff_settle_children($1::uuid, $2::smallint, $3::uuid[])`,
    params: [parent.uuid, parent.partition, children],
    repeatable: 'yes',
  });
}

const KEPT = columnsOf<{ uuid: string }>()('uuid');

/** The children of earlier generations that a parent begun anew has kept. */
export async function listKeptChildren(database: Database, parent: ExecutionKey): Promise<string[]> {
  const rows = await run(database, {
    doing: 'reading kept children',
    columns: KEPT,
    text: `SELECT ${KEPT.list} FROM ${database.prefix}ff_kept_children($1::uuid, $2::smallint)`,
    params: [parent.uuid, parent.partition],
    repeatable: 'yes',
  });
  return rows.map(({ uuid }) => uuid);
}
