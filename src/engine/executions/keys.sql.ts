/**
 * Reads which execution a key names. A plain statement without locks: what it returns was true when it ran.
 */
import type { KeyedExecution } from '../../contract/executions.ts';
import { columns, idText, inSchema } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';

const KEYED = columns<KeyedExecution>({
  executionId: idText('e.partition_key', 'e.execution_id'),
  kind: 'r.kind',
});

export async function readKey(
  database: Database,
  place: { namespace: string; key: string; partition: number },
): Promise<KeyedExecution | undefined> {
  const rows = await run(database, {
    doing: 'looking up a key',
    columns: KEYED,
    text: inSchema(
      database,
      `SELECT ${KEYED.list}
       FROM s.ff_key k
       JOIN s.ff_execution e ON e.execution_id = k.execution_id
       JOIN s.ff_route r ON r.route_id = e.route_id
       WHERE k.namespace = $1 AND k.key = $2 AND k.partition_key = $3`,
    ),
    params: [place.namespace, place.key, place.partition],
    repeatable: 'yes',
  });
  return rows[0];
}
