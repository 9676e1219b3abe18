/**
 * What streams are read from: frames after a place, decoded once for all who read them, and the heads of many streams at once.
 */
import { LIMITS } from '../../contract/limits.ts';
import type { BlockingReason, LifecyclePhase } from '../../contract/states.ts';
import type { StreamCloseReason, StreamFrame } from '../../contract/streams.ts';
import type { Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import {
  readFrames,
  readHeads,
  type FramePlace,
  type FrameRange,
  type StoredFrame,
  type StreamHead,
} from './streams.sql.ts';

export interface AttemptKey extends ExecutionKey {
  attemptIndex: number;
}

/** What there is to know of a stream besides its frames. */
export interface Head {
  lastTsMs: number;
  /** 0 when nothing was written. */
  lastSeq: number;
  totalBytes: number;
  /** Why the attempt has no worker, while it is to go on. */
  pausedBy: BlockingReason | null;
  /** Of the lease it runs under now. */
  activeEpoch: number | null;
  closed: { atMs: number; reason: StreamCloseReason } | null;
  /** Where its execution is. */
  currentAttempt: number;
  phase: LifecyclePhase;
}

export interface StreamRead {
  attemptIndex: number;
  frames: readonly StreamFrame[];
  /** Whether there are no more, as of this read. */
  isComplete: boolean;
  head: Head;
}

export interface StreamSource {
  /** Frames after a place; undefined when the execution is gone. */
  after(key: AttemptKey, place: FramePlace, limit: number): Promise<StreamRead | undefined>;
  /** By their place among the keys. */
  heads(keys: readonly AttemptKey[]): Promise<Map<number, Head>>;
}

export const END_PLACE: FramePlace = { tsMs: Number.MAX_SAFE_INTEGER, seq: Number.MAX_SAFE_INTEGER };

export class DatabaseStreams implements StreamSource {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  after(key: AttemptKey, place: FramePlace, limit: number): Promise<StreamRead | undefined> {
    return this.range(key, {
      attemptIndex: key.attemptIndex,
      from: { tsMs: place.tsMs, seq: place.seq + 1 },
      to: END_PLACE,
      limit,
      maxBytes: LIMITS.streamPageBytes,
      order: 'forward',
      modes: null,
    });
  }

  async range(key: ExecutionKey, range: FrameRange): Promise<StreamRead | undefined> {
    const found = await readFrames(this.#database, key, range);
    if (found === undefined) return undefined;
    const attemptIndex = found.head.attempt_index;
    return {
      attemptIndex,
      frames: found.frames.map((row) => decodeFrame(row, attemptIndex)),
      isComplete: found.isComplete,
      head: toHead(found.head),
    };
  }

  async heads(keys: readonly AttemptKey[]): Promise<Map<number, Head>> {
    const rows = await readHeads(this.#database, keys);
    return new Map(rows.map((row) => [row.place - 1, toHead(row)]));
  }
}

function toHead(row: StreamHead): Head {
  return {
    lastTsMs: row.last_ts_ms ?? 0,
    lastSeq: row.last_seq ?? 0,
    totalBytes: row.total_bytes ?? 0,
    pausedBy: row.paused_by,
    activeEpoch: row.active_epoch,
    closed: closedOf(row),
    currentAttempt: row.current_attempt,
    phase: row.lifecycle_phase,
  };
}

/** An attempt that wrote nothing has no stream to close: it is over when its history, or the end of its execution, says so. */
function closedOf(row: StreamHead): Head['closed'] {
  if (row.closed_reason !== null) return { atMs: row.closed_at_ms!, reason: row.closed_reason };
  const outcome = row.attempt_outcome ?? row.terminal_outcome;
  if (outcome === null) return null;
  return { atMs: row.ended_at_ms!, reason: reasonOf(outcome, row.interrupted_by) };
}

function reasonOf(
  outcome: NonNullable<StreamHead['attempt_outcome'] | StreamHead['terminal_outcome']>,
  interruptedBy: StreamHead['interrupted_by'],
): StreamCloseReason {
  switch (outcome) {
    case 'success':
      return 'attempt_success';
    case 'failed':
      return 'attempt_failure';
    case 'cancelled':
    case 'skipped':
      return 'attempt_cancelled';
    case 'expired':
      return 'expired';
    case 'interrupted':
      return interruptedBy === 'expired' ? 'lease_expired' : 'reclaimed';
  }
}

/** Frozen, but for its bytes: one frame may be handed to many readers. */
function decodeFrame(row: StoredFrame, attemptIndex: number): StreamFrame {
  return Object.freeze({
    id: `${row.ts_ms}-${row.seq}`,
    attemptIndex,
    leaseEpoch: row.lease_epoch,
    mode: row.mode,
    frameType: row.frame_type,
    correlationId: row.correlation_id,
    step: stepOf(row),
    summaryVersion: row.summary_version,
    encoding: row.encoding,
    payload: payloadOf(row),
    bytes: row.payload,
  });
}

function stepOf({ step_name: name, step_key: key, step_try: tryIndex }: StoredFrame): StreamFrame['step'] {
  return name === null ? null : Object.freeze({ name, key: key!, tryIndex: tryIndex ?? 0 });
}

/** What JSON says, so that nobody can change it for the others. */
function frozen<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null) return value;
  for (const member of Object.values(value)) frozen(member);
  return Object.freeze(value);
}

function payloadOf({ encoding, payload }: StoredFrame): StreamFrame['payload'] {
  if (encoding === 'binary') return payload;
  const text = payload.toString('utf8');
  return encoding === 'text' ? text : frozen(JSON.parse(text) as StreamFrame['payload']);
}
