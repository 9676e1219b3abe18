/**
 * Calls the SQL functions of streams and reads frames, heads and documents. Nothing here decides anything.
 */
import type {
  AttemptOutcome,
  BlockingReason,
  LifecyclePhase,
  TerminalOutcome,
} from '../../contract/states.ts';
import type { FrameEncoding, FrameMode, StreamCloseReason } from '../../contract/streams.ts';
import type { EncodedFrame } from '../../model/frames.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey, LeaseKey } from '../executions/executions.sql.ts';

export interface AppendCall {
  lease: LeaseKey;
  appendId: string;
  frames: readonly EncodedFrame[];
  ttlMs: number;
  floor: number;
  ceiling: number;
  alpha: number;
  maxDocumentBytes: number;
}

export interface AppendAnswer {
  outcome: string;
  lifecycle_phase: LifecyclePhase;
  terminal_outcome: TerminalOutcome;
  lease_epoch: number;
  ts_ms: number;
  last_seq: number;
  total_bytes: number;
  summary_version: number | null;
}

/** Repeatable, because the call is named. */
export async function appendFrames(database: Database, call: AppendCall): Promise<AppendAnswer> {
  const { lease, frames } = call;
  const rows = await run<AppendAnswer>(database, {
    doing: 'appending frames',
    text: `SELECT * FROM ${database.prefix}ff_append_frames($1::uuid, $2::smallint, $3::integer, $4::bigint, $5::uuid, $6::text[],
      $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::integer[], $13::bytea[], $14::bigint, $15::integer,
      $16::integer, $17::double precision, $18::integer)`,
    params: [
      lease.uuid,
      lease.partition,
      lease.attemptIndex,
      lease.leaseEpoch,
      call.appendId,
      frames.map((frame) => frame.mode),
      frames.map((frame) => frame.encoding),
      frames.map((frame) => frame.frameType),
      frames.map((frame) => frame.correlationId ?? null),
      frames.map((frame) => frame.step?.name ?? null),
      frames.map((frame) => frame.step?.key ?? null),
      frames.map((frame) => frame.step?.tryIndex ?? null),
      frames.map(({ payload }) => Buffer.from(payload.buffer, payload.byteOffset, payload.byteLength)),
      call.ttlMs,
      call.floor,
      call.ceiling,
      call.alpha,
      call.maxDocumentBytes,
    ],
    repeatable: 'yes',
  });
  return rows[0]!;
}

/** A place between frames. */
export interface FramePlace {
  tsMs: number;
  seq: number;
}

export interface StoredFrame {
  ts_ms: number;
  seq: number;
  lease_epoch: number;
  mode: FrameMode;
  encoding: FrameEncoding;
  frame_type: string;
  correlation_id: string | null;
  step_name: string | null;
  step_key: string | null;
  step_try: number | null;
  summary_version: number | null;
  payload: Buffer;
}

/** What is known of a stream besides its frames. Members are null for an attempt that has written nothing. */
export interface StreamHead {
  /** Where the execution is. */
  lifecycle_phase: LifecyclePhase;
  current_attempt: number;
  attempt_index: number;
  last_seq: number | null;
  last_ts_ms: number | null;
  total_bytes: number | null;
  /** Why the attempt has no worker, while it is to go on; and the lease it runs under. */
  paused_by: BlockingReason | null;
  active_epoch: number | null;
  closed_at_ms: number | null;
  closed_reason: StreamCloseReason | null;
  /** How an attempt that wrote nothing ended, if it has; and the execution with it, if nobody had begun it. */
  attempt_outcome: AttemptOutcome | null;
  terminal_outcome: Exclude<TerminalOutcome, 'none'> | null;
  interrupted_by: 'expired' | 'revoked' | null;
  ended_at_ms: number | null;
}

export interface FrameRange {
  /** Null: the one the execution is in. */
  attemptIndex: number | null;
  /** Both ends belong to it. */
  from: FramePlace;
  to: FramePlace;
  limit: number;
  /** One frame comes however large it is. */
  maxBytes: number;
  order: 'forward' | 'backward';
  modes: readonly FrameMode[] | null;
}

const FRAME = `f.ts_ms, f.seq, f.lease_epoch, f.mode::text, f.encoding::text, f.frame_type, f.correlation_id, f.step_name, f.step_key, f.step_try,
  f.summary_version, f.payload`;

const HEAD = `e.lifecycle_phase::text, e.attempt_index AS current_attempt, a.attempt_index, m.last_seq, m.last_append_ts_ms AS last_ts_ms,
  m.total_bytes,
  CASE WHEN e.attempt_index = a.attempt_index AND e.attempt_state = 'attempt_interrupted' THEN e.blocking_reason::text END AS paused_by,
  CASE WHEN e.attempt_index = a.attempt_index AND e.lifecycle_phase = 'active' THEN e.lease_epoch END AS active_epoch,
  m.closed_at_ms, m.closed_reason, h.outcome::text AS attempt_outcome, o.outcome::text AS terminal_outcome, h.interrupted_by,
  coalesce(h.ended_at_ms, o.ended_at_ms) AS ended_at_ms`;

const ITS_HEAD = (prefix: string): string => `
  LEFT JOIN ${prefix}ff_stream_meta m ON m.execution_id = e.execution_id AND m.attempt_index = a.attempt_index
  LEFT JOIN ${prefix}ff_attempt_history h ON h.execution_id = e.execution_id AND h.partition_key = e.partition_key
    AND h.attempt_index = a.attempt_index
  LEFT JOIN ${prefix}ff_outcome o ON o.execution_id = e.execution_id AND o.partition_key = e.partition_key
    AND o.attempt_index = a.attempt_index AND e.lifecycle_phase = 'terminal'`;

/** The head and the frames of a range, as of one moment. Undefined when there is no such execution. */
export async function readFrames(
  database: Database,
  key: ExecutionKey,
  range: FrameRange,
): Promise<{ head: StreamHead; frames: StoredFrame[]; isComplete: boolean } | undefined> {
  const { prefix } = database;
  const order = range.order === 'forward' ? 'ASC' : 'DESC';
  const rows = await run<StreamHead & StoredFrame & { found: number }>(database, {
    doing: 'reading a stream',
    text: `SELECT ${HEAD}, ${FRAME}, f.found
           FROM ${prefix}ff_execution e
           CROSS JOIN LATERAL (SELECT coalesce($3::integer, e.attempt_index) AS attempt_index) a ${ITS_HEAD(prefix)}
           LEFT JOIN LATERAL (
             SELECT * FROM (
               SELECT p.*, count(*) OVER () AS found, octet_length(p.payload) AS size,
                      sum(octet_length(p.payload)) OVER (ORDER BY p.ts_ms ${order}, p.seq ${order}) AS bytes
               FROM (
                 SELECT * FROM ${prefix}ff_frame x
                 WHERE x.execution_id = e.execution_id AND x.attempt_index = a.attempt_index
                   AND (x.ts_ms, x.seq) >= ($4::bigint, $5::bigint) AND (x.ts_ms, x.seq) <= ($6::bigint, $7::bigint)
                   AND ($8::text[] IS NULL OR x.mode::text = ANY ($8::text[]))
                 ORDER BY x.ts_ms ${order}, x.seq ${order} LIMIT $9 + 1) p) p
             WHERE p.bytes <= $10 OR p.bytes = p.size) f ON true
           WHERE e.execution_id = $1 AND e.partition_key = $2
           ORDER BY f.ts_ms ${order}, f.seq ${order}`,
    params: [
      key.uuid,
      key.partition,
      range.attemptIndex,
      range.from.tsMs,
      range.from.seq,
      range.to.tsMs,
      range.to.seq,
      range.modes,
      range.limit,
      range.maxBytes,
    ],
    repeatable: 'yes',
  });
  const [head] = rows;
  if (head === undefined) return undefined;
  const frames = rows.filter((row) => row.seq !== null);
  const found = frames[0]?.found ?? 0;
  // One more than asked for is looked for, and not handed out.
  const isComplete = frames.length === found && found <= range.limit;
  return { head, frames: frames.slice(0, range.limit), isComplete };
}

/** The heads of streams that are parked at, by their place among the keys; those of executions that are gone are missing. */
export function readHeads(
  database: Database,
  keys: readonly (ExecutionKey & { attemptIndex: number })[],
): Promise<(StreamHead & { place: number })[]> {
  const { prefix } = database;
  return run<StreamHead & { place: number }>(database, {
    doing: 'looking at streams',
    text: `SELECT a.place, ${HEAD}
           FROM unnest($1::uuid[], $2::smallint[], $3::integer[]) WITH ORDINALITY a(uuid, part, attempt_index, place)
           JOIN ${prefix}ff_execution e ON e.execution_id = a.uuid AND e.partition_key = a.part ${ITS_HEAD(prefix)}`,
    params: [
      keys.map((key) => key.uuid),
      keys.map((key) => key.partition),
      keys.map((key) => key.attemptIndex),
    ],
    repeatable: 'yes',
  });
}

/** The lease a frame was written under, or the last before it. Null when there is none. */
export async function epochAt(
  database: Database,
  key: ExecutionKey,
  attemptIndex: number,
  place: FramePlace,
): Promise<number | null> {
  const rows = await run<{ lease_epoch: number }>(database, {
    doing: 'reading a stream',
    text: `SELECT lease_epoch FROM ${database.prefix}ff_frame
           WHERE execution_id = $1 AND attempt_index = $2 AND (ts_ms, seq) <= ($3::bigint, $4::bigint)
           ORDER BY ts_ms DESC, seq DESC LIMIT 1`,
    params: [key.uuid, attemptIndex, place.tsMs, place.seq],
    repeatable: 'yes',
  });
  return rows[0]?.lease_epoch ?? null;
}

/**
 * The steps that earlier leases have finished and in which frames of an attempt were written: those are not written again. A step that
 * this lease or a later one, or a later attempt, has finished was run again.
 */
export function readFinishedSteps(
  database: Database,
  key: ExecutionKey,
  attemptIndex: number,
  beforeEpoch: number,
): Promise<{ name: string; key: string }[]> {
  const { prefix } = database;
  return run<{ name: string; key: string }>(database, {
    doing: 'reading finished steps',
    text: `SELECT s.name, s.key FROM (
             SELECT DISTINCT step_name, step_key FROM ${prefix}ff_frame
             WHERE execution_id = $1 AND attempt_index = $2 AND lease_epoch < $3 AND step_name IS NOT NULL) f
           JOIN ${prefix}ff_step s ON s.execution_id = $1 AND s.retired_by = 0 AND s.name = f.step_name AND s.key = f.step_key
             AND s.lease_epoch < $3 AND s.attempt_index <= $2
           ORDER BY s.name, s.key`,
    params: [key.uuid, attemptIndex, beforeEpoch],
    repeatable: 'yes',
  });
}

export interface StoredSummary {
  current_attempt: number;
  attempt_index: number | null;
  document_json: unknown;
  version: number;
  first_applied_ms: number;
  last_updated_ms: number;
  /** The last frame of the stream at that moment. */
  last_seq: number;
  last_ts_ms: number;
}

/** Undefined when there is no such execution; with a null attempt when it has no document. */
export async function readSummary(
  database: Database,
  key: ExecutionKey,
  attemptIndex: number | null,
): Promise<StoredSummary | undefined> {
  const { prefix } = database;
  const rows = await run<StoredSummary>(database, {
    doing: 'reading a summary',
    text: `SELECT e.attempt_index AS current_attempt, y.attempt_index, y.document_json, y.version, y.first_applied_ms, y.last_updated_ms,
                  m.last_seq, m.last_append_ts_ms AS last_ts_ms
           FROM ${prefix}ff_execution e
           LEFT JOIN ${prefix}ff_stream_summary y ON y.execution_id = e.execution_id
             AND y.attempt_index = coalesce($3::integer, e.attempt_index)
           LEFT JOIN ${prefix}ff_stream_meta m ON m.execution_id = e.execution_id AND m.attempt_index = y.attempt_index
           WHERE e.execution_id = $1 AND e.partition_key = $2`,
    params: [key.uuid, key.partition, attemptIndex],
    repeatable: 'yes',
  });
  return rows[0];
}
