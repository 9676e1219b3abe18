/**
 * Reads the event log of a database. Readers that follow the feed need the same pages at the same time, so a page is
 * read once for all of them, without their filters. A reader that is behind reads on its own, with its filter in the
 * statement.
 */
import { encodeCursor } from '../../contract/cursor.ts';
import { EngineError } from '../../contract/errors.ts';
import type { FeedEvent } from '../../contract/events.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { Database } from '../database/database.ts';
import {
  readEvents,
  sequenceEvents,
  type EventPage,
  type StoredEvent,
  type StoredEventFilter,
} from './events.sql.ts';
import { decodeEvent } from './decode.ts';
import { matches } from './matching.ts';
import { Pulse } from './pulse.ts';
import { SharedPages } from './shared-pages.ts';
import type { FeedBounds, FeedPage, FeedSource, FeedWatcher, Outage, Woken } from './source.ts';

/** A reader at most this far behind the newest position counts as following. */
const FOLLOWING = BigInt(LIMITS.eventPage * 16);
/** Positions examined in one read before control returns to the reader. */
const WALKED = BigInt(LIMITS.eventsExamined * 4);

const EVERYTHING: StoredEventFilter = {
  families: null,
  types: null,
  namespace: null,
  tags: null,
  kind: null,
  lane: null,
  execution: null,
  flow: null,
  partitions: null,
};

/** The event feed of one database. */
export class DatabaseFeed implements FeedSource {
  readonly #database: Database;
  readonly #pulse: Pulse;
  readonly #pages: SharedPages;
  readonly #decoded = new WeakMap<StoredEvent, FeedEvent>();
  /** By reader. A row of the log is read as a whole, which may be more than a small batch takes. */
  readonly #rests = new WeakMap<StoredEventFilter, { after: bigint; rows: StoredEvent[]; to: bigint }>();
  /** The last position known in this process; readers shortly before it follow the feed. */
  #newest = -1n;

  constructor(database: Database, watchFeed: (watcher: FeedWatcher) => () => void) {
    this.#database = database;
    this.#pulse = new Pulse(database, watchFeed, (last) => this.#heard(last));
    this.#pages = new SharedPages((after) =>
      this.#checked(after, LIMITS.eventPage, EVERYTHING, LIMITS.eventPage),
    );
  }

  async read(after: bigint, filter: StoredEventFilter, limit = Infinity): Promise<FeedPage> {
    const follows = after >= this.#newest - FOLLOWING;
    const { rows, to } = follows
      ? await this.#pages.after(after)
      : (this.#restAfter(after, filter) ??
        (await this.#walk(after, filter, Math.min(limit, LIMITS.eventPage))));
    this.#heard(to);
    const wanted = follows ? rows.filter((row) => matches(filter, row)) : rows;
    const events = this.#decodeFirst(wanted, limit);
    if (events.length === wanted.length) return { events, to, atEnd: to === after };
    // Cut short: everything up to the last returned event was examined.
    const last = events.at(-1)!.position;
    if (!follows) this.#rests.set(filter, { after: last, rows: wanted.slice(events.length), to });
    return { events, to: last, atEnd: false };
  }

  /** What the same reader's last read had found beyond its limit. */
  #restAfter(after: bigint, filter: StoredEventFilter): Pick<EventPage, 'rows' | 'to'> | undefined {
    const rest = this.#rests.get(filter);
    return rest?.after === after ? rest : undefined;
  }

  /** Decodes up to an event that cannot be decoded; the read that starts with that one throws. */
  #decodeFirst(rows: readonly StoredEvent[], limit: number): FeedEvent[] {
    const events: FeedEvent[] = [];
    try {
      for (const row of rows.slice(0, limit)) events.push(this.#decode(row));
    } catch (error) {
      if (events.length === 0) throw error;
    }
    return events;
  }

  /** Decodes a row once for all readers of a page. */
  #decode(row: StoredEvent): FeedEvent {
    const known = this.#decoded.get(row);
    if (known !== undefined) return known;
    const event = decodeEvent(row);
    this.#decoded.set(row, event);
    return event;
  }

  wait(after: bigint, signal: AbortSignal): Promise<Woken> {
    return this.#pulse.wait(after, signal);
  }

  outage(reason: string): Outage {
    return this.#pulse.outage(reason);
  }

  async bounds(): Promise<FeedBounds> {
    const { floor, last, stamped } = await sequenceEvents(this.#database, 'wait');
    this.#heard(last);
    return { floor, last, isStandby: stamped === null };
  }

  close(): Promise<void> {
    this.#pages.close();
    return this.#pulse.close();
  }

  /** Called with positions read from the database, never from a hint. */
  #heard(last: bigint): void {
    if (last > this.#newest) this.#newest = last;
  }

  /** Examines more rows per statement the fewer of them match. */
  async #walk(
    after: bigint,
    filter: StoredEventFilter,
    wanted: number,
  ): Promise<Pick<EventPage, 'rows' | 'to'>> {
    const rows: StoredEvent[] = [];
    let examined: number = LIMITS.eventPage;
    let to = after;
    while (to - after < WALKED) {
      const page = await this.#checked(to, examined, filter, wanted - rows.length);
      rows.push(...page.rows);
      if (page.to === to || rows.length >= wanted) return { rows, to: page.to };
      to = page.to;
      if (page.rows.length * 8 < examined) examined = Math.min(examined * 4, LIMITS.eventsExamined);
    }
    return { rows, to };
  }

  /** The log has no gaps: an event that is not found was deleted meanwhile, or an invariant is broken. */
  async #checked(
    after: bigint,
    examined: number,
    filter: StoredEventFilter,
    limit: number,
  ): Promise<EventPage> {
    const page = await readEvents(this.#database, after, { examined, limit }, filter);
    const floor = page.found === page.expected ? page.floor : (await this.bounds()).floor;
    if (after + 1n < floor) {
      throw new EngineError(
        'cursor_expired',
        `Events up to position ${floor - 1n} are no longer kept: continue from error.oldest; move a consumer there with consumers.move.`,
        {
          oldest: encodeCursor(floor - 1n),
        },
      );
    }
    if (page.found === page.expected) return page;
    throw new EngineError(
      'invariant_broken',
      `There should be ${page.expected} events from the run with position ${after + 1n} to that with ${page.to}, but there are ${page.found}.`,
    );
  }
}
