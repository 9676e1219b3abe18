/**
 * Reads frames, heads and documents. Only statements, no decisions.
 */
import type { AttemptRecord } from '../../contract/operations.ts';
import type { BlockingReason, LifecyclePhase, TerminalOutcome } from '../../contract/states.ts';
import type { FrameMode, StreamCloseReason, StreamFrame, StreamSummary } from '../../contract/streams.ts';
import { columns, columnsOf, partOf, withColumns, type RowOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';

/** A position in a stream. */
export interface FramePlace {
  tsMs: number;
  seq: number;
}

/** The state of a stream besides its frames. */
export interface StreamHead {
  lastTsMs: number;
  /** 0 when nothing was written. */
  lastSeq: number;
  totalBytes: number;
  /** Why the attempt has no worker, while it is paused. */
  pausedBy: BlockingReason | null;
  /** The epoch of its current lease. */
  activeEpoch: number | null;
  /** The lifecycle phase of its execution. */
  currentAttempt: number;
  phase: LifecyclePhase;
}

/** How and when the attempt finished, if it has. */
export interface AttemptEnd extends Pick<AttemptRecord, 'outcome' | 'interruptedBy' | 'endedAtMs'> {
  closedAtMs: number | null;
  closedReason: StreamCloseReason | null;
  /** The execution's outcome, if the attempt was never started. */
  terminalOutcome: Exclude<TerminalOutcome, 'none'> | null;
}

export interface FrameRange {
  /** Null: the current attempt. */
  attemptIndex: number | null;
  /** Both bounds are inclusive. */
  from: FramePlace;
  to: FramePlace;
  limit: number;
  /** At least one frame is returned, however large it is. */
  maxBytes: number;
  order: 'forward' | 'backward';
  modes: readonly FrameMode[] | null;
}

type Step = NonNullable<StreamFrame['step']>;

/** A frame before it is decoded. */
const FRAME = columns<
  Omit<StreamFrame, 'id' | 'attemptIndex' | 'step' | 'child' | 'after' | 'applied' | 'payload' | 'bytes'> &
    FramePlace & {
      stepName: Step['name'] | null;
      stepKey: Step['key'] | null;
      stepTry: Step['tryIndex'] | null;
      /** A uuid. */
      childId: string | null;
      afterSteps: [name: string, key: string][] | null;
      applied: Buffer | null;
      bytes: Buffer;
    }
>({
  tsMs: 'f.ts_ms',
  seq: 'f.seq',
  leaseEpoch: 'f.lease_epoch',
  mode: 'f.mode::text',
  encoding: 'f.encoding::text',
  frameType: 'f.frame_type',
  correlationId: 'f.correlation_id',
  stepName: 'f.step_name',
  stepKey: 'f.step_key',
  stepTry: 'f.step_try',
  summaryVersion: 'f.summary_version',
  childId: 'f.child_id',
  supersedes: 'f.supersedes',
  afterSteps: 'f.after_steps',
  applied: 'f.applied',
  bytes: 'f.payload',
});
export type StoredFrame = RowOf<typeof FRAME>;

const HEAD = columns<StreamHead>({
  lastTsMs: 'coalesce(m.last_append_ts_ms, 0)',
  lastSeq: 'coalesce(m.last_seq, 0)',
  totalBytes: 'coalesce(m.total_bytes, 0)',
  pausedBy: `CASE WHEN e.attempt_index = a.attempt_index AND e.attempt_state = 'attempt_interrupted'
    THEN e.blocking_reason::text END`,
  activeEpoch: `CASE WHEN e.attempt_index = a.attempt_index AND e.lifecycle_phase = 'active' THEN e.lease_epoch END`,
  currentAttempt: 'e.attempt_index',
  phase: 'e.lifecycle_phase::text',
});

const ATTEMPT_END = columns<AttemptEnd>({
  closedAtMs: 'm.closed_at_ms',
  closedReason: 'm.closed_reason',
  outcome: 'h.outcome::text',
  terminalOutcome: `CASE WHEN e.lifecycle_phase = 'terminal' THEN h.terminal_outcome::text END`,
  interruptedBy: 'h.interrupted_by',
  endedAtMs: 'h.ended_at_ms',
});
const HEAD_AND_END = withColumns(HEAD, ATTEMPT_END);

/** A head, and how the attempt finished. */
export interface StreamState {
  head: StreamHead;
  end: AttemptEnd;
}

function stateOf(row: RowOf<typeof HEAD_AND_END>): StreamState {
  return { head: partOf(HEAD, row), end: partOf(ATTEMPT_END, row) };
}

const ITS_HEAD = (prefix: string): string => `
  LEFT JOIN ${prefix}ff_stream_meta m ON m.execution_id = e.execution_id AND m.attempt_index = a.attempt_index
  LEFT JOIN ${prefix}ff_attempt_history h ON h.execution_id = e.execution_id AND h.partition_key = e.partition_key
    AND h.attempt_index = a.attempt_index`;

const READ = columnsOf<StreamHead & AttemptEnd & StoredFrame & { attemptIndex: number; found: number }>('r')(
  'attemptIndex',
  'lastTsMs',
  'lastSeq',
  'totalBytes',
  'pausedBy',
  'activeEpoch',
  'currentAttempt',
  'phase',
  'closedAtMs',
  'closedReason',
  'outcome',
  'terminalOutcome',
  'interruptedBy',
  'endedAtMs',
  'tsMs',
  'seq',
  'leaseEpoch',
  'mode',
  'encoding',
  'frameType',
  'correlationId',
  'stepName',
  'stepKey',
  'stepTry',
  'summaryVersion',
  'childId',
  'supersedes',
  'afterSteps',
  'applied',
  'bytes',
  'found',
);

/** The frames of a range and the state of the stream. */
export interface ReadFrames extends StreamState {
  attemptIndex: number;
  frames: StoredFrame[];
  isComplete: boolean;
}

/** Reads the head and the frames of a range in one snapshot. Undefined when the execution does not exist. */
export async function readFrames(
  database: Database,
  key: ExecutionKey,
  range: FrameRange,
): Promise<ReadFrames | undefined> {
  const rows = await run(database, {
    doing: 'reading a stream',
    columns: READ,
    text: `SELECT ${READ.list} FROM ${database.prefix}ff_read_frames($1::uuid, $2::smallint, $3::integer, $4::bigint, $5::bigint, $6::bigint,
      $7::bigint, $8::text[], $9::integer, $10::bigint, $11::boolean) r`,
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
      range.order === 'backward',
    ],
    repeatable: 'yes',
  });
  const [first] = rows;
  if (first === undefined) return undefined;
  const frames = rows.filter((row) => row.seq !== null);
  const found = frames[0]?.found ?? 0;
  return {
    ...stateOf(first),
    attemptIndex: first.attemptIndex,
    // One more than the limit is read to know whether there are more, and dropped.
    frames: frames.slice(0, range.limit).map((row) => partOf(FRAME, row)),
    isComplete: frames.length === found && found <= range.limit,
  };
}

const PARKED = withColumns(HEAD_AND_END, columnsOf<{ place: number }>('a')('place'));

/** Reads the heads of awaited streams, by their index among the keys; executions that are gone are missing. */
export async function readHeads(
  database: Database,
  keys: readonly (ExecutionKey & { attemptIndex: number })[],
): Promise<(StreamState & { place: number })[]> {
  const { prefix } = database;
  const rows = await run(database, {
    doing: 'polling streams',
    columns: PARKED,
    text: `SELECT ${PARKED.list}
           FROM unnest($1::uuid[], $2::smallint[], $3::integer[]) WITH ORDINALITY a(uuid, part, attempt_index, place)
           JOIN ${prefix}ff_execution e ON e.execution_id = a.uuid AND e.partition_key = a.part ${ITS_HEAD(prefix)}`,
    params: [
      keys.map((key) => key.uuid),
      keys.map((key) => key.partition),
      keys.map((key) => key.attemptIndex),
    ],
    repeatable: 'yes',
  });
  return rows.map((row) => ({ ...stateOf(row), place: row.place }));
}

/** Returns the lease epoch of a frame, or of the last one before it. Null when there is none. */
export async function epochAt(
  database: Database,
  key: ExecutionKey,
  attemptIndex: number,
  place: FramePlace,
): Promise<number | null> {
  const rows = await run<{ epoch: number }>(database, {
    doing: 'reading a stream',
    text: `SELECT lease_epoch AS epoch FROM ${database.prefix}ff_frame
           WHERE execution_id = $1 AND attempt_index = $2 AND (ts_ms, seq) <= ($3::bigint, $4::bigint)
           ORDER BY ts_ms DESC, seq DESC LIMIT 1`,
    params: [key.uuid, attemptIndex, place.tsMs, place.seq],
    repeatable: 'yes',
  });
  return rows[0]?.epoch ?? null;
}

const FINISHED = columnsOf<Step>('s')('name', 'key');

/**
 * Reads the steps with frames of an attempt that earlier leases have finished: those frames are not written again. A
 * step is finished by the lease that ran it: what it wrote under another one was written again.
 */
export function readFinishedSteps(
  database: Database,
  key: ExecutionKey,
  attemptIndex: number,
  beforeEpoch: number,
): Promise<RowOf<typeof FINISHED>[]> {
  const { prefix } = database;
  return run(database, {
    doing: 'reading finished steps',
    columns: FINISHED,
    text: `SELECT ${FINISHED.list} FROM (
             SELECT DISTINCT step_name, step_key, lease_epoch FROM ${prefix}ff_frame
             WHERE execution_id = $1 AND attempt_index = $2 AND lease_epoch < $3 AND step_name IS NOT NULL) f
           JOIN ${prefix}ff_step s ON s.execution_id = $1 AND s.retired_by = 0 AND s.name = f.step_name AND s.key = f.step_key
             AND s.lease_epoch = f.lease_epoch AND s.attempt_index = $2
           ORDER BY s.name, s.key`,
    params: [key.uuid, attemptIndex, beforeEpoch],
    repeatable: 'yes',
  });
}

/** The document, if there is one, and the last frame of the stream at that moment. */
const SUMMARY = columns<
  Omit<StreamSummary, 'attemptIndex' | 'patchKind'> & {
    currentAttempt: number;
    attemptIndex: number | null;
    place: FramePlace;
    /** What earlier attempts have left is not folded into it yet. */
    isBehind: boolean;
  }
>({
  currentAttempt: 'e.attempt_index',
  attemptIndex: 'y.attempt_index',
  document: 'y.document_json',
  version: 'y.version',
  firstAppliedAtMs: 'y.first_applied_ms',
  lastUpdatedAtMs: 'y.last_updated_ms',
  isBehind: 'y.refold_from IS NOT NULL',
  // An attempt may have a document that was carried into it, and no stream yet.
  place: "jsonb_build_object('tsMs', coalesce(m.last_append_ts_ms, 0), 'seq', coalesce(m.last_seq, 0))",
});

/** Folds what earlier attempts have left into the document of an attempt, so many patches of it. */
export async function refoldDocument(
  database: Database,
  key: ExecutionKey,
  attemptIndex: number,
  most: number,
): Promise<void> {
  await run(database, {
    doing: 'folding a summary',
    text: `SELECT ${database.prefix}ff_refold_stored($1::uuid, $2::integer, $3::integer)`,
    params: [key.uuid, attemptIndex, most],
    repeatable: 'yes',
  });
}

/** Undefined when the execution does not exist; with a null attempt when it has no document. */
export async function readSummary(
  database: Database,
  key: ExecutionKey,
  attemptIndex: number | null,
): Promise<RowOf<typeof SUMMARY> | undefined> {
  const { prefix } = database;
  const rows = await run(database, {
    doing: 'reading a summary',
    columns: SUMMARY,
    text: `SELECT ${SUMMARY.list}
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
