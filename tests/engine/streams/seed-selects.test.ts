/**
 * The established read surface of streams: queries that are known to be run on ff_stream_frame, ff_stream_summary and
 * ff_stream_meta, compared with what was written. Those of executions and events are in seed-selects.test.ts.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import { parseExecutionId } from '../../../src/contract/ids.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import type { StreamFrame } from '../../../src/index.ts';
import { newKind, useBench } from '../../conformance/open.ts';

const bench = useBench();

/** The stream that all queries below read. */
const HERE = 'partition_key = $1 AND execution_id = $2 AND attempt_index = $3';

const LAST_OF_MS = `SELECT MAX(seq) FROM ff_stream_frame WHERE ${HERE} AND ts_ms = $4`;
const DOCUMENT = `SELECT document_json, version FROM ff_stream_summary WHERE ${HERE}`;
const RATE = `SELECT ema_rate_hz, last_append_ts_ms FROM ff_stream_meta WHERE ${HERE}`;
const NEWEST = `
  SELECT ts_ms, seq FROM ff_stream_frame WHERE ${HERE} ORDER BY ts_ms DESC, seq DESC LIMIT $4`;
const COUNT = `SELECT COUNT(*)::bigint FROM ff_stream_frame WHERE ${HERE}`;
const RANGE = `
  SELECT ts_ms, seq, fields FROM ff_stream_frame
  WHERE ${HERE} AND (ts_ms, seq) >= ($4, $5) AND (ts_ms, seq) <= ($6, $7) ORDER BY ts_ms, seq LIMIT $8`;
const TAIL = (filter: string) => `
  SELECT ts_ms, seq, fields FROM ff_stream_frame
  WHERE ${HERE} AND (ts_ms, seq) > ($4, $5) ${filter} ORDER BY ts_ms, seq LIMIT $6`;
const SUMMARY = `
  SELECT document_json, version, patch_kind, last_updated_ms, first_applied_ms FROM ff_stream_summary WHERE ${HERE}`;

let claim: Claim;
let frames: StreamFrame[];

async function rowsOf(text: string, of: Claim, ...more: unknown[]): Promise<Record<string, unknown>[]> {
  const { partition, uuid } = parseExecutionId(of.executionId);
  return (await bench.database.query(text, [partition, uuid, of.attemptIndex, ...more])).rows;
}

const place = ({ id }: StreamFrame) => {
  const [ts_ms, seq] = id.split('-').map(Number) as [number, number];
  return { ts_ms, seq };
};

beforeAll(async () => {
  claim = await bench.running({ kind: newKind() });
  await bench.port.appendFrames(claim, [
    { payload: 'grüße', frameType: 'stdout', correlationId: 'c-1' },
    { payload: { a: 1, gone: 2 }, mode: 'summary' },
  ]);
  await bench.database.moveClock(1_000);
  await bench.port.appendFrames(claim, [
    { payload: 'news', mode: 'best_effort' },
    { payload: Uint8Array.from([0, 255]), frameType: 'blob' },
    { payload: 'a\u0000b' },
    { payload: { gone: null, b: '__ff_null__' }, mode: 'summary' },
  ]);
  ({ frames } = await bench.engine.streams.read(claim.executionId));
});

describe('frames', () => {
  it('are found by range, with the established field names', async () => {
    const rows = await rowsOf(RANGE, claim, 0, 0, '9223372036854775807', 2_147_483_647, 10_000);
    const at = (index: number) => place(frames[index]!).ts_ms;
    const common = { source: 'worker', encoding: 'utf8', frame_type: 'event' };
    expect(rows).toEqual([
      {
        ...place(frames[0]!),
        fields: {
          ...common,
          frame_type: 'stdout',
          payload: 'grüße',
          correlation_id: 'c-1',
          mode: 'durable',
          ts: at(0),
        },
      },
      {
        ...place(frames[1]!),
        fields: { ...common, payload: '{"a":1,"gone":2}', mode: 'summary', summary_version: 1, ts: at(1) },
      },
      { ...place(frames[2]!), fields: { ...common, payload: 'news', mode: 'best_effort', ts: at(2) } },
      {
        ...place(frames[3]!),
        fields: {
          ...common,
          encoding: 'hex',
          frame_type: 'blob',
          payload: '00ff',
          mode: 'durable',
          ts: at(3),
        },
      },
      // A valid string to us, but not to Postgres.
      {
        ...place(frames[4]!),
        fields: { ...common, encoding: 'hex', payload: '610062', mode: 'durable', ts: at(4) },
      },
      {
        ...place(frames[5]!),
        fields: {
          ...common,
          payload: '{"gone":null,"b":"__ff_null__"}',
          mode: 'summary',
          summary_version: 2,
          ts: at(5),
        },
      },
    ]);
    const some = [place(frames[1]!), place(frames[3]!)].flatMap(({ ts_ms, seq }) => [ts_ms, seq]);
    expect(await rowsOf(RANGE, claim, ...some, 10_000)).toEqual(rows.slice(1, 4));
    expect(await rowsOf(RANGE, claim, ...some, 1)).toEqual(rows.slice(1, 2));
  });

  it('are followed after a cursor, with or without best-effort ones', async () => {
    const { ts_ms, seq } = place(frames[1]!);
    const all = await rowsOf(TAIL(''), claim, ts_ms, seq, 10_000);
    expect(all.map((row) => row['seq'])).toEqual([3, 4, 5, 6]);
    const seen = await rowsOf(TAIL(`AND mode <> 'best_effort'`), claim, ts_ms, seq, 10_000);
    expect(seen.map((row) => row['seq'])).toEqual([4, 5, 6]);
    const last = place(frames[5]!);
    expect(await rowsOf(TAIL(''), claim, last.ts_ms, last.seq, 10_000)).toEqual([]);
  });

  it('are counted, newest first, and the last of a millisecond is known', async () => {
    expect(await rowsOf(COUNT, claim)).toEqual([{ count: 6 }]);
    expect(await rowsOf(NEWEST, claim, 2)).toEqual([place(frames[5]!), place(frames[4]!)]);
    expect(await rowsOf(LAST_OF_MS, claim, place(frames[0]!).ts_ms)).toEqual([{ max: 2 }]);
    expect(await rowsOf(LAST_OF_MS, claim, 5)).toEqual([{ max: null }]);
  });

  it('of another attempt or partition are not found', async () => {
    expect(await rowsOf(COUNT, { ...claim, attemptIndex: 1 })).toEqual([{ count: 0 }]);
    const { partition, uuid } = parseExecutionId(claim.executionId);
    const elsewhere = await bench.database.query(COUNT, [(partition + 1) % 256, uuid, 0]);
    expect(elsewhere.rows).toEqual([{ count: 0 }]);
  });
});

describe('the document and the head', () => {
  it('have the values of the last append', async () => {
    const document = { a: 1, b: null };
    expect(await rowsOf(DOCUMENT, claim)).toEqual([{ document_json: document, version: 2 }]);
    expect(await rowsOf(SUMMARY, claim)).toEqual([
      {
        document_json: document,
        version: 2,
        patch_kind: 'json-merge-patch',
        first_applied_ms: place(frames[1]!).ts_ms,
        last_updated_ms: place(frames[5]!).ts_ms,
      },
    ]);
    expect(await rowsOf(RATE, claim)).toEqual([
      { ema_rate_hz: 0, last_append_ts_ms: place(frames[5]!).ts_ms },
    ]);
    const [meta] = await rowsOf(`SELECT maxlen_applied_last FROM ff_stream_meta WHERE ${HERE}`, claim);
    expect(meta).toEqual({ maxlen_applied_last: 64 });
  });

  it('do not exist when nothing was written', async () => {
    const silent = await bench.running();
    for (const text of [DOCUMENT, RATE, SUMMARY]) expect(await rowsOf(text, silent)).toEqual([]);
  });
});
