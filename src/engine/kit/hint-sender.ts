/**
 * Sends hints to other processes. One is sent at once, and so are a few that follow; a process that has more to say
 * merges what comes until the next may be sent. One is under way at a time: what comes meanwhile is merged, too.
 */
import type { Hint } from '../../contract/protocol.ts';
import { completeHint, encodeHint, mergeHints, type Asking } from './hint-text.ts';
import { TokenBucket } from './token-bucket.ts';

/** Sent without a wait, and how soon one more may follow: at most 500 a second from one process. */
export const HINTS = { burst: 4, everyMs: 2 };

export class HintSender {
  readonly #post: (text: string) => Promise<void>;
  readonly #self: string;
  readonly #tokens = new TokenBucket(HINTS);
  #pending: Hint | undefined;
  #asking: Partial<Asking> = {};
  #timer: NodeJS.Timeout | undefined;
  #sending: Promise<void> | undefined;
  #closed = false;

  /** `self` names this process in what it asks for. */
  constructor(post: (text: string) => Promise<void>, self: string) {
    this.#post = post;
    this.#self = self;
  }

  ask(asking: Partial<Asking>): void {
    this.#asking = { ...this.#asking, ...asking };
    this.send(completeHint({}));
  }

  send(hint: Hint): void {
    if (this.#closed) return;
    this.#pending = this.#pending === undefined ? hint : mergeHints(this.#pending, hint);
    this.#sendPending();
  }

  #sendPending(): void {
    if (this.#pending === undefined || this.#timer !== undefined || this.#sending !== undefined) return;
    const waitMs = this.#tokens.take(performance.now());
    if (waitMs === 0) return this.#flush();
    this.#timer = setTimeout(() => {
      this.#timer = undefined;
      this.#sendPending();
    }, waitMs);
    this.#timer.unref();
  }

  #flush(): void {
    const hint = this.#pending;
    if (hint === undefined) return;
    this.#pending = undefined;
    const asking = this.#asking;
    this.#asking = {};
    const asked = Object.keys(asking).length === 0 ? {} : { ...asking, from: this.#self };
    this.#sending = this.#post(encodeHint(hint, asked))
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
