/**
 * Sends hints: to watchers of this process at once, to other processes by one notification after the commit. The first
 * ring goes out immediately, later ones are merged for a few milliseconds. When a watcher here takes all the work,
 * nobody else is woken.
 */
import { randomUUID } from 'node:crypto';
import type { Hint, HintWatcher } from '../../contract/protocol.ts';
import type { Database } from '../database/database.ts';
import { listenForHints, sendHint, type Listener } from '../database/notify.ts';
import type { FeedWatcher } from '../feed/source.ts';

const MERGE_MS = 10;
/** The longest a process is notified without asking again. */
const MAX_ASK_MS = 60_000;
/** A notification has room for just under 8,000 bytes; what does not fit becomes "poll everything". */
const MAX_HINT_BYTES = 7_900;

interface Wire {
  routes?: number[] | 'all';
  due?: number;
  workers?: string[];
  ended?: string[] | 'all';
  streams?: string[] | 'all';
  /** For this long the sender, named by `from`, wants to know what finishes, or which streams are written to. */
  asks?: number;
  follows?: number;
  from?: string;
  /** The last position of the event feed, as a string. */
  events?: string;
}

export interface Doorbell {
  /** Only `announce` rings. */
  ring(hint: Hint): void;
  /** Asks the other processes to report, for this long, which executions finish. */
  askForEnds(forMs: number): void;
  /** Asks them to report which streams are written to or closed. */
  askForStreams(forMs: number): void;
  watch(watcher: HintWatcher): () => void;
  watchFeed(watcher: FeedWatcher): () => void;
  close(): Promise<void>;
  /** Closes at once, without sending what is pending. */
  abandon(): void;
}

export interface DoorbellOptions {
  database: Database;
  /** Where to listen; without it this process gets only its own hints, and polls. */
  listenUrl?: string | undefined;
}

export function openDoorbell(options: DoorbellOptions): Doorbell {
  const watchers = new Set<HintWatcher>();
  const feedWatchers = new Set<FeedWatcher>();
  const notify = (hint: Hint): boolean => {
    if (!isOfStreams(hint)) for (const watcher of feedWatchers) watcher.stirred();
    let taken = false;
    for (const watcher of watchers) taken = notifyOne(watcher, hint) || taken;
    return taken;
  };
  const self = randomUUID();
  const sender = new Sender(options.database, self);
  let endsAskedUntil = Number.NEGATIVE_INFINITY;
  let streamsAskedUntil = Number.NEGATIVE_INFINITY;
  const listener = startListening(options, {
    notify,
    asked({ asks, follows, from }) {
      if (from === self) return;
      const now = performance.now();
      if (asks > 0) endsAskedUntil = now + Math.min(asks, MAX_ASK_MS);
      if (follows > 0) streamsAskedUntil = now + Math.min(follows, MAX_ASK_MS);
    },
    moved(last) {
      for (const watcher of feedWatchers) watcher.moved(last);
    },
    lost() {
      for (const watcher of feedWatchers) watcher.lost();
    },
    found() {
      for (const watcher of feedWatchers) watcher.found();
    },
  });
  return {
    ring(hint) {
      const taken = notify(hint);
      // Outcomes and streams are sent to other processes only on request: most are awaited here or not at all.
      const now = performance.now();
      const ended = now < Math.max(endsAskedUntil, streamsAskedUntil) ? hint.ended : [];
      const streams = now < streamsAskedUntil ? hint.streams : [];
      const routes = taken ? [] : hint.routes;
      const size = routes.length + hint.workers.length + ended.length + streams.length;
      if (size > 0 || hint.dueInMs !== null) sender.send({ ...hint, routes, ended, streams });
    },
    askForEnds: (forMs) => sender.ask({ asks: forMs }),
    askForStreams: (forMs) => sender.ask({ follows: forMs }),
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    watchFeed(watcher) {
      feedWatchers.add(watcher);
      return () => feedWatchers.delete(watcher);
    },
    async close() {
      watchers.clear();
      feedWatchers.clear();
      await sender.close();
      await listener?.close();
    },
    abandon: () => listener?.abandon(),
  };
}

/** Writing to streams creates no events. */
function isOfStreams({ routes, ended, workers, dueInMs, streams }: Hint): boolean {
  return streams.length > 0 && routes.length + ended.length + workers.length === 0 && dueInMs === null;
}

/** A watcher that throws must not disturb the others: what the hint is about has been committed. */
function notifyOne(watcher: HintWatcher, hint: Hint): boolean {
  try {
    return watcher(hint);
  } catch {
    return false;
  }
}

/** What a process wants to be notified of, and for how long. */
interface Asking {
  asks: number;
  follows: number;
  from: string;
}

interface Incoming {
  notify(hint: Hint): boolean;
  asked(asking: Asking): void;
  moved(last: bigint): void;
  lost(): void;
  found(): void;
}

function startListening(options: DoorbellOptions, incoming: Incoming): Listener | undefined {
  if (options.listenUrl === undefined) return undefined;
  return listenForHints(options.listenUrl, options.database.schema, {
    hint(payload) {
      const { asks, follows, from, last, ...hint } = decode(payload);
      if (asks + follows > 0) incoming.asked({ asks, follows, from });
      if (last === null) incoming.notify(hint);
      else incoming.moved(last);
    },
    open() {
      incoming.found();
      incoming.notify(complete({ routes: 'all', ended: 'all', streams: 'all' }));
    },
    lost: () => incoming.lost(),
  });
}

function complete(hint: Partial<Hint>): Hint {
  return {
    routes: hint.routes ?? [],
    count: hint.count ?? 0,
    dueInMs: hint.dueInMs ?? null,
    workers: hint.workers ?? [],
    ended: hint.ended ?? [],
    streams: hint.streams ?? [],
  };
}

/** Another version may have sent it: what cannot be read means "poll everything". */
function decode(payload: string): Hint & Asking & { last: bigint | null } {
  try {
    const wire = JSON.parse(payload) as Wire;
    const hint = complete({
      routes: wire.routes === 'all' || Array.isArray(wire.routes) ? wire.routes : [],
      count: Number.MAX_SAFE_INTEGER,
      dueInMs: typeof wire.due === 'number' ? wire.due : null,
      workers: Array.isArray(wire.workers) ? wire.workers : [],
      ended: wire.ended === 'all' || Array.isArray(wire.ended) ? wire.ended : [],
      streams: wire.streams === 'all' || Array.isArray(wire.streams) ? wire.streams : [],
    });
    const asks = typeof wire.asks === 'number' ? wire.asks : 0;
    const follows = typeof wire.follows === 'number' ? wire.follows : 0;
    const last = wire.events === undefined ? null : BigInt(wire.events);
    return { ...hint, asks, follows, from: String(wire.from ?? ''), last };
  } catch {
    const all = complete({ routes: 'all', ended: 'all', streams: 'all' });
    return { ...all, asks: 0, follows: 0, from: '', last: null };
  }
}

/** Merges rings into as few notifications as possible. */
class Sender {
  readonly #database: Database;
  readonly #self: string;
  #pending: Hint | undefined;
  #asking: Pick<Wire, 'asks' | 'follows'> = {};
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #closed = false;

  constructor(database: Database, self: string) {
    this.#database = database;
    this.#self = self;
  }

  ask(asking: Pick<Wire, 'asks' | 'follows'>): void {
    this.#asking = { ...this.#asking, ...asking };
    this.send(complete({}));
  }

  send(hint: Hint): void {
    if (this.#closed) return;
    this.#pending = this.#pending === undefined ? hint : merge(this.#pending, hint);
    this.#sendPending();
  }

  #sendPending(): void {
    if (this.#pending === undefined || this.#timer !== undefined || this.#sending !== undefined) return;
    this.#flush();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#sendPending();
    }, MERGE_MS);
    this.#timer.unref();
  }

  #flush(): void {
    const hint = this.#pending;
    if (hint === undefined) return;
    this.#pending = undefined;
    const asking = this.#asking;
    this.#asking = {};
    const asked = Object.keys(asking).length === 0 ? {} : { ...asking, from: this.#self };
    this.#sending = sendHint(this.#database, encode(hint, asked))
      // A hint that cannot be sent delays others, but never affects correctness.
      .catch(() => undefined)
      .finally(() => {
        this.#sending = undefined;
        if (!this.#closed) this.#sendPending();
      });
  }

  /** Sends pending hints first: others often wait for a process that exits right after its call. */
  async close(): Promise<void> {
    this.#closed = true;
    clearTimeout(this.#timer);
    await this.#sending;
    this.#flush();
    await this.#sending;
  }
}

function merge(a: Hint, b: Hint): Hint {
  const due = [a.dueInMs, b.dueInMs].filter((ms) => ms !== null);
  return {
    routes: a.routes === 'all' || b.routes === 'all' ? 'all' : [...new Set([...a.routes, ...b.routes])],
    count: a.count + b.count,
    dueInMs: due.length === 0 ? null : Math.min(...due),
    workers: [...new Set([...a.workers, ...b.workers])],
    ended: a.ended === 'all' || b.ended === 'all' ? 'all' : [...a.ended, ...b.ended],
    streams: a.streams === 'all' || b.streams === 'all' ? 'all' : [...new Set([...a.streams, ...b.streams])],
  };
}

function encode(hint: Hint, asking: Pick<Wire, 'asks' | 'follows' | 'from'>): string {
  const due = hint.dueInMs === null ? {} : { due: hint.dueInMs };
  const routes = hint.routes.length === 0 ? {} : { routes: hint.routes };
  const workers = hint.workers.length === 0 ? {} : { workers: hint.workers };
  const ended = hint.ended.length === 0 ? {} : { ended: hint.ended };
  const streams = hint.streams.length === 0 ? {} : { streams: hint.streams };
  const text = JSON.stringify({ ...routes, ...workers, ...due, ...ended, ...streams, ...asking });
  if (Buffer.byteLength(text) <= MAX_HINT_BYTES) return text;
  // Too many outcomes or streams alone must not make every worker poll.
  const fewer = JSON.stringify({ ...routes, ...workers, ...due, ended: 'all', streams: 'all', ...asking });
  if (Buffer.byteLength(fewer) <= MAX_HINT_BYTES) return fewer;
  return JSON.stringify({ routes: 'all', workers: ['*'], ...due, ended: 'all', streams: 'all', ...asking });
}
