/**
 * Cuts off a flood of equal entries: within a window the first few are written, the others counted, and the count is
 * reported when the window is over. The window begins with the first entry after a quiet time, so without entries there
 * is no timer.
 */
import type { Entry } from './entry.ts';
import { LOG_LIMITS } from './limits.ts';

/** Entries that were left out, and the last one of them. */
export interface LeftOut {
  readonly count: number;
  readonly last: Entry;
  readonly windowMs: number;
  /** They were not all equal: too many different ones came within the window. */
  readonly mixed: boolean;
}

interface Seen {
  written: number;
  leftOut: number;
  last: Entry;
}

/** The key of what is no longer told apart. */
const OTHERS = '';

export class FloodGate {
  readonly #report: (leftOut: LeftOut) => void;
  readonly #seen = new Map<string, Seen>();
  #timer: NodeJS.Timeout | undefined;
  #since = 0;

  constructor(report: (leftOut: LeftOut) => void) {
    this.#report = report;
  }

  /** Whether the entry is to be written. */
  admits(entry: Entry): boolean {
    if (entry.sameAs === undefined) return true;
    this.#open();
    const key =
      this.#seen.has(entry.sameAs) || this.#seen.size < LOG_LIMITS.floodKinds ? entry.sameAs : OTHERS;
    const seen = this.#seen.get(key) ?? { written: 0, leftOut: 0, last: entry };
    this.#seen.set(key, seen);
    if (seen.written < (entry.most ?? LOG_LIMITS.floodLines)) {
      seen.written += 1;
      return true;
    }
    seen.leftOut += 1;
    seen.last = entry;
    return false;
  }

  /** Ends the window and reports what was left out in it. */
  close(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const seen = [...this.#seen];
    this.#seen.clear();
    const windowMs = performance.now() - this.#since;
    for (const [key, { leftOut: count, last }] of seen)
      if (count > 0) this.#report({ count, last, windowMs, mixed: key === OTHERS });
  }

  #open(): void {
    if (this.#timer !== undefined) return;
    this.#since = performance.now();
    this.#timer = setTimeout(() => this.close(), LOG_LIMITS.floodWindowMs);
    this.#timer.unref();
  }
}
