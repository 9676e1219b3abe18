/**
 * What the facts about an installation mean: the verdict of each check, and what to do if it is not ok.
 * Pure: facts in, findings out.
 */
import { LIMITS } from '../../contract/limits.ts';
import { holderOf, nameSession } from '../../model/gates/held.ts';
import { connectionBudget } from '../database/connection-budget.ts';
import {
  REPAIRS,
  type FeedFacts,
  type ServerFacts,
  type StuckFacts,
  type TableFacts,
  type TransactionFacts,
  type UpkeepFacts,
} from './doctor.sql.ts';
import type { HeldFacts } from '../database/held.ts';
import type { AnsweringPids, Echo } from '../database/probes.ts';
import type { SchemaStanding } from '../database/migrations/migration-plan.ts';

/** `skipped`: it could not be checked because of an earlier finding. */
export type Verdict = 'ok' | 'warn' | 'problem' | 'skipped';

export interface Finding {
  check: string;
  verdict: Verdict;
  /** A sentence. */
  detail: string;
  /** A command, a statement or a setting that helps. */
  fix: string | null;
}

const VERSIONS = { oldest: 15, newest: 18 };
/** With a host clock this far off, people see wrong times; the engine itself does not read it. */
const SKEW_LIMIT_MS = 1_000;
/** Dead rows in a table before they matter; autovacuum is configured to run at 2,000. */
const DEAD_ROWS_LIMIT = 20_000;
/** A row that failed this often will not recover by itself. */
const FAILURES_LIMIT = 5;
const NAMES_SHOWN = 5;
/** A consumer this far behind is not keeping up. */
const LAG_LIMIT_MS = 3_600_000;
/** A transaction that has locked an execution for this long will not end by itself. */
const HELD_PROBLEM_MS = 15_000;

function ok(check: string, detail: string): Finding {
  return { check, verdict: 'ok', detail, fix: null };
}

export function judgeVersion({ version, versionNumber }: ServerFacts): Finding {
  const check = 'server version';
  const major = Math.floor(versionNumber / 10_000);
  const range = `${VERSIONS.oldest} to ${VERSIONS.newest}`;
  const fix = `Use Postgres ${range}.`;
  if (major < VERSIONS.oldest)
    return { check, verdict: 'problem', detail: `Postgres ${version} is older than ${range}.`, fix };
  if (major > VERSIONS.newest)
    return { check, verdict: 'warn', detail: `Postgres ${version} is newer than ${range}: not tested.`, fix };
  return ok(check, `Postgres ${version}.`);
}

export function judgeDurability({ settings, role }: ServerFacts): Finding {
  const check = 'durability';
  const off = (['fsync', 'full_page_writes', 'synchronous_commit'] as const).filter(
    (name) => settings[name] === 'off',
  );
  if (off.length === 0)
    return ok(
      check,
      'fsync, full_page_writes and synchronous_commit are on: what is committed survives a crash.',
    );
  const fixes = off.map((name) =>
    name === 'synchronous_commit' ? REPAIRS.setForRole(role, name, 'on') : REPAIRS.setForServer(name),
  );
  const detail = `${off.join(' and ')} off: a crash of the server can lose committed data.`;
  return { check, verdict: 'warn', detail, fix: fixes.join(' ') };
}

export function judgeWriting({ settings, role, isStandby }: ServerFacts): Finding {
  const check = 'transactions';
  if (isStandby)
    return {
      check,
      verdict: 'problem',
      detail: 'This server is a standby and accepts no writes.',
      fix: 'Use the URL of the primary. A standby serves reads only, among them subscriptions.',
    };
  if (settings.default_transaction_read_only === 'on')
    return {
      check,
      verdict: 'problem',
      detail: 'Transactions are read-only by default.',
      fix: REPAIRS.setForRole(role, 'default_transaction_read_only', 'off'),
    };
  if (settings.server_encoding !== undefined && settings.server_encoding !== 'UTF8')
    return {
      check,
      verdict: 'problem',
      detail: `The database has the encoding ${settings.server_encoding}; the engine needs UTF8.`,
      fix: REPAIRS.createInUtf8,
    };
  if (settings.array_nulls === 'off')
    return {
      check,
      verdict: 'problem',
      detail: 'array_nulls is off, but the engine sends arrays with NULL.',
      fix: REPAIRS.setForRole(role, 'array_nulls', 'on'),
    };
  const isolation = settings.default_transaction_isolation ?? 'unknown';
  if (isolation !== 'read committed')
    return {
      check,
      verdict: 'problem',
      detail: `The default isolation is ${isolation}; the engine needs read committed.`,
      fix: REPAIRS.setForRole(role, 'default_transaction_isolation', 'read committed'),
    };
  return ok(check, 'Writable, read committed.');
}

export function judgeSchema(standing: SchemaStanding): Finding {
  const { schema, access, applied, known, functions, newer, breaking, drifted } = standing;
  const check = 'schema';
  const problem = (detail: string, fix: string): Finding => ({ check, verdict: 'problem', detail, fix });
  const migrate = `flowfabric migrate --schema ${schema}`;
  if (access === 'missing') return problem(`There is no schema ${schema}.`, migrate);
  if (access === 'closed') return problem(`The role may not read schema ${schema}.`, 'See the rights check.');
  if (breaking.length > 0)
    return problem(
      `Schema ${schema} has ${breaking[0]}, which this version cannot work with.`,
      'npm install flowfabric@latest',
    );
  if (drifted.length > 0)
    return problem(
      `${drifted.join(', ')} was applied to schema ${schema} with different content than it has now.`,
      'Install the version that migrated it, or use a fresh schema.',
    );
  if (applied < known) return problem(`Schema ${schema} is at migration ${applied} of ${known}.`, migrate);
  if (functions === 'older')
    return problem(`Schema ${schema} has the functions of an older version.`, migrate);
  if (functions === 'different')
    return {
      check,
      verdict: 'warn',
      detail: `The functions in schema ${schema} differ from those of this version.`,
      fix: migrate,
    };
  const more = newer.length === 0 ? '' : ` and ${newer.length} newer, compatible with this version`;
  return ok(check, `Schema ${schema} has all ${known} migrations${more}.`);
}

export function judgeRights(missing: readonly string[], { role }: ServerFacts, schema: string): Finding {
  const check = 'rights';
  if (missing.length === 0) return ok(check, `Role ${role} has the rights it needs.`);
  return {
    check,
    verdict: 'problem',
    detail: `Role ${role} lacks ${listed(missing)}.`,
    fix: `flowfabric migrate --schema ${schema} --grant-to ${role}   (as the owner of the schema)`,
  };
}

function listed(names: readonly string[]): string {
  const more = names.length - NAMES_SHOWN;
  return names.slice(0, NAMES_SHOWN).join(', ') + (more > 0 ? ` and ${more} more` : '');
}

export function judgeBloat(tables: readonly TableFacts[], server: ServerFacts, schema: string): Finding {
  const check = 'dead rows';
  const bloated = tables.filter(({ live, dead }) => dead >= DEAD_ROWS_LIMIT && dead > live);
  if (bloated.length > 0) {
    const sizes = bloated.map(({ table, live, dead }) => `${table} has ${dead} dead rows to ${live} live`);
    return {
      check,
      verdict: 'warn',
      detail: `${sizes.join(', ')}: claims get slower. An old transaction may prevent their removal.`,
      fix: bloated.map(({ table }) => REPAIRS.vacuum(schema, table)).join(' '),
    };
  }
  if (server.settings.autovacuum === 'off')
    return {
      check,
      verdict: 'warn',
      detail: 'autovacuum is off: dead rows of finished work are not removed.',
      fix: REPAIRS.setForServer('autovacuum'),
    };
  const most = Math.max(0, ...tables.map(({ dead }) => dead));
  return ok(check, `At most ${most} in a queue table.`);
}

export function judgeTransactions(facts: TransactionFacts, { role }: ServerFacts, limitMs: number): Finding {
  const check = 'oldest transaction';
  const { oldest, hidden } = facts;
  const unseen = hidden === 0 ? '' : ` ${hidden} sessions of other roles could not be checked.`;
  const fix = hidden === 0 ? null : REPAIRS.seeAllSessions(role);
  if (oldest === undefined) return { check, verdict: 'ok', detail: `None is open.${unseen}`, fix };
  const { pid, prepared, application, ageMs, state } = oldest;
  const session = `pid ${pid} (${application || 'no application_name'}, role ${oldest.role}, ${state})`;
  const who = prepared === null ? session : `prepared transaction ${prepared} (role ${oldest.role})`;
  const detail = `${who}, open for ${Math.round(ageMs / 1_000)} s.`;
  if (ageMs < limitMs) return { check, verdict: 'ok', detail: detail + unseen, fix };
  return {
    check,
    // Active work may end by itself, a backup for example; an idle session was forgotten.
    verdict: state === 'active' ? 'warn' : 'problem',
    detail: `${detail} Until it ends, no dead rows can be removed.`,
    fix: prepared === null ? REPAIRS.endSession(pid!) : REPAIRS.rollBackPrepared(prepared),
  };
}

/** `roundTripMs` is how long the query took: its result can be off by half of that. */
export function judgeClock(skewMs: number, roundTripMs: number): Finding {
  const check = 'clock';
  const seconds = (Math.abs(skewMs) / 1_000).toFixed(1);
  if (Math.abs(skewMs) - roundTripMs / 2 <= SKEW_LIMIT_MS)
    return ok(check, `This host and the database agree within ${seconds} s.`);
  return {
    check,
    verdict: 'warn',
    detail: `The database is ${seconds} s ${skewMs > 0 ? 'ahead of' : 'behind'} this host. The engine uses only the clock of the database.`,
    fix: 'Run a time service (chrony, systemd-timesyncd) on both.',
  };
}

const DIRECT = 'Give connect() a listenUrl that reaches the server directly (here: --listen-url).';

export function judgeEcho(echo: Echo, limitMs: number): Finding {
  const check = 'notifications';
  if (echo === 'received') return ok(check, 'A notification sent through the pool was received.');
  const detail =
    echo === 'unopened'
      ? 'No listening connection could be opened.'
      : `A notification was not received within ${limitMs / 1_000} s.`;
  return { check, verdict: 'warn', detail: `${detail} Work is found by polling only.`, fix: DIRECT };
}

export function judgePooler({ first, second }: AnsweringPids, listening: 'same' | 'separate'): Finding {
  const check = 'pooler';
  const isShared = new Set(first).size > 1 || new Set(second).size > 1 || first[0] === second[0];
  if (!isShared)
    return ok(check, 'Each connection keeps its server process: a direct connection, or a session pooler.');
  const detail = 'The URL goes through a pooler in transaction mode, which cannot listen.';
  if (listening === 'separate') return ok(check, `${detail} Listening has a URL of its own.`);
  return { check, verdict: 'warn', detail, fix: DIRECT };
}

export function judgeConnections(server: ServerFacts, poolSize: number): Finding {
  const check = 'connections';
  const { settings, connections, isSuperuser } = server;
  const reserved = isSuperuser
    ? 0
    : Number(settings.superuser_reserved_connections ?? 0) + Number(settings.reserved_connections ?? 0);
  // Limits of a role or a database do not bind a superuser.
  const limits = isSuperuser ? [] : [server.roleLimit, server.databaseLimit].filter((limit) => limit >= 0);
  const most = Math.min(Number(settings.max_connections) - reserved, ...limits);
  const needed = connectionBudget(poolSize).total;
  const fix = 'Lower poolSize, use a pooler, or raise max_connections (and the limits of role and database).';
  if (needed > most)
    return {
      check,
      verdict: 'problem',
      detail: `A process needs ${needed} connections, but the server allows ${most}.`,
      fix,
    };
  if (connections + needed > most)
    return {
      check,
      verdict: 'warn',
      detail: `${connections} of ${most} connections are in use; there is no room for another process with ${needed}.`,
      fix,
    };
  return ok(check, `${connections} of ${most} are in use; a process needs ${needed}.`);
}

export function judgeStuck({ count, worst }: StuckFacts): Finding {
  const check = 'stuck executions';
  const first = worst[0];
  if (first === undefined) return ok(check, 'None.');
  const names = worst.map(
    ({ executionId, reconciler, failures, errorCode }) =>
      `${executionId} (${reconciler}, ${failures} failures, ${errorCode})`,
  );
  const more = count - worst.length;
  return {
    check,
    verdict: first.failures >= FAILURES_LIMIT ? 'problem' : 'warn',
    detail: `The reconcilers fail on ${count}: ${names.join(', ')}${more > 0 ? ` and ${more} more` : ''}.`,
    fix: `flowfabric describe '${first.executionId}'`,
  };
}

export function judgeHeld({ sessions }: HeldFacts): Finding {
  const check = 'held executions';
  const holder = holderOf(sessions);
  if (holder === undefined) return ok(check, 'No session locks one for long.');
  const { pid, ageMs, doing, executionIds } = holder;
  const first = executionIds[0]!;
  const which = executionIds.length === 1 ? first : `${first} and ${executionIds.length - 1} more`;
  return {
    check,
    // The engine's own statements have ended by then; active work may end by itself.
    verdict: doing !== 'active' && (ageMs ?? 0) >= HELD_PROBLEM_MS ? 'problem' : 'warn',
    detail: `${nameSession(holder, 'Session')}, locks ${which}: until it ends, leases cannot lapse and deadlines cannot fire.`,
    fix: REPAIRS.endSession(pid),
  };
}

export function judgeUpkeep({ tickets, lapsedLeases, dueTimers, isBusy }: UpkeepFacts): Finding {
  const check = 'reconcilers';
  const fix = 'Keep a process running that calls connect() with reconcile on, for example a worker.';
  const held = tickets.filter(({ isHeld }) => isHeld).map(({ name }) => name);
  if (lapsedLeases + dueTimers > 0)
    return {
      check,
      verdict: 'problem',
      detail: `Nothing acts on ${lapsedLeases} lapsed leases and ${dueTimers} due timers.`,
      fix,
    };
  if (held.length > 0) return ok(check, `Running: ${held.join(', ')}.`);
  if (!isBusy) return ok(check, 'None is running, and there is nothing to do.');
  return { check, verdict: 'warn', detail: 'None is running, but there are unfinished executions.', fix };
}

export function judgeRoutes(count: number): Finding {
  const check = 'routes';
  const detail = `${count} combinations of lane, kind and capabilities are in use; the limit is ${LIMITS.routes}.`;
  if (count < LIMITS.routes / 2) return ok(check, detail);
  return {
    check,
    verdict: count < LIMITS.routes ? 'warn' : 'problem',
    detail: `${detail} Beyond it, new ones are refused.`,
    fix: 'Use fewer lanes; separate tenants by namespace or tag instead. Unused combinations are forgotten once none of their executions are kept.',
  };
}

export function judgeFeed({ unstamped, epoch, consumers, late, failing }: FeedFacts): Finding {
  const check = 'event feed';
  const fix = 'flowfabric consumers list';
  if (failing !== null && failing.failures >= FAILURES_LIMIT) {
    const detail = `Consumer ${failing.name} failed ${failing.failures} times in a row (${failing.errorCode}).`;
    return { check, verdict: 'problem', detail, fix };
  }
  if (unstamped > 0)
    return {
      check,
      verdict: 'warn',
      detail: `${unstamped} events older than a minute have no position. Either a long transaction has just ended, or no process assigns positions.`,
      fix: 'Keep a process running that calls connect() with reconcile on, for example a worker.',
    };
  if (late !== null && late.lagMs > LAG_LIMIT_MS) {
    const detail = `Consumer ${late.name} is ${Math.round(late.lagMs / 3_600_000)} hours behind.`;
    return { check, verdict: 'warn', detail, fix };
  }
  const jumps = epoch === 0 ? '' : ` Positions jumped ${epoch} times: the database was moved or restored.`;
  const count = consumers === 1 ? '1 consumer' : `${consumers} consumers`;
  return ok(check, `Every event has its position; ${count}, none far behind.${jumps}`);
}
