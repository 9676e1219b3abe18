/**
 * Routes: reads them with the settings of their lanes, which a process caches, makes new ones known, and forgets those
 * that are out of use.
 */
import { LIMITS } from '../../../contract/limits.ts';
import { run, type Database } from '../../database/database.ts';
import type { SubmitRoute } from '../executions.sql.ts';

export interface RouteRow {
  route_id: number;
  lane: string;
  kind: string;
  capabilities: string[];
  paused: boolean;
  renewal_events: boolean;
}

export function readRoutes(database: Database): Promise<RouteRow[]> {
  return run<RouteRow>(database, {
    doing: 'reading routes',
    text: `SELECT r.route_id, r.lane, r.kind, r.capabilities, l.paused, l.renewal_events
           FROM ${database.prefix}ff_route r JOIN ${database.prefix}ff_lane l ON l.lane = r.lane
           ORDER BY r.route_id`,
    params: [],
    repeatable: 'yes',
  });
}

/** Makes routes known, committed when it answers, or good for another term. Answers them with their numbers, in their order. */
export async function internRoutes(
  database: Database,
  routes: readonly SubmitRoute[],
): Promise<Required<SubmitRoute>[]> {
  const rows = await run<{ ordinal: number; route_id: number; usable_until_ms: number }>(database, {
    doing: 'making routes known',
    text: `SELECT * FROM ${database.prefix}ff_intern_routes($1::text::jsonb, $2)`,
    params: [JSON.stringify(routes), LIMITS.routes],
    repeatable: 'yes',
  });
  const byOrdinal = new Map(rows.map((row) => [row.ordinal, row]));
  return routes.map((route, index) => {
    const { route_id, usable_until_ms } = byOrdinal.get(index + 1)!;
    return { ...route, route_id, usable_until_ms };
  });
}

export interface IdleRoute {
  route_id: number;
  usable_until_ms: number;
}

/** Routes that may be out of use, and the transaction that all who may still submit to them are older than. */
export interface IdleRoutes {
  routes: IdleRoute[];
  barrier: string;
}

export async function listIdleRoutes(
  database: Database,
  marginMs: number,
  keptMs: number | null,
): Promise<IdleRoutes> {
  const rows = await run<IdleRoute & { barrier: string }>(database, {
    doing: 'looking for routes out of use',
    text: `SELECT * FROM ${database.prefix}ff_idle_routes($1, $2, $3)`,
    params: [marginMs, keptMs, LIMITS.routes / 2],
    repeatable: 'yes',
  });
  return { routes: rows, barrier: rows[0]?.barrier ?? '0' };
}

/** Whether every transaction older than the barrier has ended. */
export async function isBehind(database: Database, barrier: string): Promise<boolean> {
  const rows = await run<{ is_behind: boolean }>(database, {
    doing: 'looking whether older transactions have ended',
    text: `SELECT pg_snapshot_xmin(pg_current_snapshot()) > $1::xid8 AS is_behind`,
    params: [barrier],
    repeatable: 'yes',
  });
  return rows[0]!.is_behind;
}

export interface UsedRoutes {
  looked: number;
  last_at_ms: number | null;
  routes: number[];
}

/** Routes of executions that were submitted between two times, some at once. */
export async function readUsedRoutes(
  database: Database,
  afterMs: number,
  beforeMs: number,
  limit: number,
): Promise<UsedRoutes> {
  const rows = await run<UsedRoutes>(database, {
    doing: 'looking which routes are in use',
    text: `SELECT * FROM ${database.prefix}ff_used_routes($1, $2, $3)`,
    params: [afterMs, beforeMs, limit],
    repeatable: 'yes',
  });
  return rows[0]!;
}

/** Forgets those of the idle routes that are not used; answers how many. */
export async function forgetRoutes(
  database: Database,
  idle: readonly IdleRoute[],
  used: readonly number[],
  marginMs: number,
): Promise<number> {
  const rows = await run<{ forgotten: number }>(database, {
    doing: 'forgetting routes',
    text: `SELECT ${database.prefix}ff_forget_routes($1::integer[], $2::bigint[], $3::integer[], $4) AS forgotten`,
    params: [idle.map((route) => route.route_id), idle.map((route) => route.usable_until_ms), used, marginMs],
    repeatable: 'yes',
  });
  return rows[0]!.forgotten;
}

/** Forgets lanes without routes, and names that only events had that are gone; answers how many. */
export async function forgetNames(database: Database, marginMs: number, limit: number): Promise<number> {
  const rows = await run<{ forgotten: number }>(database, {
    doing: 'forgetting lanes',
    text: `SELECT ${database.prefix}ff_forget_lanes($1, $2) + ${database.prefix}ff_forget_former_routes() AS forgotten`,
    params: [marginMs, limit],
    repeatable: 'yes',
  });
  return rows[0]!.forgotten;
}
