/**
 * Calls the SQL functions that append to streams: many frames to one, or a single one. Only statements, no decisions.
 * Many streams at once are in append-together.sql.ts.
 */
import type { AppendOutcome } from '../../contract/streams.ts';
import type { EncodedFrame } from '../../model/frames.ts';
import { columns, columnsOf, withColumns, type RowOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import { hintChannel } from '../database/names.ts';
import type { Refused } from '../executions/answered.sql.ts';
import type { LeaseKey } from '../executions/executions.sql.ts';

export interface AppendCall {
  /** Whether a frame has something that only a handler which runs again says. */
  isOfRerun?: boolean;
  lease: LeaseKey;
  /** Whether its notification may carry the frames. Default: not. */
  mayCarry?: boolean;
  appendId: string;
  frames: readonly EncodedFrame[];
  ttlMs: number;
  floor: number;
  ceiling: number;
  alpha: number;
  maxDocumentBytes: number;
}

type Appended = Extract<AppendOutcome, { outcome: 'appended' }>;

const APPENDED = columnsOf<
  Refused & Pick<Appended, 'totalBytes' | 'summaryVersion'> & { tsMs: number; lastSeq: number }
>()(
  'outcome',
  'lifecyclePhase',
  'terminalOutcome',
  'leaseEpoch',
  'tsMs',
  'lastSeq',
  'totalBytes',
  'summaryVersion',
);
export type AppendAnswer = RowOf<typeof APPENDED>;

/** What is the same in the answers to all that was appended. */
export const APPENDING = { outcome: 'appended', lifecyclePhase: 'active', terminalOutcome: 'none' } as const;

/** With the notification inside the transaction, if there is to be one. */
const NOTIFYING = withColumns(
  APPENDED,
  columns<{ notified: string | null }>({
    notified: `CASE WHEN $23::text IS NOT NULL AND outcome = 'appended' THEN
      pg_notify($24, $23 || concat_ws(',', ts_ms, last_seq, total_bytes, prev_ts_ms) || ']}')::text END`,
  }),
);

/**
 * Repeatable, because of its appendId. `patienceMs`: how long it waits for a lock, without a limit if null.
 * `notification` is sent in the same transaction if it appends; continued by the numbers of the last frame and of the
 * one before.
 */
export async function appendFrames(
  database: Database,
  call: AppendCall,
  patienceMs: number | null,
  notification: string | null = null,
): Promise<AppendAnswer> {
  const { lease, frames } = call;
  if (frames.length === 1 && frames[0]!.mode === 'durable' && call.isOfRerun !== true)
    return appendOne(database, call, patienceMs, notification);
  const rows = await run(database, {
    doing: 'appending frames',
    columns: NOTIFYING,
    text: `SELECT ${NOTIFYING.list} FROM ${database.prefix}ff_append_frames($1::uuid, $2::smallint, $3::integer, $4::bigint, $5::uuid, $6::text[],
      $7::text[], $8::text[], $9::text[], $10::text[], $11::text[], $12::integer[], $13::bytea[], $14::bigint, $15::integer,
      $16::integer, $17::double precision, $18::integer, $19::integer, $20::text[], $21::text[]::jsonb[], $22::bytea[])`,
    params: [
      lease.uuid,
      lease.partition,
      lease.attemptIndex,
      lease.leaseEpoch,
      call.appendId,
      ...frameParams(frames),
      call.ttlMs,
      call.floor,
      call.ceiling,
      call.alpha,
      call.maxDocumentBytes,
      patienceMs,
      ...(call.isOfRerun === true ? rerunParams(frames) : [null, null, null]),
      notification,
      hintChannel(database.schema),
    ],
    repeatable: 'yes',
    ...(patienceMs === null ? {} : { waits: 'once' as const }),
  });
  return rows[0]!;
}

/** Of one durable frame. Most appends are that, and are answered in one text. */
async function appendOne(
  database: Database,
  { lease, appendId, frames: [frame] }: AppendCall,
  patienceMs: number | null,
  notification: string | null,
): Promise<AppendAnswer> {
  const { encoding, frameType, correlationId, step, payload } = frame!;
  const rows = await run<{ answer: string }>(database, {
    doing: 'appending frames',
    text: `SELECT ${database.prefix}ff_append_frame($1::uuid, $2::smallint, $3::integer, $4::bigint, $5::uuid,
      $6::${database.prefix}ff_frame_encoding, $7::text, $8::text, $9::text, $10::text, $11::integer, $12::bytea, $13::integer, $14::text,
      $15::text) AS answer`,
    params: [
      lease.uuid,
      lease.partition,
      lease.attemptIndex,
      lease.leaseEpoch,
      appendId,
      encoding,
      frameType,
      correlationId ?? null,
      step?.name ?? null,
      step?.key ?? null,
      step?.tryIndex ?? null,
      bufferOf(payload),
      patienceMs,
      notification === null ? null : hintChannel(database.schema),
      notification,
    ],
    repeatable: 'yes',
    ...(patienceMs === null ? {} : { waits: 'once' as const }),
  });
  return answerOf(lease, rows[0]!.answer.split(','));
}

/** Three parts when it was appended, four when it was refused. */
function answerOf({ leaseEpoch }: LeaseKey, parts: string[]): AppendAnswer {
  if (parts.length === 3) {
    const [tsMs, lastSeq, totalBytes] = parts.map(Number) as [number, number, number];
    return { ...APPENDING, leaseEpoch, tsMs, lastSeq, totalBytes, summaryVersion: null };
  }
  const [outcome, lifecyclePhase, terminalOutcome, epoch] = parts.map((part) => (part === '' ? null : part));
  // As ff_append_frames returns it: a refused append has no numbers.
  const numbers = { tsMs: null, lastSeq: null, totalBytes: null, summaryVersion: null };
  const refused = {
    outcome,
    lifecyclePhase,
    terminalOutcome,
    leaseEpoch: epoch === null ? null : Number(epoch),
  };
  return { ...refused, ...numbers } as unknown as AppendAnswer;
}

function bufferOf({ buffer, byteOffset, byteLength }: Uint8Array): Buffer {
  return Buffer.from(buffer, byteOffset, byteLength);
}

function frameParams(frames: readonly EncodedFrame[]): unknown[] {
  return [
    frames.map((frame) => frame.mode),
    frames.map((frame) => frame.encoding),
    frames.map((frame) => frame.frameType),
    frames.map((frame) => frame.correlationId ?? null),
    frames.map((frame) => frame.step?.name ?? null),
    frames.map((frame) => frame.step?.key ?? null),
    frames.map((frame) => frame.step?.tryIndex ?? null),
    frames.map(({ payload }) => bufferOf(payload)),
  ];
}

/** What only handlers that run again say. */
function rerunParams(frames: readonly EncodedFrame[]): unknown[] {
  const stepsOf = (after: EncodedFrame['after']): string | null =>
    after === undefined ? null : JSON.stringify(after.map(({ name, key }) => [name, key]));
  return [
    frames.map((frame) => frame.supersedes ?? null),
    frames.map((frame) => stepsOf(frame.after)),
    frames.map(({ applied }) => (applied === undefined ? null : bufferOf(applied))),
  ];
}
