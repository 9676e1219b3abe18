/**
 * Tells those who wait that there is something to do: watchers of this process at once, other processes by one
 * notification after the commit. The first ring goes out immediately, later ones are merged for a few milliseconds.
 * When a watcher here takes all the work, nobody else is woken.
 */
import type { Hint, HintWatcher } from '../contract/engine.ts';
import type { Database } from '../store/database.ts';
import { listenForHints, sendHint, type Listener } from '../store/notify.ts';

const MERGE_MS = 10;
/** A notification holds just under 8,000 bytes; what does not fit says "look everywhere". */
const MAX_HINT_BYTES = 7_900;

interface Wire {
  routes?: number[] | 'all';
  due?: number;
  workers?: string[];
}

export interface Doorbell {
  ring(hint: Partial<Hint>): void;
  watch(watcher: HintWatcher): () => void;
  close(): Promise<void>;
}

export interface DoorbellOptions {
  database: Database;
  /** Where to listen; without it this process hears only itself and looks at intervals. */
  listenUrl?: string | undefined;
}

export function openDoorbell(options: DoorbellOptions): Doorbell {
  const watchers = new Set<HintWatcher>();
  const tell = (hint: Hint): boolean => {
    let taken = false;
    for (const watcher of watchers) taken = tellOne(watcher, hint) || taken;
    return taken;
  };
  const sender = new Sender(options.database);
  const listener = startListening(options, tell);
  return {
    ring(partial) {
      const hint = complete(partial);
      const taken = tell(hint);
      const onlyWork = hint.workers.length === 0 && hint.dueInMs === null;
      if (!(taken && onlyWork)) sender.send(hint);
    },
    watch(watcher) {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    async close() {
      watchers.clear();
      sender.close();
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

function startListening(options: DoorbellOptions, tell: (hint: Hint) => boolean): Listener | undefined {
  if (options.listenUrl === undefined) return undefined;
  return listenForHints(options.listenUrl, options.database.schema, {
    hint: (payload) => void tell(decode(payload)),
    open: () => void tell(complete({ routes: 'all' })),
  });
}

function complete(hint: Partial<Hint>): Hint {
  return {
    routes: hint.routes ?? [],
    count: hint.count ?? 0,
    dueInMs: hint.dueInMs ?? null,
    workers: hint.workers ?? [],
  };
}

/** Whatever another version sent: what cannot be read means "look everywhere". */
function decode(payload: string): Hint {
  try {
    const wire = JSON.parse(payload) as Wire;
    return complete({
      routes: wire.routes === 'all' || Array.isArray(wire.routes) ? wire.routes : [],
      count: Number.MAX_SAFE_INTEGER,
      dueInMs: typeof wire.due === 'number' ? wire.due : null,
      workers: Array.isArray(wire.workers) ? wire.workers : [],
    });
  } catch {
    return complete({ routes: 'all' });
  }
}

/** Merges rings into as few notifications as possible. */
class Sender {
  readonly #database: Database;
  #pending: Hint | undefined;
  #timer: NodeJS.Timeout | undefined;
  #sending = false;
  #closed = false;

  constructor(database: Database) {
    this.#database = database;
  }

  send(hint: Hint): void {
    if (this.#closed) return;
    this.#pending = this.#pending === undefined ? hint : merge(this.#pending, hint);
    if (this.#timer !== undefined || this.#sending) return;
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
    this.#sending = true;
    sendHint(this.#database, encode(hint))
      // A hint that cannot be sent costs others a wait, never correctness.
      .catch(() => undefined)
      .finally(() => {
        this.#sending = false;
        if (this.#pending !== undefined) this.send(this.#pending);
      });
  }

  close(): void {
    if (this.#pending !== undefined) this.#flush();
    this.#closed = true;
    clearTimeout(this.#timer);
  }
}

function merge(a: Hint, b: Hint): Hint {
  const due = [a.dueInMs, b.dueInMs].filter((ms) => ms !== null);
  return {
    routes: a.routes === 'all' || b.routes === 'all' ? 'all' : [...new Set([...a.routes, ...b.routes])],
    count: a.count + b.count,
    dueInMs: due.length === 0 ? null : Math.min(...due),
    workers: [...new Set([...a.workers, ...b.workers])],
  };
}

function encode(hint: Hint): string {
  const due = hint.dueInMs === null ? {} : { due: hint.dueInMs };
  const routes = hint.routes.length === 0 ? {} : { routes: hint.routes };
  const workers = hint.workers.length === 0 ? {} : { workers: hint.workers };
  const text = JSON.stringify({ ...routes, ...workers, ...due });
  if (Buffer.byteLength(text) <= MAX_HINT_BYTES) return text;
  return JSON.stringify({ routes: 'all', workers: ['*'], ...due });
}
