/**
 * Examines an installation from outside: the server, the schema, the role, and what runs in it. Works where an engine
 * would not open, which is when it is needed. The order of the checks lives here; what they mean, beside it.
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
import { readStanding } from '../database/migration-plan.ts';
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
  /** What this host takes for the time, in milliseconds since 1970. */
  hostClock(): number;
}

/** Two, because telling a pooler takes two connections at once. */
const POOL_SIZE = 2;
const ECHO_LIMIT_MS = 5_000;
/** Leases and timers this late were not seen by anybody. */
const OVERDUE_MS = 30_000;
/** Events this old without a position are waited for in vain. */
const UNSTAMPED_MS = 60_000;

/** Looks at everything and answers what it found, the server first. Throws only when there is no server to ask. */
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
    findings.push(...(await lookAtConnection(database, options)));
    findings.push(...(await lookAtSchema(database, server, options)));
    return findings;
  } finally {
    await database.close();
  }
}

async function lookAtConnection(database: Database, options: DiagnoseOptions): Promise<Finding[]> {
  const { listenUrl = options.databaseUrl } = options;
  const listening = options.listenUrl === undefined ? 'same' : 'separate';
  return [
    await look('pooler', async () => judgePooler(await readAnsweringPids(database), listening)),
    await look('notifications', async () =>
      judgeEcho(await echoHint(database, { listenUrl, limitMs: ECHO_LIMIT_MS }), ECHO_LIMIT_MS),
    ),
  ];
}

async function lookAtSchema(
  database: Database,
  server: ServerFacts,
  options: DiagnoseOptions,
): Promise<Finding[]> {
  const { schema } = database;
  const standing = await readStanding(database);
  const isThere = standing.access === 'open' && standing.applied > 0;
  const lookInside = isThere ? look : skip;
  return [
    judgeSchema(standing),
    await (standing.access === 'closed' ? look : lookInside)('rights', async () =>
      judgeRights(await readMissingRights(database), server, schema),
    ),
    await lookInside('dead rows', async () => judgeBloat(await readQueueTables(database), server, schema)),
    await lookInside('stuck executions', async () => judgeStuck(await readStuck(database))),
    await lookInside('routes', async () => judgeRoutes(await readRouteCount(database))),
    await lookInside('held executions', async () => judgeHeld(await readHeld(database, OVERDUE_MS))),
    await lookInside('reconcilers', async () => judgeUpkeep(await readUpkeep(database, OVERDUE_MS))),
    await lookInside('event feed', async () => judgeFeed(await readFeed(database, UNSTAMPED_MS))),
    await look('oldest transaction', async () =>
      judgeTransactions(await readTransactions(database), server, options.transactionAgeMs),
    ),
    await look('clock', () => compareClocks(database, isThere ? 'engine' : 'server', options)),
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
  return { check, verdict: 'skipped', detail: 'Not looked at: it needs the schema.', fix: null };
}

/** One check that cannot be made must not hide the others. */
async function look(check: string, work: () => Promise<Finding>): Promise<Finding> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof EngineError) || error.code === 'unavailable') throw error;
    return { check, verdict: 'warn', detail: `It could not be looked at. ${error.message}`, fix: null };
  }
}
