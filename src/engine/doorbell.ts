/**
 * Tells those who wait that there is something to do: watchers of this process at once, other processes by one
 * notification after the commit. The first ring goes out immediately, later ones are merged for a few milliseconds.
 * When a watcher here takes all the work, nobody else is woken.
 */
import { randomUUID } from 'node:crypto';
import type { Hint, HintWatcher } from '../contract/engine.ts';
import type { Database } from '../store/database.ts';
import { listenForHints, sendHint, type Listener } from '../store/notify.ts';
import type { FeedWatcher } from '../subscriptions/source.ts';

const MERGE_MS = 10;
/** Longest an asker is told without asking again. */
const MAX_ASK_MS = 60_000;
/** A notification holds just under 8,000 bytes; what does not fit says "look everywhere". */
const MAX_HINT_BYTES = 7_900;

interface Wire {
  routes?: number[] | 'all';
  due?: number;
  workers?: string[];
  ended?: string[] | 'all';
  /** For this long the sender, named by `from`, wants to hear what ends. */
  asks?: number;
  from?: string;
  /** The last position of the event feed, as text. */
  events?: string;
}

export interface Doorbell {
  ring(hint: Partial<Hint>): void;
  /** Asks the other processes to say, for this long, which executions end. */
  askForEnds(forMs: number): void;
  watch(watcher: HintWatcher): () => void;
  watchFeed(watcher: FeedWatcher): () => void;
  close(): Promise<void>;
}

export interface DoorbellOptions {
  database: Database;
  /** Where to listen; without it this process hears only itself and looks at intervals. */
  listenUrl?: string | undefined;
}

export function openDoorbell(options: DoorbellOptions): Doorbell {
  const watchers = new Set<HintWatcher>();
  const feedWatchers = new Set<FeedWatcher>();
  const tell = (hint: Hint): boolean => {
    for (const watcher of feedWatchers) watcher.stirred();
    let taken = false;
    for (const watcher of watchers) taken = tellOne(watcher, hint) || taken;
    return taken;
  };
  const self = randomUUID();
  const sender = new Sender(options.database, self);
  let endsAskedUntil = Number.NEGATIVE_INFINITY;
  const listener = startListening(options, {
    tell,
    asked(forMs, from) {
      if (from !== self) endsAskedUntil = performance.now() + Math.min(forMs, MAX_ASK_MS);
    },
    moved(last) {
      for (const watcher of feedWatchers) watcher.moved(last);
    },
    lost() {
      for (const watcher of feedWatchers) watcher.lost();
    },
  });
  return {
    ring(partial) {
      const hint = complete(partial);
      const taken = tell(hint);
      // Nobody else hears of ends unless somebody asked: most are awaited here or not at all.
      const ended = performance.now() < endsAskedUntil ? hint.ended : [];
      const onlyWork = hint.workers.length === 0 && hint.dueInMs === null && ended.length === 0;
      const nothing = onlyWork && hint.routes.length === 0;
      if (!nothing && !(taken && onlyWork)) sender.send({ ...hint, ended });
    },
    askForEnds: (forMs) => sender.ask(forMs),
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
  };
}

/** A watcher that throws is its owner's trouble: what the hint is about has been committed. */
function tellOne(watcher: HintWatcher, hint: Hint): boolean {
  try {
    return watcher(hint);
  } catch {
    return false;
  }
}

interface Heard {
  tell(hint: Hint): boolean;
  asked(forMs: number, from: string): void;
  moved(last: bigint): void;
  lost(): void;
}

function startListening(options: DoorbellOptions, heard: Heard): Listener | undefined {
  if (options.listenUrl === undefined) return undefined;
  return listenForHints(options.listenUrl, options.database.schema, {
    hint(payload) {
      const { asks, from, last, ...hint } = decode(payload);
      if (asks > 0) heard.asked(asks, from);
      if (last === null) heard.tell(hint);
      else heard.moved(last);
    },
    open: () => void heard.tell(complete({ routes: 'all', ended: 'all' })),
    lost: () => heard.lost(),
  });
}

function complete(hint: Partial<Hint>): Hint {
  return {
    routes: hint.routes ?? [],
    count: hint.count ?? 0,
    dueInMs: hint.dueInMs ?? null,
    workers: hint.workers ?? [],
    ended: hint.ended ?? [],
  };
}

/** Whatever another version sent: what cannot be read means "look everywhere". */
function decode(payload: string): Hint & { asks: number; from: string; last: bigint | null } {
  try {
    const wire = JSON.parse(payload) as Wire;
    const hint = complete({
      routes: wire.routes === 'all' || Array.isArray(wire.routes) ? wire.routes : [],
      count: Number.MAX_SAFE_INTEGER,
      dueInMs: typeof wire.due === 'number' ? wire.due : null,
      workers: Array.isArray(wire.workers) ? wire.workers : [],
      ended: wire.ended === 'all' || Array.isArray(wire.ended) ? wire.ended : [],
    });
    const asks = typeof wire.asks === 'number' ? wire.asks : 0;
    const last = wire.events === undefined ? null : BigInt(wire.events);
    return { ...hint, asks, from: String(wire.from ?? ''), last };
  } catch {
    return { ...complete({ routes: 'all', ended: 'all' }), asks: 0, from: '', last: null };
  }
}

/** Merges rings into as few notifications as possible. */
class Sender {
  readonly #database: Database;
  readonly #self: string;
  #pending: Hint | undefined;
  #asks = 0;
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #closed = false;

  constructor(database: Database, self: string) {
    this.#database = database;
    this.#self = self;
  }

  ask(forMs: number): void {
    this.#asks = forMs;
    this.send(complete({}));
  }

  send(hint: Hint): void {
    if (this.#closed) return;
    this.#pending = this.#pending === undefined ? hint : merge(this.#pending, hint);
    if (this.#timer !== undefined || this.#sending !== undefined) return;
    this.#flush();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      if (this.#pending !== undefined) this.send(this.#pending);
    }, MERGE_MS);
    this.#timer.unref();
  }

  #flush(): void {
    const hint = this.#pending;
    if (hint === undefined) return;
    this.#pending = undefined;
    const asks = this.#asks;
    this.#asks = 0;
    this.#sending = sendHint(this.#database, encode(hint, asks === 0 ? {} : { asks, from: this.#self }))
      // A hint that cannot be sent costs others a wait, never correctness.
      .catch(() => undefined)
      .finally(() => {
        this.#sending = undefined;
        if (this.#pending !== undefined) this.send(this.#pending);
      });
  }

  /** What was rung goes out first: a process that ends right after its call is often the one others wait for. */
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
  };
}

function encode(hint: Hint, asking: Pick<Wire, 'asks' | 'from'>): string {
  const due = hint.dueInMs === null ? {} : { due: hint.dueInMs };
  const routes = hint.routes.length === 0 ? {} : { routes: hint.routes };
  const workers = hint.workers.length === 0 ? {} : { workers: hint.workers };
  const ended = hint.ended.length === 0 ? {} : { ended: hint.ended };
  const text = JSON.stringify({ ...routes, ...workers, ...due, ...ended, ...asking });
  if (Buffer.byteLength(text) <= MAX_HINT_BYTES) return text;
  // Too many ends alone must not send every worker looking.
  const fewer = JSON.stringify({ ...routes, ...workers, ...due, ended: 'all', ...asking });
  if (Buffer.byteLength(fewer) <= MAX_HINT_BYTES) return fewer;
  return JSON.stringify({ routes: 'all', workers: ['*'], ...due, ended: 'all', ...asking });
}
