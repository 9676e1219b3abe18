/**
 * Calls the SQL that stores and reads the order in which handlers received outcomes.
 */
import type { EndOrder } from '../../contract/steps.ts';
import { columnsOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import {
  jsonValues,
  JSON_VALUES,
  LEASE_ARRAYS,
  leaseArrays,
  leaseCall,
  type ExecutionKey,
  type LeaseAnswer,
  type LeaseKey,
} from '../executions/executions.sql.ts';

export type OrderRow = LeaseKey & EndOrder;

export function recordOrders(database: Database, rows: readonly OrderRow[]): Promise<LeaseAnswer[]> {
  return run(database, {
    doing: 'recording the order of outcomes',
    ...leaseCall(database, `ff_record_orders(${LEASE_ARRAYS}, $5::integer[], ${JSON_VALUES('$6')})`),
    params: [
      ...leaseArrays(rows),
      rows.map((row) => row.place),
      jsonValues(rows.map((row) => JSON.stringify(row.ends))),
    ],
    repeatable: 'yes',
  });
}

const ORDER = columnsOf<EndOrder>()('place', 'ends');

/** In the order they were recorded. */
export function readOrders(database: Database, key: ExecutionKey): Promise<EndOrder[]> {
  return run(database, {
    doing: 'reading the order of outcomes',
    columns: ORDER,
    text: `SELECT ${ORDER.list} FROM ${database.prefix}ff_end_order
           WHERE execution_id = $1 AND partition_key = $2 ORDER BY lease_epoch, place`,
    params: [key.uuid, key.partition],
    repeatable: 'yes',
  });
}
