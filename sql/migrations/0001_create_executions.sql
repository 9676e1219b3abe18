-- Executions: their state, their queue, their leases, their history and the log of what happened to them.
-- Why:    the first schema; everything else is added to it.
-- Locks:  none that matter, all objects are new.
-- Breaking: no
-- Names are unqualified: the migration runner sets search_path to the engine's schema.

-- The only clock. Tests replace it by one that can be moved; nothing else may read a time.
CREATE FUNCTION ff_now_ms() RETURNS bigint LANGUAGE sql VOLATILE PARALLEL SAFE
RETURN (extract(epoch FROM clock_timestamp()) * 1000)::bigint;

CREATE TYPE ff_lifecycle_phase AS ENUM ('submitted', 'runnable', 'active', 'suspended', 'terminal');
CREATE TYPE ff_ownership_state AS ENUM ('unowned', 'leased', 'lease_expired_reclaimable', 'lease_revoked');
CREATE TYPE ff_eligibility_state AS ENUM (
  'eligible_now', 'not_eligible_until_time', 'blocked_by_dependencies', 'blocked_by_budget', 'blocked_by_quota',
  'blocked_by_route', 'blocked_by_lane_state', 'blocked_by_operator', 'not_applicable');
CREATE TYPE ff_blocking_reason AS ENUM (
  'none', 'waiting_for_worker', 'waiting_for_retry_backoff', 'waiting_for_resume_delay', 'waiting_for_delay',
  'waiting_for_signal', 'waiting_for_approval', 'waiting_for_callback', 'waiting_for_tool_result',
  'waiting_for_children', 'waiting_for_budget', 'waiting_for_quota', 'waiting_for_capable_worker',
  'waiting_for_locality_match', 'paused_by_operator', 'paused_by_policy', 'paused_by_flow_cancel');
CREATE TYPE ff_terminal_outcome AS ENUM ('none', 'success', 'failed', 'cancelled', 'expired', 'skipped');
CREATE TYPE ff_attempt_state AS ENUM (
  'none', 'pending_first_attempt', 'running_attempt', 'attempt_interrupted', 'pending_retry_attempt',
  'pending_replay_attempt', 'attempt_terminal');
CREATE TYPE ff_attempt_outcome AS ENUM ('success', 'failed', 'cancelled', 'expired', 'interrupted');
CREATE TYPE ff_event_family AS ENUM ('lease', 'completion', 'signal', 'operator', 'flow', 'tag', 'worker', 'execution');
CREATE TYPE ff_timer_kind AS ENUM ('eligible', 'child_ended', 'deadline', 'attempt_limit', 'suspension', 'waitpoint', 'family');
CREATE TYPE ff_step_kind AS ENUM ('step', 'sleep', 'wait');

-- The legal combinations of the state vector: the same list as the model's situations. In plpgsql, because a CHECK is
-- prepared anew by every statement: a call is cheap to prepare, this expression inlined would cost more than the write.
CREATE FUNCTION ff_is_legal(
  phase ff_lifecycle_phase, ownership ff_ownership_state, eligibility ff_eligibility_state,
  blocking ff_blocking_reason, outcome ff_terminal_outcome, attempt ff_attempt_state
) RETURNS boolean LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  RETURN CASE phase
  WHEN 'runnable' THEN
    ownership = 'unowned' AND outcome = 'none'
    AND attempt IN ('pending_first_attempt', 'pending_retry_attempt', 'pending_replay_attempt', 'attempt_interrupted')
    AND CASE blocking
      WHEN 'waiting_for_worker' THEN eligibility = 'eligible_now'
      WHEN 'waiting_for_retry_backoff' THEN eligibility = 'not_eligible_until_time' AND attempt = 'pending_retry_attempt'
      WHEN 'waiting_for_delay' THEN eligibility = 'not_eligible_until_time'
        AND attempt IN ('pending_first_attempt', 'attempt_interrupted')
      WHEN 'waiting_for_resume_delay' THEN eligibility = 'not_eligible_until_time' AND attempt = 'attempt_interrupted'
      WHEN 'waiting_for_children' THEN eligibility = 'blocked_by_dependencies' AND attempt <> 'pending_retry_attempt'
      WHEN 'waiting_for_budget' THEN eligibility = 'blocked_by_budget'
      WHEN 'waiting_for_quota' THEN eligibility = 'blocked_by_quota'
      WHEN 'waiting_for_capable_worker' THEN eligibility = 'blocked_by_route'
      WHEN 'paused_by_policy' THEN eligibility = 'blocked_by_lane_state'
      WHEN 'paused_by_operator' THEN eligibility = 'blocked_by_operator'
      WHEN 'paused_by_flow_cancel' THEN eligibility = 'blocked_by_operator'
      ELSE false END
  WHEN 'active' THEN
    ownership = 'leased' AND eligibility = 'not_applicable' AND blocking = 'none' AND outcome = 'none'
    AND attempt = 'running_attempt'
  WHEN 'suspended' THEN
    ownership = 'unowned' AND eligibility = 'not_applicable' AND outcome = 'none' AND attempt = 'attempt_interrupted'
    AND blocking IN ('waiting_for_signal', 'waiting_for_approval', 'waiting_for_callback', 'waiting_for_tool_result',
                     'waiting_for_budget', 'paused_by_operator', 'paused_by_policy')
  WHEN 'terminal' THEN
    ownership = 'unowned' AND eligibility = 'not_applicable' AND blocking = 'none' AND outcome <> 'none'
    AND (attempt = 'attempt_terminal'
         OR (attempt = 'pending_first_attempt' AND outcome IN ('cancelled', 'expired', 'skipped')))
  ELSE false END;
END $$;

-- The one label people see. A delay that is due reads as waiting.
CREATE FUNCTION ff_public_state(
  phase ff_lifecycle_phase, eligibility ff_eligibility_state, outcome ff_terminal_outcome,
  eligible_at_ms bigint, now_ms bigint
) RETURNS text LANGUAGE sql STABLE PARALLEL SAFE
RETURN CASE phase
  WHEN 'terminal' THEN CASE outcome WHEN 'success' THEN 'completed' WHEN 'none' THEN 'failed' ELSE outcome::text END
  WHEN 'suspended' THEN 'suspended'
  WHEN 'active' THEN 'active'
  ELSE CASE eligibility
    WHEN 'not_eligible_until_time' THEN CASE WHEN eligible_at_ms <= now_ms THEN 'waiting' ELSE 'delayed' END
    WHEN 'blocked_by_dependencies' THEN 'waiting_children'
    WHEN 'blocked_by_budget' THEN 'rate_limited'
    WHEN 'blocked_by_quota' THEN 'rate_limited'
    ELSE 'waiting' END
  END;

-- What each transition results in: read by the functions, never typed again there. attempt_state NULL keeps the old one.
CREATE TABLE ff_transition (
  transition        text PRIMARY KEY,
  lifecycle_phase   ff_lifecycle_phase NOT NULL,
  ownership_state   ff_ownership_state NOT NULL,
  eligibility_state ff_eligibility_state NOT NULL,
  blocking_reason   ff_blocking_reason NOT NULL,
  terminal_outcome  ff_terminal_outcome NOT NULL,
  attempt_state     ff_attempt_state,
  attempt_outcome   ff_attempt_outcome,
  lease_event       text,
  operator_event    text,
  signal_event      text,
  execution_event   text,
  -- It may end a suspension: then that goes, and its timer.
  leaves_suspension boolean NOT NULL,
  -- How it closes the stream of the attempt it ends.
  stream_close      text,
  epoch_step        smallint NOT NULL,
  attempt_step      smallint NOT NULL,
  retry_step        smallint NOT NULL,
  reclaim_step      smallint NOT NULL,
  -- 1 counts a replay, which also begins retries and reclaims again from 0.
  replay_step       smallint NOT NULL,
  -- 1 begins the next run, which also begins them from 0.
  run_step          smallint NOT NULL
);
CREATE TABLE ff_lane (
  lane           text PRIMARY KEY,
  paused         boolean NOT NULL DEFAULT false,
  -- Of the pause that holds. Missing as well when somebody paused it by SQL.
  paused_at_ms   bigint,
  paused_by      text,
  pause_reason   text,
  renewal_events boolean NOT NULL DEFAULT true,
  all_events     boolean NOT NULL DEFAULT false,
  created_at_ms  bigint NOT NULL DEFAULT ff_now_ms(),
  CONSTRAINT ff_lane_open CHECK (paused OR num_nonnulls(paused_at_ms, paused_by, pause_reason) = 0)
);
-- Asked by every claim, and mostly empty.
CREATE INDEX ff_lane_paused ON ff_lane (lane) WHERE paused;
-- The same, asked by every renewal.
CREATE INDEX ff_lane_quiet ON ff_lane (lane) WHERE NOT renewal_events;

-- Lane, kind and required capabilities, interned: the queue is keyed by the number. A row exists while it is in use; a number is never used again.
CREATE TABLE ff_route (
  route_id     integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  lane         text NOT NULL,
  kind         text NOT NULL,
  capabilities text[] NOT NULL,
  -- Executions are submitted to it before this time only: when it is over, the route must be interned again.
  usable_until_ms bigint NOT NULL DEFAULT ff_now_ms() + 86400000,
  UNIQUE (lane, kind, capabilities)
);

-- Policies that many executions share, by a number that fits into their rows. Never changed, and few: see ff_intern_policies.
CREATE TABLE ff_policy (
  policy_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  -- Of the text of the policy, which may be too long for an index.
  hash      uuid NOT NULL UNIQUE,
  policy    jsonb NOT NULL
);

-- The policy of an execution, from the two columns of its row.
CREATE FUNCTION ff_policy_of(p_policy jsonb, p_policy_id integer) RETURNS jsonb LANGUAGE sql STABLE PARALLEL SAFE
RETURN coalesce(p_policy, (SELECT policy FROM ff_policy WHERE policy_id = p_policy_id));

-- The state row: narrow, lockable, no index on a column that changes, so that updates stay in their page. A page is filled
-- to less than a third, because three versions of a row (submitted, claimed, ended) must fit at once: with claims
-- and completions side by side, pruning comes too late to make room for the third.
CREATE TABLE ff_execution (
  execution_id      uuid NOT NULL,
  created_at_ms     bigint NOT NULL,
  changed_at_ms     bigint NOT NULL,
  started_at_ms     bigint,
  eligible_at_ms    bigint,
  -- When it ends as expired, whatever it is doing. A replay sets it anew.
  deadline_at_ms    bigint,
  -- Of the policy, copied where claim and ending see them: how long a lease of one attempt may run, how long it is kept.
  attempt_limit_ms  bigint,
  retain_ms         bigint,
  lease_epoch       bigint NOT NULL DEFAULT 0,
  -- Since when the current attempt runs, pauses included.
  attempt_started_at_ms bigint,
  -- The lease, while there is one: the claim that granted it, and when it lapses. No index on either.
  claim_no          bigint,
  lease_expires_at_ms bigint,
  -- How often it was renewed. Beside its expiry: a renewal logs what is between the two.
  renewals          smallint NOT NULL DEFAULT 0,
  partition_key     smallint NOT NULL,
  attempt_index     integer NOT NULL DEFAULT 0,
  retry_count       integer NOT NULL DEFAULT 0,
  reclaim_count     integer NOT NULL DEFAULT 0,
  -- The first attempt of its run, or since it was replayed from the start: children of another generation are other children.
  generation        integer NOT NULL DEFAULT 0,
  route_id          integer NOT NULL,
  priority          integer NOT NULL,
  lifecycle_phase   ff_lifecycle_phase NOT NULL,
  ownership_state   ff_ownership_state NOT NULL,
  eligibility_state ff_eligibility_state NOT NULL,
  blocking_reason   ff_blocking_reason NOT NULL,
  terminal_outcome  ff_terminal_outcome NOT NULL,
  attempt_state     ff_attempt_state NOT NULL,
  replay_count      smallint NOT NULL DEFAULT 0,
  -- What it may have beside its row, so that whoever ends it looks only where there can be something. Bits: see ff_traits_of.
  traits            smallint NOT NULL DEFAULT 0,
  -- Who spawned it, in the same partition: told when it ends.
  parent_id         uuid,
  -- At which point of its parent's life: 65536 * the parent's generation + the steps it had recorded then.
  spawn_place       bigint,
  -- Whether the current attempt was paused before: then it has a row in the history.
  attempt_paused    boolean NOT NULL DEFAULT false,
  -- The flow it is a member of, in the same partition.
  flow_id           uuid,
  -- Its frozen policy: the number of a known one, or the policy itself.
  policy_id         integer,
  namespace         text NOT NULL,
  policy            jsonb,
  tags              jsonb NOT NULL DEFAULT '{}',
  -- The tags its lease began with, if they have changed since: its events keep them.
  lease_tags        jsonb,
  -- NULL if it is large: see ff_payload.
  payload           jsonb,
  -- A uuid names one execution in all partitions: sets of rows are written by uuid alone.
  PRIMARY KEY (execution_id) INCLUDE (partition_key),
  CONSTRAINT ff_execution_legal CHECK (ff_is_legal(
    lifecycle_phase, ownership_state, eligibility_state, blocking_reason, terminal_outcome, attempt_state))
) WITH (fillfactor = 30, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

-- For lists and rates. Only the time: executions submitted together share it, and their entries are kept as one.
CREATE INDEX ff_execution_created ON ff_execution (created_at_ms);
CREATE INDEX ff_execution_parent ON ff_execution (parent_id, created_at_ms, execution_id) WHERE parent_id IS NOT NULL;

-- A row exists while the execution is claimable now. Rows are inserted and deleted, never updated: claim deletes
-- them by ctid in the transaction that locked them, which is only safe because of that. A row that is meant has the time
-- of its execution's last change: lists know it by that.
CREATE TABLE ff_ready (
  seq             bigint GENERATED ALWAYS AS IDENTITY,
  execution_id    uuid NOT NULL,
  lease_epoch     bigint NOT NULL,
  ready_at_ms     bigint NOT NULL,
  route_id        integer NOT NULL,
  priority        integer NOT NULL,
  attempt_index   integer NOT NULL,
  partition_key   smallint NOT NULL,
  concurrency_key text
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
-- Priority is negated so that one row comparison can seek past a claim hint in the order of the queue.
CREATE INDEX ff_ready_queue ON ff_ready (route_id, (-priority), seq);

-- Things that happen at a time. A timer is a pointer with a fence: firing checks that it is still meant.
CREATE TABLE ff_timer (
  timer_id      bigint GENERATED ALWAYS AS IDENTITY,
  due_at_ms     bigint NOT NULL,
  execution_id  uuid NOT NULL,
  lease_epoch   bigint NOT NULL,
  attempt_index integer NOT NULL,
  kind          ff_timer_kind NOT NULL,
  partition_key smallint NOT NULL,
  PRIMARY KEY (timer_id) INCLUDE (partition_key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
-- Only the time: with the id as a second column the planner would look timers up by it through this index.
CREATE INDEX ff_timer_due ON ff_timer (due_at_ms);
-- Limits mostly outlive what they limit, so they are taken back when it ends, or is forgotten.
CREATE INDEX ff_timer_limits ON ff_timer (execution_id)
  WHERE kind IN ('deadline', 'attempt_limit', 'suspension', 'waitpoint');

-- What one claim call granted: its worker, and pointers to the executions. They are leased by it while their rows name its
-- number. By claim_id a worker whose answer was lost on the way finds what it was given. look_at_ms is no later than the
-- first expiry of its leases: only claims whose time has come are looked into for lapsed ones, and those without leases
-- are removed then.
CREATE TABLE ff_grant (
  claim_no           bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  claim_id           uuid NOT NULL,
  acquired_at_ms     bigint NOT NULL,
  look_at_ms         bigint NOT NULL,
  lease_ms           bigint NOT NULL,
  worker_id          text NOT NULL,
  worker_instance_id text NOT NULL,
  execution_ids      uuid[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);
-- Read by position only, never compressed for nothing.
ALTER TABLE ff_grant ALTER execution_ids SET STORAGE EXTERNAL;
CREATE INDEX ff_grant_look ON ff_grant (look_at_ms);

-- The id of a lease: that of its execution, with the epoch in its last digits and a version of its own. It is computed,
-- not stored.
CREATE FUNCTION ff_lease_id(p_execution uuid, p_epoch bigint) RETURNS uuid LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN (overlay(left(p_execution::text, 28) PLACING '8' FROM 15)
  || lpad(to_hex(('x' || right(p_execution::text, 8))::bit(32)::bigint # (p_epoch & 4294967295)), 8, '0'))::uuid;

-- One row an attempt, written when it ends; a pause writes it open (no outcome) and the end fills it in. retry_at_ms and
-- given_up keep what a call was answered, for when it is asked again: given_up how the leases ended that left it open (ff_given_up).
-- The row in which the execution ended also has its terminal_outcome and what belongs to that. If it ended before the
-- attempt began, the row is no attempt: it has no start and no outcome of its own. A replay begins another attempt, and
-- leaves the row as history.
CREATE TABLE ff_attempt_history (
  execution_id       uuid NOT NULL,
  lease_epoch        bigint NOT NULL,
  started_at_ms      bigint,
  ended_at_ms        bigint,
  retry_at_ms        bigint,
  -- How long the execution is kept; without it, as long as the deployment keeps things.
  retain_ms          bigint,
  -- It could not be forgotten when its time was over, and is looked at again then.
  look_again_at_ms   bigint,
  attempt_index      integer NOT NULL,
  outcome            ff_attempt_outcome,
  terminal_outcome   ff_terminal_outcome,
  partition_key      smallint NOT NULL,
  -- Of its last lease, NULL if there were none.
  renewals           smallint,
  -- Of an execution that ended in it, for lists.
  namespace          text,
  worker_id          text,
  worker_instance_id text,
  interrupted_by     text,
  failure_message    text,
  failure_category   text,
  -- Who ended the execution, if it was not the worker.
  ended_by           text,
  given_up           bigint[],
  result             jsonb,
  -- Of a failure: the class of the error, its stack and its causes.
  failure_detail     jsonb,
  -- Of an attempt that was paused: its last leases, see ff_also_leased. Another has one, which is the attempt itself.
  leases             jsonb,
  PRIMARY KEY (execution_id, partition_key, attempt_index)
);
-- Ended executions for lists and retention, those kept by default apart from the others: retention must not walk past
-- rows that are not due. Whoever looks an attempt up by its key does not mention terminal_outcome in a condition: then
-- these indexes cannot be taken for that, whatever the planner believes about the table.
CREATE INDEX ff_ended ON ff_attempt_history (namespace, terminal_outcome, ended_at_ms)
  WHERE terminal_outcome IS NOT NULL AND retain_ms IS NULL AND look_again_at_ms IS NULL;
CREATE INDEX ff_ended_kept ON ff_attempt_history (namespace, terminal_outcome, ended_at_ms)
  WHERE terminal_outcome IS NOT NULL AND (retain_ms IS NOT NULL OR look_again_at_ms IS NOT NULL);
CREATE INDEX ff_ended_kept_until ON ff_attempt_history ((coalesce(look_again_at_ms, ended_at_ms + retain_ms)))
  WHERE terminal_outcome IS NOT NULL AND (retain_ms IS NOT NULL OR look_again_at_ms IS NOT NULL);

-- What an execution has done for good: finished steps with their values, and sleeps with the time they end. Steps belong to
-- the execution and outlive its attempts; a row is written once, under a live lease. A replay from the start retires all
-- there are: they stay as history, and count no more.
CREATE TABLE ff_step (
  execution_id   uuid NOT NULL,
  recorded_at_ms bigint NOT NULL,
  lease_epoch    bigint NOT NULL,
  attempt_index  integer NOT NULL,
  -- How long its function took, as its worker measured it. Sleeps and waits have none.
  duration_ms    integer,
  partition_key  smallint NOT NULL,
  -- The replay that retired it, 0 while it counts.
  retired_by     smallint NOT NULL DEFAULT 0,
  kind           ff_step_kind NOT NULL,
  name           text NOT NULL,
  key            text NOT NULL,
  value          jsonb,
  PRIMARY KEY (execution_id, retired_by, name, key) INCLUDE (partition_key)
);

-- A locked execution and what is needed of its lease and body, as the transition functions hand it to each other.
CREATE TYPE ff_locked AS (
  ordinal               integer,
  execution_id          uuid,
  partition_key         smallint,
  route_id              integer,
  priority              integer,
  namespace             text,
  attempt_index         integer,
  lease_epoch           bigint,
  retry_count           integer,
  attempt_state         ff_attempt_state,
  claim_no              bigint,
  worker_id             text,
  worker_instance_id    text,
  attempt_started_at_ms bigint,
  tags                  jsonb,
  retain_ms             bigint,
  flow_id               uuid,
  -- Its lease continues an attempt that was paused: there is a row of it.
  resumed               boolean,
  -- Of the same partition.
  parent_id             uuid,
  traits                smallint
);
