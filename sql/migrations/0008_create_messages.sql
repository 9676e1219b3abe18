-- Mailboxes: messages that an execution receives in order, one at a time.
-- Why:    senders need not know whether the receiver is waiting, or has begun.
-- Locks:  none that matter, all objects are new.
-- Breaking: no

-- The counters of an execution's messages, changed under its lock. A row exists from its first message on.
CREATE TABLE ff_mailbox (
  execution_id  uuid NOT NULL,
  -- Of the last message that was sent.
  last_seq      bigint NOT NULL,
  pending_bytes bigint NOT NULL,
  pending       integer NOT NULL,
  -- Handed over in the current run.
  handed        integer NOT NULL,
  partition_key smallint NOT NULL,
  PRIMARY KEY (execution_id) INCLUDE (partition_key)
) WITH (fillfactor = 50);

-- A message. Once handed over, its payload is in the step that received it; the row stays for a time, so that the same id
-- sent again is known.
CREATE TABLE ff_message (
  execution_id  uuid NOT NULL,
  seq           bigint NOT NULL,
  sent_at_ms    bigint NOT NULL,
  handed_at_ms  bigint,
  replied_at_ms bigint,
  partition_key smallint NOT NULL,
  -- Whether its sender waits for a reply.
  wants_reply   boolean NOT NULL,
  mailbox       text NOT NULL,
  message_id    text NOT NULL,
  payload       jsonb,
  reply         jsonb,
  PRIMARY KEY (execution_id, message_id) INCLUDE (partition_key)
) WITH (fillfactor = 70);
CREATE INDEX ff_message_pending ON ff_message (execution_id, mailbox, seq) WHERE handed_at_ms IS NULL;
CREATE INDEX ff_message_handed ON ff_message (execution_id, handed_at_ms) WHERE handed_at_ms IS NOT NULL;

-- An ended run of an execution that continued as a new one: what is left of it. The last ones are kept; the current run
-- has the next number.
CREATE TABLE ff_run (
  execution_id  uuid NOT NULL,
  run           bigint NOT NULL,
  began_at_ms   bigint NOT NULL,
  ended_at_ms   bigint NOT NULL,
  last_attempt  integer NOT NULL,
  attempts      integer NOT NULL,
  steps         integer NOT NULL,
  messages      integer NOT NULL,
  partition_key smallint NOT NULL,
  -- Its steps, waits and waitpoints are deleted: the next run may begin.
  is_cleared    boolean NOT NULL,
  PRIMARY KEY (execution_id, run) INCLUDE (partition_key)
);
