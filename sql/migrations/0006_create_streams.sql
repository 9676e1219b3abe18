-- Streams: the output of each attempt, frame by frame, and the document its patches make.
-- Why:    an attempt writes for minutes; whoever reads may leave and come back, and knows when it is over.
-- Locks:  none that matter, all objects are new.
-- Breaking: no

CREATE TYPE ff_frame_mode AS ENUM ('durable', 'summary', 'best_effort');
CREATE TYPE ff_frame_encoding AS ENUM ('text', 'json', 'binary');

-- One row an attempt that wrote something; every append locks it, so that the order of ids is the order of commits. The document of
-- the patches is apart: this row is written by every append.
CREATE TABLE ff_stream_meta (
  execution_id          uuid NOT NULL,
  created_at_ms         bigint NOT NULL,
  -- Never goes back, whatever the clock does.
  last_append_ts_ms     bigint NOT NULL,
  -- Of the last frame. Dense: a frame that is missing was trimmed.
  last_seq              bigint NOT NULL,
  total_bytes           bigint NOT NULL,
  closed_at_ms          bigint,
  -- How fast best-effort frames come, when that was last told, and how many came since.
  ema_rate_hz           double precision NOT NULL DEFAULT 0,
  ema_at_ms             bigint,
  ema_pending           bigint NOT NULL DEFAULT 0,
  lease_epoch           bigint NOT NULL,
  attempt_index         integer NOT NULL,
  -- Best-effort frames that are kept, and how many may be.
  live_count            integer NOT NULL DEFAULT 0,
  maxlen_applied_last   integer,
  partition_key         smallint NOT NULL,
  -- Of the last appends, the newest first: their names, last frames and times. Their answers may have been lost: sent again, they are
  -- answered again.
  append_ids            uuid[] NOT NULL DEFAULT '{}',
  append_seqs           bigint[] NOT NULL DEFAULT '{}',
  append_times          bigint[] NOT NULL DEFAULT '{}',
  closed_reason         text,
  PRIMARY KEY (execution_id, attempt_index) INCLUDE (partition_key)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Bytes as they were written. A frame that was written inside a step is never written again once that step is finished.
CREATE TABLE ff_frame (
  execution_id    uuid NOT NULL,
  ts_ms           bigint NOT NULL,
  seq             bigint NOT NULL,
  lease_epoch     bigint NOT NULL,
  attempt_index   integer NOT NULL,
  summary_version integer,
  partition_key   smallint NOT NULL,
  mode            ff_frame_mode NOT NULL,
  encoding        ff_frame_encoding NOT NULL,
  frame_type      text NOT NULL,
  correlation_id  text,
  step_name       text,
  step_key        text,
  step_try        integer,
  payload         bytea NOT NULL,
  -- The child that wrote it, inside one of its own steps.
  child_id        uuid,
  -- The first frame (<ms>-<seq>) of its attempt, name and mode that no longer counts from this one on: a handler that ran again from the
  -- top wrote something else.
  supersedes      text,
  -- Finished steps of earlier attempts whose frames come before this one, [[name, key], ...]; NULL: all that there are.
  after_steps     jsonb,
  -- What was applied to the document in place of a patch, because the handler had not come past others that follow it.
  applied         bytea,
  PRIMARY KEY (execution_id, attempt_index, ts_ms, seq) INCLUDE (partition_key)
) WITH (autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX ff_frame_live ON ff_frame (execution_id, attempt_index, seq) WHERE mode = 'best_effort';
-- For the document of the next attempt, which the patches of finished steps make.
CREATE INDEX ff_frame_patch ON ff_frame (execution_id, attempt_index, seq) WHERE mode = 'summary';

-- What the patches of an attempt have made. The document of an attempt begins with what finished steps of earlier ones patched.
CREATE TABLE ff_stream_summary (
  execution_id     uuid NOT NULL,
  first_applied_ms bigint NOT NULL,
  last_updated_ms  bigint NOT NULL,
  -- The last patch that kept_json knows of, and its version; of another attempt before the first.
  kept_seq         bigint NOT NULL DEFAULT 0,
  attempt_index    integer NOT NULL,
  version          integer NOT NULL,
  kept_version     integer NOT NULL DEFAULT 0,
  -- The attempt whose patches are still to be folded into it, after kept_seq, and then those of later ones; NULL: none.
  refold_from      integer,
  partition_key    smallint NOT NULL,
  patch_kind       text NOT NULL DEFAULT 'json-merge-patch',
  document_json    jsonb NOT NULL,
  -- The document of the patches that stay when the attempt ends, up to there. NULL stands for an empty one.
  kept_json        jsonb,
  PRIMARY KEY (execution_id, attempt_index) INCLUDE (partition_key)
) WITH (fillfactor = 50);

-- Payload as text, for views: bytes that are not UTF-8 cannot be there, since they are checked before they are written. A text with the
-- character 0 is none to Postgres, and is spelled as what is not text.
CREATE FUNCTION ff_frame_text(p_payload bytea) RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN convert_from(p_payload, 'UTF8');
END $$;

-- Frames as those who read by SQL know them. What is not text is spelled in hex.
CREATE VIEW ff_stream_frame AS
SELECT partition_key, execution_id, attempt_index, ts_ms, seq, mode::text AS mode, ts_ms AS created_at_ms,
       jsonb_strip_nulls(jsonb_build_object(
         'frame_type', frame_type, 'encoding', CASE WHEN is_text THEN 'utf8' ELSE 'hex' END, 'source', 'worker',
         'payload', CASE WHEN t.is_redacted THEN NULL WHEN is_text THEN ff_frame_text(payload) ELSE encode(payload, 'hex') END,
         'correlation_id', correlation_id, 'ts', ts_ms, 'mode', mode, 'summary_version', summary_version)) AS fields
FROM ff_frame f, LATERAL (
  SELECT encoding <> 'binary' AND position(E'\\x00'::bytea IN payload) = 0 AS is_text,
         EXISTS (SELECT 1 FROM ff_execution e WHERE e.execution_id = f.execution_id AND e.traits & 8 <> 0) AS is_redacted) t;
