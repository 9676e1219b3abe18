/**
 * The obvious way to append to a stream on Postgres, as a baseline: an advisory lock, the next number by max(), the
 * insert, a trim of all but the newest by NOT IN, and count(*) for the result. Without a fence, a close or a
 * notification, and with one index. Everything here runs in a seat.
 */
import pg from 'pg';
import { FRAME_BYTES, timedCalls } from './timing.mjs';

const WARM_UP = 50;

const TABLE = `
  CREATE TABLE frame (
    partition_key smallint NOT NULL, execution_id uuid NOT NULL, attempt_index integer NOT NULL, ts_ms bigint NOT NULL,
    seq integer NOT NULL, fields jsonb NOT NULL, mode text NOT NULL, created_at_ms bigint NOT NULL,
    PRIMARY KEY (partition_key, execution_id, attempt_index, ts_ms, seq))`;
const FILL = `
  INSERT INTO frame
  SELECT 0, $1, 0, $2::bigint - $3::bigint + n, 0, $4::jsonb, $5, $2 FROM generate_series(1, $3::bigint) n`;

const OF_STREAM = 'partition_key = $1 AND execution_id = $2 AND attempt_index = $3';
const MAX = `SELECT max(seq) AS seq FROM frame WHERE ${OF_STREAM} AND ts_ms = $4`;
const INSERT = 'INSERT INTO frame VALUES ($1, $2, $3, $4, $5, $6, $7, $8)';
const TRIM = `
  DELETE FROM frame WHERE ${OF_STREAM} AND (ts_ms, seq) NOT IN (
    SELECT ts_ms, seq FROM frame WHERE ${OF_STREAM} ORDER BY ts_ms DESC, seq DESC LIMIT $4)`;
const COUNT = `SELECT count(*) FROM frame WHERE ${OF_STREAM}`;

const FIELDS = JSON.stringify({
  frame_type: 'event',
  encoding: 'utf8',
  source: 'worker',
  payload: 'x'.repeat(FRAME_BYTES),
});

function idOf(stream) {
  return `01890a5d-ac96-774b-bcce-${String(stream).padStart(12, '0')}`;
}

export async function prepare({ target, streams, present, mode }, seat) {
  const client = new pg.Client({ connectionString: target.url });
  await client.connect();
  await client.query(TABLE);
  for (let stream = 0; stream <= streams; stream += 1)
    await client.query(FILL, [idOf(stream), Date.now(), present, FIELDS, mode]);
  seat.kept.client = client;
}

async function appendOne(client, { stream, mode, kept }) {
  const key = [0, idOf(stream), 0];
  const now = Date.now();
  await client.query('BEGIN');
  await client.query({ name: 'lock', text: 'SELECT pg_advisory_xact_lock($1)', values: [stream] });
  const { rows } = await client.query({ name: 'max', text: MAX, values: [...key, now] });
  const seq = rows[0].seq === null ? 0 : rows[0].seq + 1;
  await client.query({ name: 'insert', text: INSERT, values: [...key, now, seq, FIELDS, mode, now] });
  if (mode === 'best_effort') await client.query({ name: 'trim', text: TRIM, values: [...key, kept] });
  await client.query({ name: 'count', text: COUNT, values: key });
  await client.query('COMMIT');
}

/** Appends to the streams in turn; the last one is for warming up. */
export async function append({ calls, streams, mode, present }, seat) {
  const { client } = seat.kept;
  for (let n = 0; n < WARM_UP; n += 1) await appendOne(client, { stream: streams, mode, kept: present });
  const figures = await timedCalls({ calls, perCall: 1 }, (n) =>
    appendOne(client, { stream: n % streams, mode, kept: present }),
  );
  await client.end();
  return figures;
}
