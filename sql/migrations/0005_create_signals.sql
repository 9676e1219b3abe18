-- Suspension: executions that wait until they are told, the places where they are told, what they were told, and the keys that
-- sign who may.
-- Why:    people, callbacks and tools answer minutes or days later, and no worker is held meanwhile.
-- Locks:  none that matter, all objects are new.
-- Breaking: no

-- A row exists while suspended. Each of the waits has its condition and its time; the first that ends resumes the execution, and
-- how it ended is stored as the step of its name.
CREATE TABLE ff_suspension (
  execution_id    uuid NOT NULL,
  suspended_at_ms bigint NOT NULL,
  -- When something else is due that is waited for beside the waits.
  wake_at_ms      bigint,
  lease_epoch     bigint NOT NULL,
  attempt_index   integer NOT NULL,
  partition_key   smallint NOT NULL,
  waits           jsonb NOT NULL,
  PRIMARY KEY (execution_id) INCLUDE (partition_key)
) WITH (fillfactor = 90);
-- What waits longest first. Without the id: with it, a planner that believes the table empty would look suspensions up by walking
-- this index.
CREATE INDEX ff_suspension_list ON ff_suspension (suspended_at_ms);

-- Where signals arrive, from before the suspension on. It belongs to the wait that first suspended on it. Its token is not kept.
CREATE TABLE ff_waitpoint (
  waitpoint_id  uuid NOT NULL,
  -- What tokens name. Another one ends those that are out.
  token_id      uuid NOT NULL,
  execution_id  uuid NOT NULL,
  created_at_ms bigint NOT NULL,
  -- NULL while its wait has no time.
  expires_at_ms bigint,
  closed_at_ms  bigint,
  -- Of the token that was made with it: which key signed it, and its expiry.
  token_expires_at_ms bigint,
  signal_bytes  bigint NOT NULL DEFAULT 0,
  signal_count  integer NOT NULL DEFAULT 0,
  partition_key smallint NOT NULL,
  -- The replay that retired it, 0 while it counts.
  retired_by    smallint NOT NULL DEFAULT 0,
  name          text NOT NULL,
  -- The wait it belongs to; NULL until one suspends on it.
  step_name     text,
  step_key      text,
  kid           text,
  close_reason  text CHECK (close_reason IN ('satisfied', 'timed_out', 'expired')),
  schema        jsonb,
  PRIMARY KEY (execution_id, retired_by, name) INCLUDE (partition_key),
  CHECK ((closed_at_ms IS NULL) = (close_reason IS NULL))
) WITH (fillfactor = 70);

-- What was said, in the order it was accepted. Kept with the execution.
CREATE TABLE ff_signal (
  execution_id    uuid NOT NULL,
  waitpoint_id    uuid NOT NULL,
  signal_id       uuid NOT NULL,
  accepted_at_ms  bigint NOT NULL,
  seq             integer NOT NULL,
  partition_key   smallint NOT NULL,
  name            text NOT NULL,
  source_type     text NOT NULL,
  source_identity text NOT NULL,
  idempotency_key text,
  effect          text NOT NULL CHECK (effect IN ('buffered', 'not_matching', 'not_counted', 'counted', 'resumed')),
  payload         jsonb NOT NULL,
  PRIMARY KEY (execution_id, waitpoint_id, seq) INCLUDE (partition_key)
);
CREATE UNIQUE INDEX ff_signal_once ON ff_signal (execution_id, waitpoint_id, idempotency_key) INCLUDE (partition_key)
  WHERE idempotency_key IS NOT NULL;

-- Which keys sign and verify. The keys themselves are derived from a secret the processes are configured with: a copy of
-- this table signs nothing. The one that verifies without an end signs.
CREATE TABLE ff_signing_key (
  kid             text PRIMARY KEY,
  -- Which secret it is derived from.
  secret_print    text NOT NULL,
  created_at_ms   bigint NOT NULL,
  -- No token of it is good for longer.
  tokens_until_ms bigint NOT NULL,
  verify_until_ms bigint,
  revoked_at_ms   bigint
);
CREATE UNIQUE INDEX ff_signing_key_current ON ff_signing_key ((true)) WHERE verify_until_ms IS NULL AND revoked_at_ms IS NULL;

-- A signal as it was sent. place: among those of the call; round: the how many-th to its execution. The waitpoint is named
-- by its token, or by its name.
CREATE TYPE ff_sent_signal AS (
  place               integer,
  round               integer,
  execution_id        uuid,
  partition_key       smallint,
  token_id            uuid,
  waitpoint           text,
  kid                 text,
  secret_print        text,
  token_expires_at_ms bigint,
  signal_id           uuid,
  name                text,
  source_type         text,
  source_identity     text,
  payload             jsonb,
  idempotency_key     text,
  is_checked          boolean,
  max_signals         integer,
  max_bytes           bigint
);

-- What became of it, and the locked row of its execution. wait: the one it may end.
CREATE TYPE ff_taken_signal AS (
  place           integer,
  outcome         text,
  signal_id       uuid,
  effect          text,
  schema          jsonb,
  waitpoint_id    uuid,
  waitpoint       text,
  bytes           bigint,
  seq             integer,
  wait            jsonb,
  delay_ms        bigint,
  locked          ff_locked,
  name            text,
  source_type     text,
  source_identity text,
  payload         jsonb,
  idempotency_key text
);
