-- What lies beside executions: how they are found, who works on them, and what could not be done for them.
-- Why:    lists by tag, idempotent submits, reconcilers and the registry of workers.
-- Locks:  none that matter, all objects are new.
-- Breaking: no

-- A row a tag: executions are found by them, in the order they were submitted.
CREATE TABLE ff_tag (
  tag_key       text NOT NULL,
  tag_value     text NOT NULL,
  created_at_ms bigint NOT NULL,
  execution_id  uuid NOT NULL,
  partition_key smallint NOT NULL,
  PRIMARY KEY (tag_key, tag_value, created_at_ms, execution_id) INCLUDE (partition_key)
);

-- Which execution a key stands for. The key is free again when its time is over and the execution has ended or is gone.
CREATE TABLE ff_idempotency (
  expires_at_ms bigint NOT NULL,
  execution_id  uuid NOT NULL,
  partition_key smallint NOT NULL,
  namespace     text NOT NULL,
  key           text NOT NULL,
  body_hash     bytea NOT NULL,
  PRIMARY KEY (namespace, key, partition_key)
) WITH (fillfactor = 90);
CREATE INDEX ff_idempotency_expired ON ff_idempotency (expires_at_ms);

-- Payloads that would cost more in the row of their execution, which every transition copies and whose pages are mostly
-- empty. Written once, with the execution.
CREATE TABLE ff_payload (
  execution_id  uuid NOT NULL,
  partition_key smallint NOT NULL,
  payload       jsonb NOT NULL,
  PRIMARY KEY (execution_id) INCLUDE (partition_key)
);

-- The payload of an execution, from the column of its row.
CREATE FUNCTION ff_payload_of(p_payload jsonb, p_id uuid) RETURNS jsonb LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(p_payload, (SELECT payload FROM ff_payload WHERE execution_id = p_id));

-- How far the handler says it is: overwritten, not logged.
CREATE TABLE ff_progress (
  execution_id   uuid NOT NULL,
  reported_at_ms bigint NOT NULL,
  partition_key  smallint NOT NULL,
  percent        real,
  message        text,
  PRIMARY KEY (execution_id) INCLUDE (partition_key)
) WITH (fillfactor = 50);

-- Which children a paused execution waits for, and how many of them must have ended. Meant only while the execution still
-- has this attempt and epoch; the next pause replaces it.
CREATE TABLE ff_child_wait (
  execution_id  uuid NOT NULL,
  lease_epoch   bigint NOT NULL,
  attempt_index integer NOT NULL,
  partition_key smallint NOT NULL,
  needed        integer NOT NULL,
  children      uuid[] NOT NULL,
  PRIMARY KEY (execution_id) INCLUDE (partition_key)
);

-- Which execution a key names: the open one, or the last that has ended, while it is kept. Executions without a key have no
-- row, and one whose key another has taken has none any more.
CREATE TABLE ff_key (
  execution_id  uuid NOT NULL,
  partition_key smallint NOT NULL,
  namespace     text NOT NULL,
  key           text NOT NULL,
  PRIMARY KEY (namespace, key, partition_key)
) WITH (fillfactor = 90);
CREATE UNIQUE INDEX ff_key_execution ON ff_key (execution_id) INCLUDE (partition_key);

-- What became of one submit with a key. holder: the execution the key names from now on; replaced: the one that was cancelled
-- for it, and the worker that lost its lease.
CREATE TYPE ff_keyed AS (
  outcome            text,
  holder             uuid,
  replaced           uuid,
  worker_instance_id text
);

-- In which order a handler was handed the ends of what it had asked for: later runs are handed the same order. A row replaces what the
-- rows before it say from its place on. Handlers that ask for one thing at a time have none.
CREATE TABLE ff_end_order (
  execution_id  uuid NOT NULL,
  lease_epoch   bigint NOT NULL,
  place         integer NOT NULL,
  partition_key smallint NOT NULL,
  ends          jsonb NOT NULL,
  PRIMARY KEY (execution_id, lease_epoch, place) INCLUDE (partition_key)
);

-- How far the work of a timer of kind `family` is: the child it stopped after, and whether one before that was held by
-- somebody else. Without a row it begins with the first child.
CREATE TABLE ff_family_place (
  timer_id      bigint NOT NULL,
  after_ms      bigint NOT NULL,
  after_id      uuid NOT NULL,
  missed        boolean NOT NULL,
  partition_key smallint NOT NULL,
  PRIMARY KEY (timer_id) INCLUDE (partition_key)
);

-- What an execution kept when it was begun anew: its first steps, and the children it had spawned by then. since_ms: when
-- the first step was recorded that it did not keep. -1 steps: from the start, nothing was kept.
CREATE TABLE ff_generation (
  execution_id  uuid NOT NULL,
  since_ms      bigint NOT NULL,
  kept_steps    integer NOT NULL,
  generation    integer NOT NULL,
  partition_key smallint NOT NULL,
  PRIMARY KEY (execution_id, generation) INCLUDE (partition_key)
);

-- What holds for all processes, and was said by one of them.
CREATE TABLE ff_setting (
  name  text PRIMARY KEY,
  value jsonb NOT NULL
);

-- Who runs the next pass of a reconciler. Losing the row, or its holder, costs nothing but a pass.
CREATE TABLE ff_reconciler (
  name          text PRIMARY KEY,
  holder        text,
  held_until_ms bigint NOT NULL
) WITH (fillfactor = 50);

-- Rows a reconciler could not act on: counted, backed off, shown by describe.
CREATE TABLE ff_setback (
  reconciler    text NOT NULL,
  execution_id  uuid NOT NULL,
  partition_key smallint NOT NULL,
  failures      integer NOT NULL,
  retry_at_ms   bigint NOT NULL,
  error_code    text NOT NULL,
  PRIMARY KEY (execution_id, partition_key, reconciler)
);

-- Who works here, said by the workers themselves at intervals: for people who look. Nothing is decided by it.
CREATE TABLE ff_worker (
  worker_instance_id text PRIMARY KEY,
  started_at_ms      bigint NOT NULL,
  heartbeat_at_ms    bigint NOT NULL,
  concurrency        integer NOT NULL,
  running            integer NOT NULL,
  stopping           boolean NOT NULL,
  worker_id          text NOT NULL,
  version            text,
  kinds              text[] NOT NULL,
  lanes              text[],
  capabilities       text[] NOT NULL
) WITH (fillfactor = 50);

-- Claimable executions that a claim has locked, in queue order, as parallel arrays. Those that none of them has are NULL.
CREATE TYPE ff_claimable AS (
  ids         uuid[],
  parts       smallint[],
  routes      integer[],
  priorities  integer[],
  seqs        bigint[],
  namespaces  text[],
  attempts    integer[],
  epochs      bigint[],
  retries     integer[],
  createds    bigint[],
  generations integer[],
  states      ff_attempt_state[],
  limits      bigint[],
  flows       uuid[],
  redacted    boolean[],
  tags        jsonb[],
  payloads    jsonb[]
);
