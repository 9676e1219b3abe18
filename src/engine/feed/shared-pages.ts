/**
 * Pages of the feed that are read once for all readers of a process. Events never change, so a page can serve later
 * readers, also from its middle. It is kept briefly only, because it may be large.
 */
import type { EventPage } from './events.sql.ts';

const KEPT_PAGES = 16;
/** How long pages are kept without a reader. */
const KEPT_MS = 2_000;

export type SharedPage = Pick<EventPage, 'rows' | 'to'>;

interface Kept {
  after: bigint;
  answer: Promise<SharedPage>;
  /** Set once it has arrived. */
  page: SharedPage | undefined;
}

export class SharedPages {
  readonly #read: (after: bigint) => Promise<SharedPage>;
  #kept: Kept[] = [];
  #idle: NodeJS.Timeout | undefined;

  constructor(read: (after: bigint) => Promise<SharedPage>) {
    this.#read = read;
  }

  after(position: bigint): Promise<SharedPage> {
    this.#stay();
    for (const { after, answer, page } of this.#kept) {
      if (after === position) return answer;
      if (page !== undefined && after < position && position < page.to) {
        return Promise.resolve({ rows: page.rows.filter((row) => row.position > position), to: page.to });
      }
    }
    return this.#begin(position);
  }

  close(): void {
    clearTimeout(this.#idle);
    this.#kept = [];
  }

  #begin(after: bigint): Promise<SharedPage> {
    const kept: Kept = { after, answer: this.#read(after), page: undefined };
    this.#kept.push(kept);
    if (this.#kept.length > KEPT_PAGES) this.#kept.shift();
    const forget = (): void => {
      this.#kept = this.#kept.filter((other) => other !== kept);
    };
    // After an empty or failed read the next reader must ask the database again.
    kept.answer.then((page) => {
      if (page.to === after) forget();
      else kept.page = page;
    }, forget);
    return kept.answer;
  }

  #stay(): void {
    this.#idle ??= setTimeout(() => {
      this.#idle = undefined;
      this.#kept = [];
    }, KEPT_MS).unref();
    this.#idle.refresh();
  }
}
