-- The log of committed facts, the order in which its readers get them, and those who keep their place in it.
-- Why:    whoever follows what happens must lose nothing, whenever a writer commits.
-- Locks:  none that matter, all objects are new.
-- Breaking: no

-- Append-only. A row holds the events of one family that one statement wrote, at most 256 of them and at most one per
-- execution. What they share is in the column; what differs is in the array beside it, in the order of the events, and
-- the column is NULL then. So a single event has no arrays.
-- ev_id is drawn after the row locks (CACHE 1), so it is causal per execution; it is not a position: ids commit out of
-- order. xid is the writer's transaction, by which the sequencer knows what became visible since it last looked. slot is
-- the part of the log that was being written: old events go by emptying a whole slot, never row by row. An event of a
-- worker or a lane belongs to no execution, and to no namespace; one of a flow to the flow.
CREATE TABLE ff_event_pack (
  ev_id               bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
  xid                 xid8 NOT NULL DEFAULT pg_current_xact_id(),
  occurred_at_ms      bigint NOT NULL,
  n                   integer NOT NULL DEFAULT 1,
  family              ff_event_family NOT NULL,
  slot                smallint NOT NULL,
  partition_key       smallint,
  execution_id        uuid,
  flow_id             uuid,
  lease_epoch         bigint,
  attempt_index       integer,
  route_id            integer,
  event_type          text,
  namespace           text,
  worker_instance_id  text,
  tags                jsonb,
  detail              jsonb,
  partition_keys      smallint[],
  execution_ids       uuid[],
  flow_ids            uuid[],
  lease_epochs        bigint[],
  attempt_indexes     integer[],
  route_ids           integer[],
  event_types         text[],
  namespaces          text[],
  worker_instance_ids text[],
  tag_sets            jsonb[],
  details             jsonb[]
) PARTITION BY LIST (slot);
-- Random bytes are not worth trying to compress.
ALTER TABLE ff_event_pack ALTER execution_ids SET STORAGE EXTERNAL, ALTER flow_ids SET STORAGE EXTERNAL,
  ALTER partition_keys SET STORAGE EXTERNAL;
CREATE TABLE ff_event_0 PARTITION OF ff_event_pack FOR VALUES IN (0);
CREATE TABLE ff_event_1 PARTITION OF ff_event_pack FOR VALUES IN (1);
CREATE TABLE ff_event_2 PARTITION OF ff_event_pack FOR VALUES IN (2);
CREATE TABLE ff_event_3 PARTITION OF ff_event_pack FOR VALUES IN (3);
CREATE TABLE ff_event_4 PARTITION OF ff_event_pack FOR VALUES IN (4);
CREATE TABLE ff_event_5 PARTITION OF ff_event_pack FOR VALUES IN (5);
CREATE TABLE ff_event_6 PARTITION OF ff_event_pack FOR VALUES IN (6);
CREATE TABLE ff_event_7 PARTITION OF ff_event_pack FOR VALUES IN (7);
CREATE INDEX ff_event_by_id ON ff_event_pack (ev_id);
CREATE INDEX ff_event_by_transaction ON ff_event_pack (xid);

-- Lanes whose executions have all events written about them. Asked by every submit, and mostly empty.
CREATE INDEX ff_lane_telling ON ff_lane (lane) WHERE all_events;

-- Routes that are forgotten, while there are events about what they were of.
CREATE TABLE ff_former_route (
  route_id   integer PRIMARY KEY,
  lane       text NOT NULL,
  kind       text NOT NULL,
  -- No later event is about it.
  last_ev_id bigint NOT NULL
);
CREATE INDEX ff_former_route_last ON ff_former_route (last_ev_id);

-- One row: the lock of whoever gives out positions, and what rarely changes about the log. It is locked for every stamp and
-- never updated for one: versions of it would pile up while somebody holds an old snapshot.
CREATE TABLE ff_sequencer (
  only_row         boolean PRIMARY KEY DEFAULT true CHECK (only_row),
  -- The slot that is being written.
  slot             smallint NOT NULL,
  -- Counted up whenever positions had to jump.
  epoch            integer NOT NULL,
  opened_at_ms     bigint NOT NULL,
  -- The first position that is still kept.
  floor_position   bigint NOT NULL,
  -- Transaction ids of events up to this one are of another server, and say nothing here.
  foreign_to_ev_id bigint NOT NULL,
  -- By slot: the last position that went when it was emptied; -1 for none.
  emptied_to       bigint[] NOT NULL DEFAULT array_fill(-1::bigint, ARRAY[8]),
  -- The server and timeline the positions were given out on.
  identity         text
);
INSERT INTO ff_sequencer (slot, epoch, opened_at_ms, floor_position, foreign_to_ev_id)
VALUES (0, 0, ff_now_ms(), 1, 0);

-- Positions, by runs: the n events of `packs` rows with consecutive ev_ids have n consecutive positions. An event's is the
-- first of its run, plus the events in the rows before its own, plus those before it in its row. A run has few rows,
-- because they are counted from its first one. The last run of a stamp carries the snapshot it was made by. A run
-- without ev_from is a place where positions jumped.
CREATE TABLE ff_event_run (
  seq_from      bigint PRIMARY KEY,
  n             bigint NOT NULL CHECK (n > 0),
  stamped_at_ms bigint NOT NULL,
  ev_from       bigint,
  packs         smallint NOT NULL CHECK (packs BETWEEN 0 AND 64),
  slot          smallint NOT NULL,
  snap          pg_snapshot
);
CREATE INDEX ff_event_run_of_slot ON ff_event_run (slot, seq_from);
CREATE INDEX ff_event_run_by_id ON ff_event_run (ev_from);
INSERT INTO ff_event_run (seq_from, n, stamped_at_ms, packs, slot, snap) VALUES (0, 1, ff_now_ms(), 0, 0, '3:3:');

-- Who reads the log under a name and commits its place with what it did.
CREATE TABLE ff_consumer (
  name          text PRIMARY KEY,
  position      bigint NOT NULL,
  moved_at_ms   bigint NOT NULL,
  -- Who reads for it now. Losing that, or two believing it, costs work that is rolled back, never an event.
  held_until_ms bigint NOT NULL,
  holder        text,
  failures      integer NOT NULL DEFAULT 0,
  error_code    text
) WITH (fillfactor = 50);
