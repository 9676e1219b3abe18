/**
 * Calls the SQL of the order in which handlers were handed ends.
 */
import { run, type Database } from '../database/database.ts';
import {
  jsonValues,
  JSON_VALUES,
  LEASE_ARRAYS,
  leaseArrays,
  type ExecutionKey,
  type LeaseAnswer,
  type LeaseKey,
} from '../executions/executions.sql.ts';

export interface OrderRow extends LeaseKey {
  place: number;
  ends: readonly string[];
}

export function recordOrders(database: Database, rows: readonly OrderRow[]): Promise<LeaseAnswer[]> {
  return run<LeaseAnswer>(database, {
    doing: 'recording the order of ends',
    text: `SELECT * FROM ${database.prefix}ff_record_orders(${LEASE_ARRAYS}, $5::integer[], ${JSON_VALUES('$6')})`,
    params: [
      ...leaseArrays(rows),
      rows.map((row) => row.place),
      jsonValues(rows.map((row) => JSON.stringify(row.ends))),
    ],
    repeatable: 'yes',
  });
}

export interface StoredOrder {
  place: number;
  ends: string[];
}

/** In the order they were written. */
export function readOrders(database: Database, key: ExecutionKey): Promise<StoredOrder[]> {
  return run<StoredOrder>(database, {
    doing: 'reading the order of ends',
    text: `SELECT place, ends FROM ${database.prefix}ff_end_order
           WHERE execution_id = $1 AND partition_key = $2 ORDER BY lease_epoch, place`,
    params: [key.uuid, key.partition],
    repeatable: 'yes',
  });
}
