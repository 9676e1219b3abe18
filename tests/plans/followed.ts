/**
 * The part of the walk about the event log: positions, reading, slots that are opened and dropped, another server; and
 * the registry, whose events belong to no execution.
 */
import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/engine/database/database.ts';
import { moveConsumer } from '../../src/engine/feed/consumers.sql.ts';
import { readEvents, sequenceEvents, type StoredEventFilter } from '../../src/engine/feed/events.sql.ts';
import { pauseLane, resumeLane } from '../../src/engine/operator/lanes.sql.ts';
import { dropEventSlot, forgetRuns, openEventSlot } from '../../src/engine/upkeep/retention.sql.ts';
import {
  forgetWorker,
  forgetWorkersSilentFor,
  registerWorker,
} from '../../src/engine/operator/workers.sql.ts';
import type { Recorder } from './plan-recorder.ts';

const KEPT_MS = 1_000;
const LONG_AGO = 'ff_now_ms() - 10000';

function entry(): Parameters<typeof registerWorker>[1] {
  return {
    workerInstanceId: `w-${randomUUID()}`,
    workerId: 'w',
    version: null,
    kinds: ['k'],
    lanes: null,
    capabilities: [],
    concurrency: 1,
    running: 0,
    uptimeMs: 0,
    stopping: false,
  };
}

const ASKING: StoredEventFilter = {
  families: ['lease', 'completion'],
  types: ['acquired', 'success'],
  namespace: 'default',
  tags: { team: 'a' },
  kind: 'k',
  lane: 'default',
  execution: { uuid: randomUUID(), partition: 7 },
  flow: { uuid: randomUUID(), partition: 7 },
  partitions: [7],
};

const EVERYTHING: StoredEventFilter = {
  families: null,
  types: null,
  namespace: null,
  tags: null,
  kind: null,
  lane: null,
  execution: null,
  flow: null,
  partitions: null,
};

/** Of two routes, in one row of the log. */
const TOLD_TOGETHER = `
  SELECT ff_log_events('completion', 1, 2, '{success}', ARRAY[gen_random_uuid(), gen_random_uuid()], '{1,2}', '{0}', '{1}',
                       NULL, '{default}', ARRAY['{}'::jsonb], NULL, '{1,2}', NULL)`;

export async function walkFollowed(
  database: Database,
  client: Recorder['client'],
  rival: Recorder,
): Promise<void> {
  await walkRegistry(database, client);
  await client.query('SELECT ff_count_unstamped(0)');
  await sequenceEvents(database, 'wait');
  await sequenceEvents(database, 'skip');
  await readEvents(database, 0n, { examined: 256, limit: 256 }, ASKING);
  await client.query(TOLD_TOGETHER);
  const { last } = await sequenceEvents(database, 'wait');
  await readEvents(database, last - 2n, { examined: 256, limit: 256 }, EVERYTHING);
  await moveConsumer(database, 'nobody', 0n, 1n);
  await rival.client.query('BEGIN');
  await rival.client.query('SELECT 1 FROM ff_sequencer FOR UPDATE');
  await registerWorker(database, entry());
  await sequenceEvents(database, 'skip');
  await rival.client.query('ROLLBACK');
  await walkMoved(database, client);
  await walkOld(database, client, rival);
  await client.query('BEGIN; SELECT pg_current_xact_id()');
  await client.query('SELECT ff_sequence(false, NULL)').catch(() => undefined);
  await client.query('ROLLBACK');
}

async function walkRegistry(database: Database, client: Recorder['client']): Promise<void> {
  const worker = entry();
  await registerWorker(database, worker);
  await forgetWorker(database, worker.workerInstanceId);
  await registerWorker(database, entry());
  await client.query(`UPDATE ff_worker SET heartbeat_at_ms = ${LONG_AGO}`);
  await forgetWorkersSilentFor(database, KEPT_MS);
  const lane = `lane-${randomUUID()}`;
  await pauseLane(database, lane, { by: 'me', reason: null });
  await pauseLane(database, lane, { by: 'me', reason: null });
  await resumeLane(database, lane);
  await resumeLane(database, lane);
  await client.query(`SELECT * FROM ff_pause_lane('one-too-many', 'me', NULL, 0)`);
}

/** As if the log came from another server, then from another timeline of this one, with events that had no position. */
async function walkMoved(database: Database, client: Recorder['client']): Promise<void> {
  await client.query(`UPDATE ff_sequencer SET identity = 'elsewhere/1'`);
  await sequenceEvents(database, 'skip');
  await client.query(`UPDATE ff_sequencer SET identity = split_part(identity, '/', 1) || '/earlier'`);
  await sequenceEvents(database, 'skip');
  await client.query(`UPDATE ff_sequencer SET identity = NULL`);
  await sequenceEvents(database, 'skip');
  await client.query(`UPDATE ff_event_run SET snap = '9000000000:9000000000:' WHERE snap IS NOT NULL`);
  await registerWorker(database, entry());
  await sequenceEvents(database, 'skip');
  await client.query(`UPDATE ff_sequencer SET identity = 'elsewhere/2'`);
  await sequenceEvents(database, 'skip');
}

async function walkOld(database: Database, client: Recorder['client'], rival: Recorder): Promise<void> {
  await client.query(`UPDATE ff_sequencer SET opened_at_ms = ${LONG_AGO}`);
  await client.query(`UPDATE ff_event_run SET stamped_at_ms = ${LONG_AGO}`);
  await openEventSlot(database, KEPT_MS);
  await rival.client.query('BEGIN; LOCK TABLE ff_event_pack IN ROW EXCLUSIVE MODE');
  await dropEventSlot(database, KEPT_MS, 0);
  await rival.client.query('ROLLBACK');
  await dropEventSlot(database, KEPT_MS, 0);
  await dropEventSlot(database, KEPT_MS, 0);
  await forgetRuns(database, 1_000);
  await client.query(`UPDATE ff_sequencer SET slot = 0`);
}
