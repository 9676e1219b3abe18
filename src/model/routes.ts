/**
 * A route is an interned (lane, kind, required capabilities): what the queue is keyed by and a worker matches.
 * Matching is pure; the database interns routes.
 */
import { offersAll } from './capabilities.ts';

export interface Route {
  routeId: number;
  lane: string;
  kind: string;
  capabilities: readonly string[];
}

export interface RouteDemand {
  /** Lanes to take work from; undefined means every lane. */
  lanes?: ReadonlySet<string> | undefined;
  kinds: ReadonlySet<string>;
  capabilities: ReadonlySet<string>;
}

/** True when a worker with this demand may run work of this route. */
export function routeMatches(route: Route, demand: RouteDemand): boolean {
  if (!demand.kinds.has(route.kind)) return false;
  if (demand.lanes !== undefined && !demand.lanes.has(route.lane)) return false;
  return offersAll(route.capabilities, demand.capabilities);
}
