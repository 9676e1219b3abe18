/**
 * Executions by the beginning of their ids, and the neighbours of ids. Every read walks a primary key, from one end of a
 * range and no further than the rows it returns.
 */
import type { IdRange } from '../../contract/ids.ts';
import type { ExecutionSummary } from '../../contract/operations.ts';
import { columns, inSchema } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import { readUncompiled } from '../database/uncompiled.ts';
import { LEASE_OF_E, OUTCOME_OF_E, ROUTE_OF_E, SUMMARY } from './lists.sql.ts';

/** The highest ids of the range first. */
export function findExecutions(
  database: Database,
  { from, to, partition }: IdRange,
  limit: number,
): Promise<ExecutionSummary[]> {
  return run(database, {
    doing: 'finding executions',
    columns: SUMMARY,
    text: inSchema(
      database,
      `WITH clock AS MATERIALIZED (SELECT s.ff_now_ms() AS now_ms)
       SELECT ${SUMMARY.list}
       FROM (
         SELECT * FROM s.ff_execution
         WHERE execution_id BETWEEN $1 AND $2 AND ($3::smallint IS NULL OR partition_key = $3)
         ORDER BY execution_id DESC LIMIT $4) e
       ${ROUTE_OF_E} ${LEASE_OF_E} ${OUTCOME_OF_E} ORDER BY e.execution_id DESC`,
    ),
    params: [from, to, partition, limit],
    repeatable: 'yes',
  });
}

/** A uuid and the ids beside it, of executions and of flows. */
export interface Neighbours {
  uuid: string;
  /** Whether an execution or a flow has it. */
  isKnown: boolean;
  neighbours: string[];
}

const NEIGHBOURS = columns<Neighbours>({
  uuid: 'x.id',
  isKnown: `EXISTS (SELECT 1 FROM s.ff_execution WHERE execution_id = x.id)
    OR EXISTS (SELECT 1 FROM s.ff_flow WHERE flow_id = x.id)`,
  neighbours: `to_jsonb(array_remove(ARRAY[
    (SELECT execution_id FROM s.ff_execution WHERE execution_id < x.id ORDER BY execution_id DESC LIMIT 1),
    (SELECT execution_id FROM s.ff_execution WHERE execution_id > x.id ORDER BY execution_id LIMIT 1),
    (SELECT flow_id FROM s.ff_flow WHERE flow_id < x.id ORDER BY flow_id DESC LIMIT 1),
    (SELECT flow_id FROM s.ff_flow WHERE flow_id > x.id ORDER BY flow_id LIMIT 1)], NULL))`,
});

export function readNeighbours(database: Database, uuids: readonly string[]): Promise<Neighbours[]> {
  return readUncompiled(database, {
    doing: 'shortening ids',
    columns: NEIGHBOURS,
    text: inSchema(database, `SELECT ${NEIGHBOURS.list} FROM unnest($1::uuid[]) x(id)`),
    params: [uuids],
    repeatable: 'yes',
  });
}
