/**
 * The routes a process knows, so that a claim names only those it can run. Read again when a claim reports a higher
 * route than known, when a hint names an unknown one, and at an interval for what changed about lanes.
 */
import type { Database } from '../../database/database.ts';
import { readRoutes, type KnownRoute } from './routes.sql.ts';
import { routeMatches, type RouteDemand } from '../../../model/routes.ts';

/** Lanes that were paused or silenced are noticed within this time. */
const MAX_AGE_MS = 10_000;

export class RouteCache {
  readonly #database: Database;
  #routes = new Map<number, KnownRoute>();
  #readAt = Number.NEGATIVE_INFINITY;
  #reading: Promise<void> | undefined;
  /** Times it was told to read again: a read that began before is no answer to that. */
  #told = 0;

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

  /** Routes a worker with this demand may take from now; lanes that are paused are left out. */
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
    this.#told += 1;
  }

  async refreshIfOld(): Promise<void> {
    if (this.#isOld()) await this.refresh();
    // The read that was waited for had begun too early.
    if (this.#isOld()) await this.refresh();
  }

  #isOld(): boolean {
    return performance.now() - this.#readAt >= MAX_AGE_MS;
  }

  /** One read at a time serves all who ask meanwhile. */
  refresh(): Promise<void> {
    this.#reading ??= this.#read().finally(() => {
      this.#reading = undefined;
    });
    return this.#reading;
  }

  async #read(): Promise<void> {
    const told = this.#told;
    const rows = await readRoutes(this.#database);
    this.#routes = new Map(rows.map((row) => [row.routeId, row]));
    if (told === this.#told) this.#readAt = performance.now();
  }
}
