/**
 * Reads what an execution has written, for a handler that runs again: to compare it, and to fold patches in the order of
 * the handler. Only statements, no decisions. Whatever the current lease has written itself is left out.
 */
import type { WrittenFrame } from '../../contract/streams.ts';
import { columns, columnsOf, inSchema, type RowOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { LeaseKey } from '../executions/executions.sql.ts';
import type { FramePlace } from './streams.sql.ts';

const OUTSIDE = columns<FramePlace & Omit<WrittenFrame, 'id'> & { supersedes: string | null }>({
  tsMs: 'ts_ms',
  seq: 'seq',
  mode: 'mode::text',
  frameType: 'frame_type',
  supersedes: 'supersedes',
  digest: "concat(encoding, ':', encode(sha256(payload), 'hex'))",
});
export type OutsideFrame = RowOf<typeof OUTSIDE>;

/** Reads a page of what the attempt has written outside of steps, in order. */
export function readOutside(
  database: Database,
  { uuid, attemptIndex, leaseEpoch }: LeaseKey,
  after: FramePlace,
  limit: number,
): Promise<OutsideFrame[]> {
  return run(database, {
    doing: 'reading what was written',
    columns: OUTSIDE,
    text: inSchema(
      database,
      `SELECT ${OUTSIDE.list} FROM s.ff_frame
       WHERE execution_id = $1 AND attempt_index = $2 AND lease_epoch < $3 AND (ts_ms, seq) > ($4::bigint, $5::bigint)
         AND step_name IS NULL AND child_id IS NULL AND mode <> 'best_effort'
       ORDER BY ts_ms, seq LIMIT $6`,
    ),
    params: [uuid, attemptIndex, leaseEpoch, after.tsMs, after.seq, limit],
    repeatable: 'yes',
  });
}

const STEPPED = columnsOf<{ name: string; key: string }>('f')('name', 'key');

/** Reads the steps that wrote frames in earlier attempts and are finished. */
export function readEarlierSteps(
  database: Database,
  { uuid, attemptIndex }: LeaseKey,
): Promise<RowOf<typeof STEPPED>[]> {
  return run(database, {
    doing: 'reading what was written',
    columns: STEPPED,
    text: inSchema(
      database,
      `SELECT ${STEPPED.list} FROM (
         SELECT DISTINCT t.name, t.key FROM (
           SELECT DISTINCT attempt_index, lease_epoch, step_name, step_key FROM s.ff_frame
           WHERE execution_id = $1 AND attempt_index < $2 AND step_name IS NOT NULL AND mode <> 'best_effort') x
         JOIN s.ff_step t ON t.execution_id = $1 AND t.retired_by = 0 AND t.name = x.step_name AND t.key = x.step_key
           AND t.attempt_index = x.attempt_index AND t.lease_epoch = x.lease_epoch) f`,
    ),
    params: [uuid, attemptIndex],
    repeatable: 'yes',
  });
}

const PATCH = columns<{
  attemptIndex: number;
  tsMs: number;
  seq: number;
  stepName: string | null;
  stepKey: string | null;
  childId: string | null;
  frameType: string;
  supersedes: string | null;
  kept: boolean;
  patch: string | null;
}>({
  attemptIndex: 'x.attempt_index',
  tsMs: 'x.ts_ms',
  seq: 'x.seq',
  stepName: 'x.step_name',
  stepKey: 'x.step_key',
  childId: 'x.child_id',
  frameType: 'x.frame_type',
  supersedes: 'x.supersedes',
  kept: 'x.child_id IS NOT NULL OR t.name IS NOT NULL',
  patch: `CASE WHEN $4::boolean THEN convert_from(x.payload, 'UTF8') END`,
});
export type PatchRow = RowOf<typeof PATCH>;

/** Reads the patches of all attempts in the order they were written, with their payloads if asked. */
export function readPatchRows(
  database: Database,
  { uuid, leaseEpoch }: LeaseKey,
  { limit, whole }: { limit: number; whole: boolean },
): Promise<PatchRow[]> {
  return run(database, {
    doing: 'reading what was written',
    columns: PATCH,
    text: inSchema(
      database,
      `SELECT ${PATCH.list} FROM (
         SELECT * FROM s.ff_frame WHERE execution_id = $1 AND mode = 'summary' AND (child_id IS NOT NULL OR lease_epoch < $2)
         ORDER BY attempt_index, seq LIMIT $3) x
       LEFT JOIN s.ff_step t ON t.execution_id = $1 AND t.retired_by = 0 AND t.name = x.step_name AND t.key = x.step_key
         AND t.attempt_index = x.attempt_index AND t.lease_epoch = x.lease_epoch
       ORDER BY x.attempt_index, x.seq`,
    ),
    params: [uuid, leaseEpoch, limit, whole],
    repeatable: 'yes',
  });
}
