/**
 * Reads the routes and the settings of their lanes, which a process caches.
 */
import { run, type Database } from './database.ts';

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
