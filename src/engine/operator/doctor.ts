/**
 * Examines an installation from outside: the server, the schema, the role, and what runs in it. Works where an engine
 * would not open, which is when it is needed. This file has the order of the checks, doctor-judgements.ts their
 * meaning.
 */
import { EngineError } from '../../contract/errors.ts';
import { openDatabase, type Database } from '../database/database.ts';
import {
  readFeed,
  readMissingRights,
  readQueueTables,
  readRouteCount,
  readServer,
  readStuck,
  readTransactions,
  readUpkeep,
  type ServerFacts,
} from './doctor.sql.ts';
import { readClock } from '../executions/reads.sql.ts';
import { readHeld } from '../database/held.ts';
import { echoHint, readAnsweringPids } from '../database/probes.ts';
import { readStanding } from '../database/migrations/migration-plan.ts';
import {
  judgeBloat,
  judgeClock,
  judgeConnections,
  judgeDurability,
  judgeEcho,
  judgeFeed,
  judgeHeld,
  judgePooler,
  judgeRights,
  judgeRoutes,
  judgeSchema,
  judgeStuck,
  judgeTransactions,
  judgeUpkeep,
  judgeVersion,
  judgeWriting,
  type Finding,
} from './doctor-judgements.ts';

export interface DiagnoseOptions {
  databaseUrl: string;
  schema: string;
  /** Where processes listen. Default: databaseUrl. */
  listenUrl?: string;
  /** Connections of a process's pool. */
  poolSize: number;
  /** An open transaction older than this is reported. */
  transactionAgeMs: number;
  /** The time of this host, in milliseconds since 1970. */
  hostClock(): number;
}

/** Two, because detecting a pooler takes two connections. */
const POOL_SIZE = 2;
const ECHO_LIMIT_MS = 5_000;
/** Leases and timers this late were missed by every process. */
const OVERDUE_MS = 30_000;
/** Events this old should have a position. */
const UNSTAMPED_MS = 60_000;

/** Runs all checks and returns the findings, those of the server first. Throws only if no server can be reached. */
export async function diagnose(options: DiagnoseOptions): Promise<Finding[]> {
  const { databaseUrl, schema } = options;
  const database = openDatabase({ databaseUrl, schema, poolSize: POOL_SIZE });
  try {
    const server = await readServer(database);
    const findings = [
      judgeVersion(server),
      judgeWriting(server),
      judgeDurability(server),
      judgeConnections(server, options.poolSize),
    ];
    findings.push(...(await checkConnection(database, options)));
    findings.push(...(await checkSchema(database, server, options)));
    return findings;
  } finally {
    await database.close();
  }
}

async function checkConnection(database: Database, options: DiagnoseOptions): Promise<Finding[]> {
  const { listenUrl = options.databaseUrl } = options;
  const listening = options.listenUrl === undefined ? 'same' : 'separate';
  return [
    await attempt('pooler', async () => judgePooler(await readAnsweringPids(database), listening)),
    await attempt('notifications', async () =>
      judgeEcho(await echoHint(database, { listenUrl, limitMs: ECHO_LIMIT_MS }), ECHO_LIMIT_MS),
    ),
  ];
}

async function checkSchema(
  database: Database,
  server: ServerFacts,
  options: DiagnoseOptions,
): Promise<Finding[]> {
  const { schema } = database;
  const standing = await readStanding(database);
  const exists = standing.access === 'open' && standing.applied > 0;
  const inSchema = exists ? attempt : skip;
  return [
    judgeSchema(standing),
    await (standing.access === 'closed' ? attempt : inSchema)('rights', async () =>
      judgeRights(await readMissingRights(database), server, schema),
    ),
    await inSchema('dead rows', async () => judgeBloat(await readQueueTables(database), server, schema)),
    await inSchema('stuck executions', async () => judgeStuck(await readStuck(database))),
    await inSchema('routes', async () => judgeRoutes(await readRouteCount(database))),
    await inSchema('held executions', async () => judgeHeld(await readHeld(database, OVERDUE_MS))),
    await inSchema('reconcilers', async () => judgeUpkeep(await readUpkeep(database, OVERDUE_MS))),
    await inSchema('event feed', async () => judgeFeed(await readFeed(database, UNSTAMPED_MS))),
    await attempt('oldest transaction', async () =>
      judgeTransactions(await readTransactions(database), server, options.transactionAgeMs),
    ),
    await attempt('clock', () => compareClocks(database, exists ? 'engine' : 'server', options)),
  ];
}

async function compareClocks(
  database: Database,
  source: 'engine' | 'server',
  { hostClock }: DiagnoseOptions,
): Promise<Finding> {
  const askedAt = hostClock();
  const databaseMs = await readClock(database, source);
  const answeredAt = hostClock();
  return judgeClock(databaseMs - (askedAt + answeredAt) / 2, answeredAt - askedAt);
}

async function skip(check: string): Promise<Finding> {
  return { check, verdict: 'skipped', detail: 'Not checked: it needs the schema.', fix: null };
}

/** A check that fails must not prevent the others. */
async function attempt(check: string, work: () => Promise<Finding>): Promise<Finding> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof EngineError) || error.code === 'unavailable') throw error;
    return { check, verdict: 'warn', detail: `The check failed. ${error.message}`, fix: null };
  }
}
