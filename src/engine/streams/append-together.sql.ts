/**
 * Calls the SQL function that appends to many streams at once. Only the statement, no decisions. A process that writes
 * fifty streams sends thousands of frames a second through here, so its arrays are spelled in one pass, and all payloads
 * travel as one value, in bytes.
 */
import type { EncodedFrame } from '../../model/frames.ts';
import { run, type Database } from '../database/database.ts';
import { APPENDING, type AppendAnswer, type AppendCall } from './append.sql.ts';

/**
 * Appends to different streams, by the best-effort options of the first call. Undefined for a call that needs a statement
 * of its own: nothing of it is written.
 */
export async function appendToStreams(
  database: Database,
  calls: readonly AppendCall[],
  patienceMs: number,
): Promise<(AppendAnswer | undefined)[]> {
  const { ttlMs, floor, ceiling, alpha, maxDocumentBytes } = calls[0]!;
  // In the order of their ids, in which streams are locked.
  const order = calls.map((_, index) => index);
  order.sort((a, b) => (calls[a]!.lease.uuid < calls[b]!.lease.uuid ? -1 : 1));
  const { prefix } = database;
  const rows = await run<{ answer: string }>(database, {
    doing: 'appending frames',
    text: `SELECT ${prefix}ff_append_streams($1::uuid[], $2::smallint[], $3::integer[], $4::bigint[], $5::uuid[], $6::integer[], $7::integer[],
      $8::bigint[], $9::integer[], $10::integer[], $11::integer[], $12::${prefix}ff_frame_mode[], $13::${prefix}ff_frame_encoding[], $14::text[],
      $15::text[], $16::text[], $17::text[], $18::integer[], $19::integer[], $20::integer[], $21::bytea, $22::bigint, $23::integer,
      $24::integer, $25::double precision, $26::integer, $27::integer) AS answer`,
    params: [
      ...paramsOf(order.map((index) => calls[index]!)),
      ttlMs,
      floor,
      ceiling,
      alpha,
      maxDocumentBytes,
      patienceMs,
    ],
    repeatable: 'yes',
    waits: 'once',
  });
  return answersOf(calls, order, rows[0]!.answer);
}

/** Lists of places, times, last numbers, bytes and, by place, versions of the document. */
function answersOf(
  calls: readonly AppendCall[],
  order: readonly number[],
  text: string,
): (AppendAnswer | undefined)[] {
  const [places, times, lasts, totals, versions] = text.split(';').map((list) => list.split(','));
  const answers: (AppendAnswer | undefined)[] = calls.map(() => undefined);
  if (places![0] === '') return answers;
  places!.forEach((place, at) => {
    const index = order[Number(place) - 1]!;
    const version = versions![Number(place) - 1]!;
    answers[index] = {
      ...APPENDING,
      leaseEpoch: calls[index]!.lease.leaseEpoch,
      tsMs: Number(times![at]),
      lastSeq: Number(lasts![at]),
      totalBytes: Number(totals![at]),
      summaryVersion: version === '' ? null : Number(version),
    };
  });
  return answers;
}

/** Of the streams, and then of all their frames. */
function paramsOf(calls: readonly AppendCall[]): unknown[] {
  const frames = calls.flatMap((call) => call.frames);
  const payloads = frames.map((frame) => frame.payload);
  let offset = 0;
  const offsets = payloads.map(({ length }) => (offset += length) - length);
  const leases = calls.map((call) => call.lease);
  return [
    listed(leases.map((lease) => lease.uuid)),
    listed(leases.map((lease) => lease.partition)),
    listed(leases.map((lease) => lease.attemptIndex)),
    listed(leases.map((lease) => lease.leaseEpoch)),
    listed(calls.map((call) => call.appendId)),
    listed(calls.map((call) => call.frames.length)),
    listed(calls.map((call) => countOf(call.frames, 'best_effort'))),
    listed(calls.map((call) => call.frames.reduce((sum, frame) => sum + frame.payload.length, 0))),
    listed(calls.flatMap((call, place) => call.frames.map(() => place + 1))),
    listed(calls.flatMap((call) => call.frames.map((_, place) => place + 1))),
    listedUnlessNull(calls.flatMap((call) => patchesAfter(call.frames))),
    listed(frames.map((frame) => frame.mode)),
    listed(frames.map((frame) => frame.encoding)),
    frames.map((frame) => frame.frameType),
    unlessNull(frames.map((frame) => frame.correlationId ?? null)),
    unlessNull(frames.map((frame) => frame.step?.name ?? null)),
    unlessNull(frames.map((frame) => frame.step?.key ?? null)),
    listedUnlessNull(frames.map((frame) => frame.step?.tryIndex ?? null)),
    listed(offsets),
    listed(payloads.map(({ length }) => length)),
    Buffer.concat(payloads, offset),
  ];
}

/** An array of words that need no quotes, as Postgres spells it. */
function listed(words: readonly (string | number | null)[]): string {
  return `{${words.join(',')}}`;
}

function unlessNull<Value>(values: readonly (Value | null)[]): readonly (Value | null)[] | null {
  return values.every((value) => value === null) ? null : values;
}

function listedUnlessNull(values: readonly (number | null)[]): string | null {
  if (values.every((value) => value === null)) return null;
  return listed(values.map((value) => value ?? 'NULL'));
}

function countOf(frames: readonly EncodedFrame[], mode: EncodedFrame['mode']): number {
  let count = 0;
  for (const frame of frames) if (frame.mode === mode) count += 1;
  return count;
}

/** For each patch how many follow it, negated; null for other frames. */
function patchesAfter(frames: readonly EncodedFrame[]): (number | null)[] {
  let after = -countOf(frames, 'summary');
  return frames.map((frame) => (frame.mode === 'summary' ? (after += 1) : null));
}
