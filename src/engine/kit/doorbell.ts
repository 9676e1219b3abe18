/**
 * Sends hints: to watchers of this process at once, to others by notifications after the commit, or inside a writer's
 * transaction while few are heard. When a watcher here takes all the work, nobody else is woken.
 */
import { randomUUID } from 'node:crypto';
import type { Hint, HintWatcher } from '../../contract/protocol.ts';
import type { Database } from '../database/database.ts';
import { listenForHints, sendHint, type Listener } from '../database/notify.ts';
import type { FeedWatcher } from '../feed/source.ts';
import { HintSender } from './hint-sender.ts';
import { completeHint, decodeHint, EVERYTHING, textInside, type Asking, type Written } from './hint-text.ts';
import { InsideGate } from './inside-gate.ts';

/** The longest a process is notified without asking again. */
const MAX_ASK_MS = 60_000;

/** A notification that travels inside a writer's transaction. */
export interface Inside {
  /** Its beginning: the statement continues it with what only the database knows. */
  text: string;
  /** To be called when the transaction is over. */
  done(): void;
}

/** Receives frames that were carried. Returns true if nobody here has to read them. */
export type FramesWatcher = (written: Written) => boolean;

export interface Doorbell {
  /** Only `announce` rings. `here`: the others have been notified. */
  ring(hint: Hint, reach?: 'here' | 'everywhere'): void;
  /**
   * What a write to a stream should notify others with inside its transaction; undefined if it should not. `wrote`
   * returns what it carries, if this process may carry frames.
   */
  inside(uuid: string, wrote: () => object | undefined): Inside | undefined;
  /** Asks the other processes to report, for this long, which executions finish. */
  askForEnds(forMs: number): void;
  /** Asks them to report which streams are written to or closed. */
  askForStreams(forMs: number): void;
  watch(watcher: HintWatcher): () => void;
  watchFeed(watcher: FeedWatcher): () => void;
  watchFrames(watcher: FramesWatcher): () => void;
  close(): Promise<void>;
  /** Closes at once, without sending what is pending. */
  abandon(): void;
}

export interface DoorbellOptions {
  database: Database;
  /** Where to listen; without it this process gets only its own hints, and polls. */
  listenUrl?: string | undefined;
  /** `on`: frames are sent in notifications, and believed from there. */
  carryFrames?: 'on' | 'off' | undefined;
}

export function openDoorbell(options: DoorbellOptions): Doorbell {
  return new Bells(options);
}

class Bells implements Doorbell {
  readonly #self = randomUUID();
  readonly #sender: HintSender;
  readonly #listener: Listener | undefined;
  readonly #gate = new InsideGate();
  readonly #carries: boolean;
  readonly #watchers = new Set<HintWatcher>();
  readonly #feedWatchers = new Set<FeedWatcher>();
  readonly #framesWatchers = new Set<FramesWatcher>();
  #isListening = false;
  #endsAskedUntil = Number.NEGATIVE_INFINITY;
  #streamsAskedUntil = Number.NEGATIVE_INFINITY;

  constructor({ database, listenUrl, carryFrames }: DoorbellOptions) {
    this.#carries = carryFrames === 'on';
    this.#sender = new HintSender((text) => sendHint(database, text), this.#self);
    if (listenUrl === undefined) return;
    this.#listener = listenForHints(listenUrl, database.schema, {
      hint: (payload) => this.#hear(payload),
      open: () => {
        this.#isListening = true;
        for (const watcher of this.#feedWatchers) watcher.found();
        this.#notify(completeHint(EVERYTHING));
      },
      lost: () => {
        this.#isListening = false;
        for (const watcher of this.#feedWatchers) watcher.lost();
      },
    });
  }

  ring(hint: Hint, reach: 'here' | 'everywhere' = 'everywhere'): void {
    const taken = this.#notify(hint);
    if (reach === 'here') return;
    // Outcomes and streams are sent to other processes only on request: most are awaited here or not at all.
    const now = performance.now();
    const ended = now < Math.max(this.#endsAskedUntil, this.#streamsAskedUntil) ? hint.ended : [];
    const streams = now < this.#streamsAskedUntil ? hint.streams : [];
    const routes = taken ? [] : hint.routes;
    const size = routes.length + hint.workers.length + ended.length + streams.length;
    if (size > 0 || hint.dueInMs !== null) this.#sender.send({ ...hint, routes, ended, streams });
  }

  inside(uuid: string, wrote: () => object | undefined): Inside | undefined {
    const now = performance.now();
    if (!this.#isListening || now >= this.#streamsAskedUntil || !this.#gate.enter(now)) return undefined;
    const text = textInside(uuid, this.#carries ? wrote() : undefined);
    return { text, done: () => this.#gate.leave(performance.now()) };
  }

  askForEnds(forMs: number): void {
    this.#sender.ask({ asks: forMs });
  }

  askForStreams(forMs: number): void {
    this.#sender.ask({ follows: forMs });
  }

  watch(watcher: HintWatcher): () => void {
    return added(this.#watchers, watcher);
  }

  watchFeed(watcher: FeedWatcher): () => void {
    return added(this.#feedWatchers, watcher);
  }

  watchFrames(watcher: FramesWatcher): () => void {
    return added(this.#framesWatchers, watcher);
  }

  async close(): Promise<void> {
    this.#isListening = false;
    for (const watchers of [this.#watchers, this.#feedWatchers, this.#framesWatchers]) watchers.clear();
    await this.#sender.close();
    await this.#listener?.close();
  }

  abandon(): void {
    this.#listener?.abandon();
  }

  #hear(payload: string): void {
    this.#gate.heard(performance.now());
    const { hint, asking, last, written } = decodeHint(payload);
    if (asking !== null) this.#note(asking);
    if (last !== null) for (const watcher of this.#feedWatchers) watcher.moved(last);
    else if (written === null || !this.#isTaken(written)) this.#notify(hint);
  }

  #note({ asks, follows, from }: Asking): void {
    if (from === this.#self) return;
    const now = performance.now();
    if (asks > 0) this.#endsAskedUntil = now + Math.min(asks, MAX_ASK_MS);
    if (follows > 0) this.#streamsAskedUntil = now + Math.min(follows, MAX_ASK_MS);
  }

  /** Forged frames reach whoever believes them, so a process that carries none believes none. */
  #isTaken(written: Written): boolean {
    return this.#carries && [...this.#framesWatchers].every((watcher) => watcher(written));
  }

  #notify(hint: Hint): boolean {
    if (!isOfStreams(hint)) for (const watcher of this.#feedWatchers) watcher.stirred();
    let taken = false;
    for (const watcher of this.#watchers) taken = notifyOne(watcher, hint) || taken;
    return taken;
  }
}

function added<Watcher>(watchers: Set<Watcher>, watcher: Watcher): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
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
