-- Flows: executions joined by edges, what each join has heard so far, and work on flows that is left to be done.
-- Why:    work that waits for other work, and the losers of a join, must be stored to survive whoever decides on them.
-- Locks:  none that matter, all objects are new.
-- Breaking: no

CREATE TYPE ff_join_kind AS ENUM ('all', 'any', 'quorum');
CREATE TYPE ff_edge_condition AS ENUM ('success', 'failure', 'always', 'skipped');
CREATE TYPE ff_edge_state AS ENUM ('staged', 'pending', 'satisfied', 'failed', 'skipped');
CREATE TYPE ff_group_state AS ENUM ('pending', 'satisfied', 'impossible');
CREATE TYPE ff_flow_outcome AS ENUM ('completed', 'failed', 'cancelled');

-- The graph as a whole. Locked first by whoever changes the graph, and by nobody else: a member that ends never waits for it.
CREATE TABLE ff_flow (
  flow_id        uuid NOT NULL,
  created_at_ms  bigint NOT NULL,
  changed_at_ms  bigint NOT NULL,
  -- Until then no join is decided, because more edges may come.
  sealed_at_ms   bigint,
  graph_revision bigint NOT NULL,
  node_count     integer NOT NULL,
  edge_count     integer NOT NULL,
  partition_key  smallint NOT NULL,
  name           text NOT NULL,
  namespace      text NOT NULL,
  tags           jsonb NOT NULL,
  PRIMARY KEY (flow_id) INCLUDE (partition_key),
  CONSTRAINT ff_flow_partition CHECK (partition_key BETWEEN 0 AND 255)
);
-- Only the time: with the id as a second column the planner would look flows up by it through this index.
CREATE INDEX ff_flow_created ON ff_flow (created_at_ms);

-- How far a flow is. Locked last, and shortly: every member that ends is counted here.
CREATE TABLE ff_flow_progress (
  flow_id       uuid NOT NULL,
  ended_at_ms   bigint,
  -- The longest that a member asked to be kept.
  retain_ms     bigint,
  cancelled_at_ms bigint,
  open_count    integer NOT NULL,
  success_count integer NOT NULL DEFAULT 0,
  failed_count  integer NOT NULL DEFAULT 0,
  cancelled_count integer NOT NULL DEFAULT 0,
  expired_count integer NOT NULL DEFAULT 0,
  skipped_count integer NOT NULL DEFAULT 0,
  partition_key smallint NOT NULL,
  outcome       ff_flow_outcome,
  cancel_policy text CHECK (cancel_policy IN ('cancel_all', 'cancel_pending', 'let_finish')),
  cancel_reason text,
  cancelled_by  text,
  PRIMARY KEY (flow_id) INCLUDE (partition_key),
  CONSTRAINT ff_flow_progress_open CHECK (open_count >= 0),
  CONSTRAINT ff_flow_progress_ended CHECK ((outcome IS NULL) = (ended_at_ms IS NULL)),
  CONSTRAINT ff_flow_progress_cancelled CHECK ((cancel_policy IS NULL) = (cancelled_at_ms IS NULL))
) WITH (fillfactor = 50);

-- The executions of a flow. outcome is what was counted of it, and told to those after it; null until then.
CREATE TABLE ff_member (
  flow_id       uuid NOT NULL,
  execution_id  uuid NOT NULL,
  partition_key smallint NOT NULL,
  outcome       ff_terminal_outcome,
  name          text NOT NULL,
  PRIMARY KEY (execution_id) INCLUDE (partition_key)
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX ff_member_name ON ff_member (flow_id, name) INCLUDE (partition_key);
-- What is not counted yet, in the order of ids: for cancelling in chunks, and to see whether a word was lost.
CREATE INDEX ff_member_open ON ff_member (flow_id, execution_id) WHERE outcome IS NULL;

-- One way from a member to another. Changed only with the execution it leads to locked. is_counted: it was resolved before its join
-- was decided. input_name: where the result goes in the input of the execution after it; of several with one name, as a list
-- in the order of input_place.
CREATE TABLE ff_edge (
  upstream_eid   uuid NOT NULL,
  downstream_eid uuid NOT NULL,
  flow_id        uuid NOT NULL,
  edge_id        uuid NOT NULL,
  created_at_ms  bigint NOT NULL,
  resolved_at_ms bigint,
  -- Of the member it comes from, when it was resolved.
  upstream_attempt integer,
  input_place    integer,
  partition_key  smallint NOT NULL,
  condition      ff_edge_condition NOT NULL,
  state          ff_edge_state NOT NULL,
  is_counted     boolean NOT NULL DEFAULT false,
  input_name     text,
  PRIMARY KEY (upstream_eid, downstream_eid) INCLUDE (partition_key)
) WITH (fillfactor = 80);
CREATE INDEX ff_edge_downstream ON ff_edge (downstream_eid);
CREATE UNIQUE INDEX ff_edge_name ON ff_edge (edge_id) INCLUDE (partition_key);

-- All edges into one execution, and what they must say before it runs. Changed only with that execution locked.
CREATE TABLE ff_edge_group (
  downstream_eid  uuid NOT NULL,
  flow_id         uuid NOT NULL,
  decided_at_ms   bigint,
  k_target        integer NOT NULL,
  edge_count      integer NOT NULL,
  success_count   integer NOT NULL DEFAULT 0,
  fail_count      integer NOT NULL DEFAULT 0,
  skip_count      integer NOT NULL DEFAULT 0,
  partition_key   smallint NOT NULL,
  join_kind       ff_join_kind NOT NULL,
  group_state     ff_group_state NOT NULL DEFAULT 'pending',
  cancels_rest    boolean NOT NULL,
  cancel_siblings_pending_flag    boolean NOT NULL DEFAULT false,
  cancel_siblings_reason          text,
  cancel_siblings_pending_members text[] NOT NULL DEFAULT '{}',
  PRIMARY KEY (downstream_eid) INCLUDE (partition_key),
  CONSTRAINT ff_edge_group_counted CHECK (success_count + fail_count + skip_count <= edge_count),
  CONSTRAINT ff_edge_group_decided CHECK ((group_state = 'pending') = (decided_at_ms IS NULL))
) WITH (fillfactor = 50);
-- For lists of what waits.
CREATE INDEX ff_edge_group_pending ON ff_edge_group (downstream_eid) WHERE group_state = 'pending';

-- Joins whose losers are still to be stopped. A row is the ticket of whoever does it.
CREATE TABLE ff_pending_cancel_groups (
  partition_key  smallint NOT NULL,
  flow_id        uuid NOT NULL,
  downstream_eid uuid NOT NULL,
  enqueued_at_ms bigint NOT NULL,
  PRIMARY KEY (downstream_eid, flow_id, partition_key)
);
CREATE INDEX ff_pending_cancel_groups_oldest ON ff_pending_cancel_groups (enqueued_at_ms);

-- Members that ended and whose end is still to be told to those after them. Inserted with the end, deleted when all is told.
CREATE TABLE ff_flow_job (
  job_id        bigint GENERATED ALWAYS AS IDENTITY,
  created_at_ms bigint NOT NULL,
  execution_id  uuid NOT NULL,
  flow_id       uuid NOT NULL,
  partition_key smallint NOT NULL,
  PRIMARY KEY (job_id) INCLUDE (partition_key)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000, autovacuum_vacuum_cost_delay = 0);

-- Flows whose members are still to be cancelled, up to which one they are.
CREATE TABLE ff_cancel_backlog (
  flow_id       uuid NOT NULL,
  requested_at_ms bigint NOT NULL,
  done_to       uuid,
  partition_key smallint NOT NULL,
  PRIMARY KEY (flow_id) INCLUDE (partition_key)
);

CREATE VIEW ff_flow_core AS
SELECT f.partition_key, f.flow_id, f.graph_revision,
  CASE WHEN p.outcome IS NOT NULL THEN p.outcome::text WHEN f.sealed_at_ms IS NULL THEN 'open' ELSE 'running' END AS public_flow_state,
  f.created_at_ms, p.ended_at_ms AS terminal_at_ms,
  f.tags || jsonb_strip_nulls(jsonb_build_object('flow_kind', f.name, 'namespace', f.namespace, 'node_count', f.node_count,
    'edge_count', f.edge_count, 'last_mutation_at_ms', greatest(f.changed_at_ms, p.ended_at_ms, p.cancelled_at_ms),
    'cancel_reason', p.cancel_reason, 'cancellation_policy', p.cancel_policy)) AS raw_fields
FROM ff_flow f JOIN ff_flow_progress p ON p.flow_id = f.flow_id;
