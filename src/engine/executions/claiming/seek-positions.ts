/**
 * How far in each queue the last claims got, so that a claim can seek past dead rows that cannot be removed yet because
 * of an old snapshot. Only an optimisation: positions trail by a moment, because rows become visible slightly out of
 * order, and a plain claim runs regularly and whenever a claim returned fewer rows than requested.
 */
import type { ClaimCall, ClaimRow } from './claims.sql.ts';
import type { HandOn } from './hand-on.ts';

/** How far positions trail: rows with a lower number commit within this time, or are found by a plain claim. */
const TRAIL_MS = 250;
const PLAIN_EVERY_MS = 1_000;
/** Queues (route and priority) remembered; beyond that, claims are plain. */
const MAX_QUEUES = 1_000;

interface Mark {
  /** Rows up to this number may be skipped. */
  settledSeq: number;
  recent: { seq: number; atMs: number }[];
}

/** What a process remembers about one worker's demand between claims. */
export interface DemandMemory {
  seek: SeekPositions;
  /** Which lane is claimed from first. */
  turn: number;
  foundNothing: boolean;
  handOn: HandOn;
}

export class SeekPositions {
  readonly #marks = new Map<string, Mark>();
  /** Per route, because lanes take turns: each must get its plain claim in time. */
  readonly #plainAt = new Map<number, number>();
  #short = true;

  /** Entries that claim from the whole of these routes. */
  plainEntries(routeIds: readonly number[], nowMs: number): ClaimCall['entries'] {
    for (const routeId of routeIds) this.#plainAt.set(routeId, nowMs);
    return routeIds.map((routeId) => ({ routeId, rank: null, afterSeq: 0 }));
  }

  /** Entries that seek past what was claimed before; none when it is time for a plain claim. */
  seekingEntries(routeIds: readonly number[], nowMs: number): ClaimCall['entries'] {
    const overdue = (routeId: number) => nowMs - (this.#plainAt.get(routeId) ?? -Infinity) >= PLAIN_EVERY_MS;
    if (this.#short || routeIds.some(overdue)) return [];
    return this.#entriesFor(new Set(routeIds), nowMs);
  }

  #entriesFor(routeIds: ReadonlySet<number>, nowMs: number): ClaimCall['entries'] {
    const entries: ClaimCall['entries'] = [];
    for (const [key, mark] of this.#marks) {
      const [routeId, rank] = key.split(':').map(Number) as [number, number];
      if (!routeIds.has(routeId)) continue;
      settle(mark, nowMs);
      entries.push({ routeId, rank, afterSeq: mark.settledSeq });
    }
    return entries;
  }

  /** Learns from what a claim returned; fewer rows than requested make the next claim a plain one. */
  learn(rows: readonly ClaimRow[], asked: number, nowMs: number): void {
    this.#short = rows.length < asked;
    for (const [key, seq] of highestPerQueue(rows)) {
      const mark = this.#marks.get(key) ?? { settledSeq: 0, recent: [] };
      mark.recent.push({ seq, atMs: nowMs });
      this.#marks.set(key, mark);
    }
    if (this.#marks.size > MAX_QUEUES) this.#marks.clear();
    for (const mark of this.#marks.values()) settle(mark, nowMs);
  }
}

function settle(mark: Mark, nowMs: number): void {
  while (mark.recent.length > 0 && nowMs - mark.recent[0]!.atMs >= TRAIL_MS) {
    mark.settledSeq = Math.max(mark.settledSeq, mark.recent.shift()!.seq);
  }
}

function highestPerQueue(rows: readonly ClaimRow[]): Map<string, number> {
  const highest = new Map<string, number>();
  // Neighbours mostly come from one queue.
  let [routeId, priority, key] = [-1, 0, ''];
  for (const row of rows) {
    if (row.routeId !== routeId || row.priority !== priority) {
      [routeId, priority] = [row.routeId, row.priority];
      key = `${routeId}:${-priority}`;
    }
    highest.set(key, Math.max(row.seq, highest.get(key) ?? 0));
  }
  return highest;
}
