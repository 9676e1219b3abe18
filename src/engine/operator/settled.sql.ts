/**
 * Whether executions with some tags are open.
 */
import { columns } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';

/** The tag that is looked up, all tags, and in which namespace; null for any. */
export interface TaggedExecutions {
  tag: readonly [key: string, value: string];
  tags: Readonly<Record<string, string>>;
  namespace: string | null;
}

const OPEN = columns<{ [Key in keyof ExecutionKey]: ExecutionKey[Key] | null } & { crowded: boolean }>({
  uuid: 'execution_id',
  partition: 'partition_key',
  crowded: 'crowded',
});

/** The newest that has not ended. `crowded`: `most` were examined, and none of them is open. */
export async function findOpen(
  database: Database,
  { tag: [key, value], tags, namespace }: TaggedExecutions,
  most: number,
): Promise<{ open: ExecutionKey | undefined; crowded: boolean }> {
  const [found] = await run(database, {
    doing: 'looking for open executions with tags',
    columns: OPEN,
    text: `SELECT ${OPEN.list} FROM ${database.prefix}ff_find_open($1, $2, $3, $4, $5)`,
    params: [key, value, JSON.stringify(tags), namespace, most],
    repeatable: 'yes',
  });
  const { uuid, partition, crowded } = found!;
  return { open: uuid === null || partition === null ? undefined : { uuid, partition }, crowded };
}
