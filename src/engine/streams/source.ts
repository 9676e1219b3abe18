/**
 * Reads streams from the database: frames after a position, decoded once for all readers, and the heads of many streams
 * in one statement.
 */
import { formatExecutionId } from '../../contract/ids.ts';
import type { Json } from '../../contract/json.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { StreamClosed, StreamCloseReason, StreamFrame } from '../../contract/streams.ts';
import type { Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import {
  readFrames,
  readHeads,
  type AttemptEnd,
  type FramePlace,
  type FrameRange,
  type StoredFrame,
  type StreamHead,
  type StreamState,
} from './streams.sql.ts';

/** Identifies one attempt. */
export interface AttemptKey extends ExecutionKey {
  attemptIndex: number;
}

/** The state of a stream besides its frames. */
export interface Head extends StreamHead {
  closed: StreamClosed | null;
}

/** Frames of one attempt and the state of its stream. */
export interface StreamRead {
  attemptIndex: number;
  frames: readonly StreamFrame[];
  /** Whether there were no more frames at the time of this read. */
  isComplete: boolean;
  head: Head;
}

/** Where streams are read from. */
export interface StreamSource {
  /** Reads frames after a position; undefined when the execution is gone. */
  after(key: AttemptKey, place: FramePlace, limit: number): Promise<StreamRead | undefined>;
  /** Reads heads, by their index among the keys. */
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
    const { attemptIndex, isComplete } = found;
    const frames = found.frames.map((row) => decodeFrame(row, attemptIndex, key.partition));
    return { attemptIndex, frames, isComplete, head: toHead(found) };
  }

  async heads(keys: readonly AttemptKey[]): Promise<Map<number, Head>> {
    const rows = await readHeads(this.#database, keys);
    return new Map(rows.map((row) => [row.place - 1, toHead(row)]));
  }
}

function toHead({ head, end }: StreamState): Head {
  return { ...head, closed: closedOf(end) };
}

/** An attempt that wrote nothing has no stream row; its own outcome or its execution's closes it. */
function closedOf({ closedAtMs, closedReason, endedAtMs, ...end }: AttemptEnd): Head['closed'] {
  if (closedReason !== null) return { atMs: closedAtMs!, reason: closedReason };
  const outcome = end.outcome ?? end.terminalOutcome;
  if (outcome === null) return null;
  return { atMs: endedAtMs!, reason: reasonOf(outcome, end.interruptedBy) };
}

function reasonOf(
  outcome: NonNullable<AttemptEnd['outcome'] | AttemptEnd['terminalOutcome']>,
  interruptedBy: AttemptEnd['interruptedBy'],
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

/** Decodes a row. The frame is frozen except for its bytes, because many readers may share it. */
export function decodeFrame(row: StoredFrame, attemptIndex: number, partition: number): StreamFrame {
  const { tsMs, seq, stepName: name, stepKey, stepTry, childId, afterSteps, applied, ...frame } = row;
  const step = name === null ? null : Object.freeze({ name, key: stepKey!, tryIndex: stepTry ?? 0 });
  return Object.freeze({
    ...frame,
    id: `${tsMs}-${seq}`,
    attemptIndex,
    step,
    // A child lives in the partition of its parent.
    child: childId === null ? null : formatExecutionId(partition, childId),
    after: afterSteps === null ? null : frozen(afterSteps.map(([stepped, key]) => ({ name: stepped, key }))),
    applied: applied === null ? null : (jsonOf(applied) as StreamFrame['applied']),
    payload: payloadOf(frame),
  });
}

/** Freezes a JSON value deeply, so that no reader can change it for the others. */
function frozen<Value>(value: Value): Value {
  if (typeof value !== 'object' || value === null) return value;
  for (const inner of Object.values(value)) frozen(inner);
  return Object.freeze(value);
}

function payloadOf({ encoding, bytes }: Pick<StoredFrame, 'encoding' | 'bytes'>): StreamFrame['payload'] {
  if (encoding === 'binary') return bytes;
  return encoding === 'text' ? bytes.toString('utf8') : jsonOf(bytes);
}

function jsonOf(bytes: Buffer): Json {
  return frozen(JSON.parse(bytes.toString('utf8')) as Json);
}
