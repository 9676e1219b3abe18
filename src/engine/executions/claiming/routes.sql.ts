/**
 * Routes: reads them with the settings of their lanes, for the cache of a process; interns new ones; forgets unused
 * ones.
 */
import { LIMITS } from '../../../contract/limits.ts';
import type { Route } from '../../../model/routes.ts';
import { columnsOf, withColumns, type RowOf } from '../../database/columns.ts';
import { run, type Database } from '../../database/database.ts';
import { routesJson, type InternedRoute, type SubmitRoute } from '../submitting/submits.sql.ts';

/** A route, and whether its lane is paused. */
const ROUTE = withColumns(
  columnsOf<Route>('r')('routeId', 'lane', 'kind', 'capabilities'),
  columnsOf<{ paused: boolean }>('l')('paused'),
);
export type KnownRoute = RowOf<typeof ROUTE>;

export function readRoutes(database: Database): Promise<KnownRoute[]> {
  return run(database, {
    doing: 'reading routes',
    columns: ROUTE,
    text: `SELECT ${ROUTE.list}
           FROM ${database.prefix}ff_route r JOIN ${database.prefix}ff_lane l ON l.lane = r.lane
           ORDER BY r.route_id`,
    params: [],
    repeatable: 'yes',
  });
}

const INTERNED = columnsOf<InternedRoute & { ordinal: number }>()('ordinal', 'routeId', 'usableUntilMs');

/**
 * Interns routes, or extends their term; committed when it returns. Returns them with their numbers, in the same order.
 */
export async function internRoutes(
  database: Database,
  routes: readonly SubmitRoute[],
): Promise<Required<SubmitRoute>[]> {
  const rows = await run(database, {
    doing: 'interning routes',
    columns: INTERNED,
    text: `SELECT ${INTERNED.list} FROM ${database.prefix}ff_intern_routes($1::text::jsonb, $2)`,
    params: [routesJson(routes), LIMITS.routes],
    repeatable: 'yes',
  });
  const byOrdinal = new Map(rows.map(({ ordinal, ...interned }) => [ordinal, interned]));
  return routes.map((route, index) => ({ ...route, interned: byOrdinal.get(index + 1)! }));
}

/** Routes that may be unused. Every transaction that may still submit to them is older than `barrier`. */
export interface IdleRoutes {
  routes: InternedRoute[];
  barrier: string;
}

const IDLE = columnsOf<InternedRoute & Pick<IdleRoutes, 'barrier'>>()('routeId', 'usableUntilMs', 'barrier');

export async function listIdleRoutes(
  database: Database,
  marginMs: number,
  keptMs: number | null,
): Promise<IdleRoutes> {
  const rows = await run(database, {
    doing: 'finding idle routes',
    columns: IDLE,
    text: `SELECT ${IDLE.list} FROM ${database.prefix}ff_idle_routes($1, $2, $3)`,
    params: [marginMs, keptMs, LIMITS.routes / 2],
    repeatable: 'yes',
  });
  return { routes: rows, barrier: rows[0]?.barrier ?? '0' };
}

/** Takes policies as JSON strings; those over the limit are left out. */
export async function internPolicies(database: Database, policies: readonly string[]): Promise<void> {
  await run(database, {
    doing: 'interning policies',
    text: `SELECT ${database.prefix}ff_intern_policies($1::text[]::jsonb[], $2)`,
    params: [[...new Set(policies)], LIMITS.policies],
    repeatable: 'yes',
  });
}

/** Whether every transaction older than the barrier has ended. */
export async function isBehind(database: Database, barrier: string): Promise<boolean> {
  const rows = await run<{ isBehind: boolean }>(database, {
    doing: 'checking whether older transactions have ended',
    text: `SELECT pg_snapshot_xmin(pg_current_snapshot()) > $1::xid8 AS "isBehind"`,
    params: [barrier],
    repeatable: 'yes',
  });
  return rows[0]!.isBehind;
}

export interface UsedRoutes {
  looked: number;
  lastAtMs: number | null;
  routes: number[];
}

const USED = columnsOf<UsedRoutes>()('looked', 'lastAtMs', 'routes');

/** Routes of executions that were submitted between two times, at most `limit` executions per call. */
export async function readUsedRoutes(
  database: Database,
  afterMs: number,
  beforeMs: number,
  limit: number,
): Promise<UsedRoutes> {
  const rows = await run(database, {
    doing: 'finding routes in use',
    columns: USED,
    text: `SELECT ${USED.list} FROM ${database.prefix}ff_used_routes($1, $2, $3)`,
    params: [afterMs, beforeMs, limit],
    repeatable: 'yes',
  });
  return rows[0]!;
}

/** Forgets the idle routes that are not used; returns how many. */
export async function forgetRoutes(
  database: Database,
  idle: readonly InternedRoute[],
  used: readonly number[],
  marginMs: number,
): Promise<number> {
  const rows = await run<{ forgotten: number }>(database, {
    doing: 'forgetting routes',
    text: `SELECT ${database.prefix}ff_forget_routes($1::integer[], $2::bigint[], $3::integer[], $4) AS forgotten`,
    params: [idle.map((route) => route.routeId), idle.map((route) => route.usableUntilMs), used, marginMs],
    repeatable: 'yes',
  });
  return rows[0]!.forgotten;
}

/** Forgets lanes without routes, and names that were kept only for events that are gone; returns how many. */
export async function forgetNames(database: Database, marginMs: number, limit: number): Promise<number> {
  const rows = await run<{ forgotten: number }>(database, {
    doing: 'forgetting lanes',
    text: `SELECT ${database.prefix}ff_forget_lanes($1, $2) + ${database.prefix}ff_forget_former_routes() AS forgotten`,
    params: [marginMs, limit],
    repeatable: 'yes',
  });
  return rows[0]!.forgotten;
}
