/**
 * Every call of the store that the walk does not make, mostly for rows that do not exist: the plans are the same.
 */
import { randomUUID } from 'node:crypto';
import type { SqlExecutor } from '../../src/contract/transactions.ts';
import type { ExecutionFilter } from '../../src/contract/operations.ts';
import { list } from '../../src/engine/operator/lists.ts';
import type { EngineContext } from '../../src/engine/kit/context.ts';
import * as consumers from '../../src/engine/feed/consumers.sql.ts';
import type { Database } from '../../src/engine/database/database.ts';
import * as doctor from '../../src/engine/operator/doctor.sql.ts';
import { listDueTimers, listLapsedLeases, sweepGrants } from '../../src/engine/executions/due.sql.ts';
import { readOrders } from '../../src/engine/steps/end-order.sql.ts';
import { readClaims } from '../../src/engine/executions/claiming/claims.sql.ts';
import * as flowReads from '../../src/engine/flows/reads.sql.ts';
import { listCancellingFlows, readFlowWork } from '../../src/engine/flows/work.sql.ts';
import { readHeld, readHolders } from '../../src/engine/database/held.ts';
import { isCommitted, isSessionGone, nameTransaction } from '../../src/engine/database/inside.ts';
import { findExecutions, readNeighbours } from '../../src/engine/operator/find.sql.ts';
import { findOpen } from '../../src/engine/operator/settled.sql.ts';
import { readLanes } from '../../src/engine/operator/lanes.sql.ts';
import { listAttemptRows } from '../../src/engine/operator/lists.sql.ts';
import { readStanding } from '../../src/engine/database/migrations/migration-plan.ts';
import { sendHint } from '../../src/engine/database/notify.ts';
import { readClock, readOutcomes, readPayload, readSnapshot } from '../../src/engine/executions/reads.sql.ts';
import * as bookkeeping from '../../src/engine/upkeep/bookkeeping.sql.ts';
import { listForgettable, readRetention, writeRetention } from '../../src/engine/upkeep/retention.sql.ts';
import { isBehind, readRoutes } from '../../src/engine/executions/claiming/routes.sql.ts';
import { checkSchema } from '../../src/engine/database/migrations/schema-state.ts';
import { findWaitpoint, listWaitedFor } from '../../src/engine/signals/signals.sql.ts';
import { listKeys } from '../../src/engine/signals/signing-keys.sql.ts';
import { listSteps, readSteps, recordStepsInside } from '../../src/engine/steps/steps.sql.ts';
import * as streams from '../../src/engine/streams/streams.sql.ts';
import { readEarlierSteps, readOutside, readPatchRows } from '../../src/engine/streams/written.sql.ts';
import { readRedaction } from '../../src/engine/executions/redaction.sql.ts';
import { listWorkers } from '../../src/engine/operator/workers.sql.ts';
import type { Recorder } from './plan-recorder.ts';
import { PARTITION, unknownLeases } from './workload.ts';

const MANY = 1_000;
/** The pid of no session. */
const NO_PID = 0;
const key = { uuid: randomUUID(), partition: PARTITION };

/** Together they read every source a list has. */
const FILTERS: readonly ExecutionFilter[] = [
  {},
  { kind: 'nobody', lane: 'default' },
  { tags: { team: 'plans', tier: 'gold' } },
  { parentId: `{fp:${PARTITION}}:${key.uuid}` },
  { parentId: `{fp:${PARTITION}}:${key.uuid}`, descendants: true },
  { states: ['waiting'], lane: 'default' },
  { states: ['waiting', 'delayed', 'active', 'suspended', 'waiting_children'] },
  { states: ['completed', 'failed', 'cancelled', 'expired', 'skipped'], failure: { contains: 'x' } },
];

export async function askStore({ database, client }: Recorder): Promise<void> {
  const executor = (text: string, params: unknown[]) => client.query(text, params);
  for (const filter of FILTERS) await list({ database } as EngineContext, { filter });
  await listAttemptRows(database, key, { before: MANY, limit: MANY });
  await findExecutions(database, { from: key.uuid, to: key.uuid, partition: PARTITION }, MANY);
  await flowReads.readFlowHeads(database, { from: key.uuid, to: key.uuid, partition: null }, MANY);
  await findOpen(database, { tag: ['team', 'plans'], tags: { team: 'plans' }, namespace: null }, MANY);
  await readNeighbours(database, [key.uuid]);
  await readSnapshot(database, key);
  await readRedaction(database, key);
  const [lease] = unknownLeases(1);
  await readOutside(database, lease!, { tsMs: 0, seq: 0 }, MANY);
  await readEarlierSteps(database, lease!);
  for (const whole of [true, false]) await readPatchRows(database, lease!, { limit: MANY, whole });
  await readOutcomes(database, [key.uuid]);
  await readClaims(database, [key.uuid], [], MANY);
  await readSteps(database, key, MANY);
  await listSteps(database, key, { limit: MANY, valueBytes: MANY });
  await readPayload(database, key);
  await readOrders(database, key);
  await askInside(database, executor);
  await readLanes(database, '', MANY);
  await listWorkers(database, MANY);
  await readRoutes(database);
  await isBehind(database, '3');
  await checkSchema(database);
  await readStanding(database);
  await sendHint(database, '');
  await askReconcilers(database);
  await askFlows(database);
  await askSignalsAndStreams(database);
  await askDoctor(database);
}

async function askReconcilers(database: Database): Promise<void> {
  await listLapsedLeases(database, MANY);
  await sweepGrants(database, { lookAtMs: 0, claimNo: 0 }, MANY);
  await listDueTimers(database, MANY);
  await bookkeeping.takeTickets(database, ['a'], 'me', MANY);
  await bookkeeping.returnTickets(database, 'me');
  await bookkeeping.recordSetback(database, 'due-timers', key, 'x');
  await bookkeeping.clearSetbacks(database, 'due-timers', [key]);
  await bookkeeping.forgetOldSetbacks(database);
  await bookkeeping.vacuumQueues(database);
  await writeRetention(database, null);
  await readRetention(database);
  await listForgettable(database, MANY, MANY);
}

async function askInside(database: Database, executor: SqlExecutor): Promise<void> {
  await executor('BEGIN', []);
  await recordStepsInside(
    database,
    executor,
    unknownLeases(1).map((lease) => ({
      ...lease,
      kind: 'step',
      name: 's',
      key: '',
      sleepMs: null,
      durationMs: null,
      value: '1',
    })),
  );
  await askConsumers(database, executor);
  await executor('COMMIT', []);
  await isSessionGone(database, NO_PID);
  await isCommitted(database, '3');
}

async function askConsumers(database: Database, executor: SqlExecutor): Promise<void> {
  const name = 'asked';
  await consumers.enterConsumer(database, name, 0n, MANY);
  await consumers.readConsumer(database, name);
  await consumers.holdConsumer(database, name, 'me', MANY);
  await consumers.releaseConsumer(database, name, 'me');
  const { transaction } = await nameTransaction(executor);
  await consumers.moveConsumerInside(executor, database, name, { from: 0n, to: 0n, transaction });
  await consumers.resetConsumer(database, name, 0n);
  await consumers.recordConsumerFailure(database, name, 'x', null);
  await consumers.listConsumers(database, 0n, MANY);
  await consumers.forgetConsumer(database, name);
}

async function askFlows(database: Database): Promise<void> {
  await readFlowWork(database);
  await listCancellingFlows(database, MANY);
  await flowReads.readFlowOf(database, key);
  await flowReads.readFlowOf(database, key, 'by_flow');
  await flowReads.readMemberNames(database, key, ['a']);
  await flowReads.readNamesOf(database, [key.uuid]);
  await flowReads.readFlowHead(database, key);
  await flowReads.readMembers(database, key);
  await flowReads.readEdges(database, key);
  const query = { namespace: null, name: null, outcome: null, after: null, limit: MANY, examined: MANY };
  await flowReads.listFlows(database, query);
}

async function askSignalsAndStreams(database: Database): Promise<void> {
  await findWaitpoint(database, key, 'here');
  await listWaitedFor(database, null, MANY);
  await listKeys(database);
  const place = { tsMs: 0, seq: 0 };
  const range = {
    attemptIndex: 0,
    from: place,
    to: place,
    limit: MANY,
    maxBytes: MANY,
    modes: null,
  } as const;
  await streams.readFrames(database, key, { ...range, order: 'forward' });
  await streams.readFrames(database, key, { ...range, attemptIndex: null, order: 'backward' });
  await streams.readHeads(database, [{ ...key, attemptIndex: 0 }]);
  await streams.epochAt(database, key, 0, place);
  await streams.readFinishedSteps(database, key, 0, 2);
  await streams.readSummary(database, key, null);
}

async function askDoctor(database: Database): Promise<void> {
  await doctor.readServer(database);
  await doctor.readRouteCount(database);
  await readClock(database, 'engine');
  await doctor.readMissingRights(database);
  await doctor.readQueueTables(database);
  await doctor.readTransactions(database);
  await doctor.readStuck(database);
  await doctor.readUpkeep(database, MANY);
  await doctor.readFeed(database, MANY);
  await readHeld(database, MANY);
  await readHolders(database, [key.uuid]);
}
