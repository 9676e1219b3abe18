/**
 * The functions of streams as calls a race can make, and what a reader by SQL sees. Split from calls.ts. No race and no
 * expectation belongs here.
 */
import { randomUUID } from 'node:crypto';
import type { FrameMode } from '../../../src/contract/streams.ts';
import type { Ask, Call, Caller, Lease } from '../calls.ts';

const MAX_DOCUMENT = 1_000_000;

export interface FramesTo {
  /** Default: one durable frame with the payload `x`. */
  frames?: [mode: FrameMode, payload: string][];
  /** Default: a unique one. */
  appendId?: string;
  /** How far the clock of the writer's host is off. Only naive variants use it. */
  skewMs?: number;
  /** How many best-effort frames are kept. */
  kept?: number;
}

export interface StreamCalls {
  append(lease: Lease, request?: FramesTo): Call;
  /** Records a step of a child, which adds one to `done` in the document of its parent. */
  recordForParent(child: Lease, name: string): Call;
}

/** `partition` is that of every execution of a race. */
export function streamCallsOf(call: Caller, partition: number): StreamCalls {
  return {
    append({ id, attempt, epoch }, request = {}) {
      const { frames = [['durable', 'x']], appendId = randomUUID(), skewMs = 0, kept = 64 } = request;
      const made = call(
        'append',
        `$1, ${partition}::smallint, $2, $3, $4, $5, $6, $7, $8, $8, $8, $8::text[]::integer[], $9::text[]::bytea[], 1, $10, $10, 0.2, ${MAX_DOCUMENT}`,
        [
          id,
          attempt,
          epoch,
          appendId,
          frames.map(([mode]) => mode),
          frames.map(([mode]) => (mode === 'summary' ? 'json' : 'text')),
          frames.map(() => `skew ${skewMs}`),
          frames.map(() => null),
          frames.map(([, payload]) => payload),
          kept,
        ],
      );
      const columns = `$1::uuid AS execution_id, f.outcome, f.lease_epoch, jsonb_build_object('ts', f.ts_ms, 'seq', f.last_seq) AS value`;
      return {
        sql: `${made.sql.replace('SELECT * FROM ', `SELECT ${columns} FROM `)} f`,
        params: made.params,
      };
    },
    recordForParent({ id, attempt, epoch }, name) {
      const args = `$1, ${partition}::smallint, $2, $3, $4, '', 'null', NULL, $5, ${MAX_DOCUMENT}`;
      const changes = JSON.stringify([{ path: ['done'], by: 1 }]);
      const made = call('recordForParent', args, [id, attempt, epoch, name, changes]);
      const columns = '$1::uuid AS execution_id, f.outcome, f.repeated, f.lease_epoch, f.value';
      return { ...made, sql: `${made.sql.replace('SELECT * FROM ', `SELECT ${columns} FROM `)} f` };
    },
  };
}

export interface Frame {
  attempt: number;
  ts: number;
  seq: number;
  mode: FrameMode;
  payload: string;
}

/** The frames after a position, in id order. */
export async function framesAfter(through: Ask, id: string, ts = 0, seq = 0): Promise<Frame[]> {
  const { rows } = await through(
    `SELECT attempt_index AS attempt, ts_ms AS ts, seq, mode::text, convert_from(payload, 'UTF8') AS payload FROM ff_frame
     WHERE execution_id = $1 AND (ts_ms, seq) > ($2::bigint, $3::bigint) ORDER BY attempt_index, ts_ms, seq`,
    [id, ts, seq],
  );
  return rows.map((row) => ({ ...row, ts: Number(row.ts), seq: Number(row.seq) })) as Frame[];
}

/** Contradictions between the rows of streams, as sentences. */
export async function streamFaults(through: Ask, ids: string[]): Promise<string[]> {
  const { rows } = await through(
    `SELECT m.execution_id, p.problem FROM ff_stream_meta m
     CROSS JOIN LATERAL (
       SELECT count(*) AS n, count(DISTINCT seq) AS seqs, coalesce(max(seq), 0) AS last, count(*) FILTER (WHERE mode = 'best_effort') AS live,
              count(*) FILTER (WHERE mode = 'summary') AS patches
       FROM ff_frame f WHERE f.execution_id = m.execution_id AND f.attempt_index = m.attempt_index) f
     CROSS JOIN LATERAL (
       SELECT 'has a number twice' AS problem WHERE f.n <> f.seqs
       UNION ALL SELECT 'does not know its last frame' WHERE f.last <> m.last_seq
       UNION ALL SELECT 'does not know how many are live' WHERE f.live <> m.live_count
       UNION ALL SELECT 'lost a patch' WHERE f.patches <> coalesce((
         SELECT version FROM ff_stream_summary y WHERE y.execution_id = m.execution_id AND y.attempt_index = m.attempt_index), 0)
       UNION ALL SELECT 'lost frames that are not best-effort' WHERE m.maxlen_applied_last IS NULL AND f.n <> m.last_seq
       UNION ALL SELECT 'has times that go back' WHERE EXISTS (
         SELECT FROM ff_frame a JOIN ff_frame b ON b.execution_id = a.execution_id AND b.attempt_index = a.attempt_index
         WHERE a.execution_id = m.execution_id AND a.attempt_index = m.attempt_index AND a.seq < b.seq AND a.ts_ms > b.ts_ms)
       UNION ALL SELECT 'is open, and its attempt is over' WHERE m.closed_at_ms IS NULL AND EXISTS (
         SELECT FROM ff_attempt_history h WHERE h.execution_id = m.execution_id AND h.attempt_index = m.attempt_index
           AND h.outcome IS NOT NULL)) p
     WHERE m.execution_id = ANY ($1)`,
    [ids],
  );
  return rows.map((row) => `${row.execution_id} ${row.problem}`);
}
