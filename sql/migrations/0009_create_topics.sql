-- Topics: what is published to whoever waits for it, now or later.
-- Why:    a publisher need not know who waits, nor how many.
-- Locks:  none that matter, all objects are new.
-- Breaking: no

-- A topic that has something published, in its home partition. Whoever publishes locks it.
CREATE TABLE ff_topic (
  -- Of the last that was published.
  last_seq      bigint NOT NULL,
  partition_key smallint NOT NULL,
  namespace     text NOT NULL,
  topic         text NOT NULL,
  PRIMARY KEY (namespace, topic, partition_key)
) WITH (fillfactor = 50);

-- What was published. Numbered over all topics, so that a topic that was forgotten does not begin again. The last of a topic
-- is kept for those who wait later; the others only until everybody who waited for them has been told.
CREATE TABLE ff_published (
  seq             bigint GENERATED ALWAYS AS IDENTITY,
  publish_id      uuid NOT NULL,
  published_at_ms bigint NOT NULL,
  keep_until_ms   bigint NOT NULL,
  partition_key   smallint NOT NULL,
  is_told         boolean NOT NULL DEFAULT false,
  namespace       text NOT NULL,
  topic           text NOT NULL,
  payload         jsonb NOT NULL,
  PRIMARY KEY (namespace, topic, seq, partition_key)
);
CREATE INDEX ff_published_untold ON ff_published (seq) WHERE NOT is_told;
CREATE INDEX ff_published_kept ON ff_published (keep_until_ms) WHERE is_told;

-- Executions that wait for a topic, in their own partitions. A wait takes the first that is numbered higher than after_seq.
-- Written and deleted under the lock of the execution.
CREATE TABLE ff_topic_wait (
  execution_id  uuid NOT NULL,
  -- The order in which they are told.
  wait_no       bigint GENERATED ALWAYS AS IDENTITY,
  after_seq     bigint NOT NULL,
  partition_key smallint NOT NULL,
  namespace     text NOT NULL,
  topic         text NOT NULL,
  step_name     text NOT NULL,
  step_key      text NOT NULL,
  PRIMARY KEY (execution_id, step_name, step_key) INCLUDE (partition_key)
);
-- Without the id of the execution: with it, a planner that believes the table empty would look waits up by walking this index.
CREATE INDEX ff_topic_wait_topic ON ff_topic_wait (namespace, topic, wait_no);

-- The last of a topic that an execution has received: its next wait takes only newer ones.
CREATE TABLE ff_topic_seen (
  execution_id  uuid NOT NULL,
  seq           bigint NOT NULL,
  partition_key smallint NOT NULL,
  namespace     text NOT NULL,
  topic         text NOT NULL,
  PRIMARY KEY (execution_id, namespace, topic) INCLUDE (partition_key)
) WITH (fillfactor = 70);
