/**
 * How far in each queue the last claims got, so that a claim can seek past dead rows that cannot be removed yet because
 * of an old snapshot. Only an optimisation: positions trail by a moment, because rows become visible slightly out of
 * order, and a plain claim runs regularly and whenever a claim returned fewer rows than requested.
 */
import type { ClaimCall, ClaimPage } from './claims.sql.ts';
import type { RouteDemand } from '../../../model/routes.ts';
import type { HandOn } from './hand-on.ts';

/** How far positions trail: rows with a lower number commit within this time, or are found by a plain claim. */
const TRAIL_MS = 250;
const PLAIN_EVERY_MS = 1_000;
/** Queues (route and priority) remembered; beyond that, claims are plain. */
const MAX_QUEUES = 1_000;

/** A row of a queue, which is a route and a priority. */
interface Place {
  routeId: number;
  rank: number;
  seq: number;
}

interface Mark extends Omit<Place, 'seq'> {
  /** Rows up to this number may be skipped. */
  settledSeq: number;
  recent: { seq: number; atMs: number }[];
}

/** What a process remembers about one worker's demand between claims. */
export interface DemandMemory {
  /** The same in the form routes are matched with. */
  demand: RouteDemand;
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
    for (const mark of this.#marks.values()) {
      const { routeId, rank } = mark;
      if (!routeIds.has(routeId)) continue;
      settle(mark, nowMs);
      entries.push({ routeId, rank, afterSeq: mark.settledSeq });
    }
    return entries;
  }

  /** Learns from what a claim returned; fewer rows than requested make the next claim a plain one. */
  learn(pages: readonly ClaimPage[], asked: number, nowMs: number): void {
    let found = 0;
    const highest = new Map<string, Place>();
    for (const page of pages) {
      found += page.uuid.length;
      noteHighest(page, highest);
    }
    this.#short = found < asked;
    for (const [key, { routeId, rank, seq }] of highest) {
      const mark = this.#marks.get(key) ?? { routeId, rank, settledSeq: 0, recent: [] };
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

/** Per queue. Neighbours mostly come from one. */
function noteHighest({ routeId, priority, seq }: ClaimPage, highest: Map<string, Place>): void {
  let begin = 0;
  for (let index = 1; index <= seq.length; index += 1) {
    if (routeId[index] === routeId[begin] && priority[index] === priority[begin]) continue;
    const place = { routeId: routeId[begin]!, rank: -priority[begin]!, seq: 0 };
    for (let at = begin; at < index; at += 1) place.seq = Math.max(place.seq, seq[at]!);
    const key = `${place.routeId}:${place.rank}`;
    const known = highest.get(key);
    if (known === undefined || known.seq < place.seq) highest.set(key, place);
    begin = index;
  }
}
