/**
 * The routes a process knows, so that a claim names only those it can run. Read again when a claim reports a route
 * that is not known yet, when a hint names one, and at an interval because lanes may have changed.
 */
import type { Database } from '../../database/database.ts';
import { readRoutes, type KnownRoute } from './routes.sql.ts';
import { routeMatches, type RouteDemand } from '../../../model/routes.ts';

/** Changes of lanes are noticed within this time. */
const MAX_AGE_MS = 10_000;

export class RouteCache {
  readonly #database: Database;
  #routes = new Map<number, KnownRoute>();
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;
  /** How often `forget` was called: a read that began before the last call is too old. */
  #forgotten = 0;

  constructor(database: Database) {
    this.#database = database;
  }

  get(routeId: number): KnownRoute | undefined {
    return this.#routes.get(routeId);
  }

  get highest(): number {
    let highest = 0;
    for (const routeId of this.#routes.keys()) highest = Math.max(highest, routeId);
    return highest;
  }

  /** Routes a worker with this demand may claim from now; paused lanes are left out. */
  matching(demand: RouteDemand): KnownRoute[] {
    const matching: KnownRoute[] = [];
    for (const route of this.#routes.values()) {
      if (!route.paused && routeMatches(route, demand)) matching.push(route);
    }
    return matching;
  }

  /** Makes the next claim read the routes again. */
  forget(): void {
    this.#readAt = Number.NEGATIVE_INFINITY;
    this.#forgotten += 1;
  }

  async refreshIfOld(): Promise<void> {
    if (this.isOld()) await this.refresh();
    // The awaited read may have begun before the last `forget`.
    if (this.isOld()) await this.refresh();
  }

  /** Whether lanes may have changed since the routes were read. */
  isOld(): boolean {
    return performance.now() - this.#readAt >= MAX_AGE_MS;
  }

  /** One read at a time serves all concurrent callers. */
  refresh(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(): Promise<void> {
    const forgotten = this.#forgotten;
    const rows = await readRoutes(this.#database);
    this.#routes = new Map(rows.map((row) => [row.routeId, row]));
    if (forgotten === this.#forgotten) this.#readAt = performance.now();
  }
}
