/**
 * Whether a writer may notify inside its transaction. That saves its readers a round trip, but such a commit holds a
 * lock of the whole database until the disk has answered, so writers that notify commit one after the other. Hence only
 * while few notifications are heard from all processes together, one at a time in a process, and not for a while after
 * one took long: then others are waiting in line, or the disk is slow. Reads no clock: the caller says what time it is.
 */
export const INSIDE = { perSecond: 1_000, longestMs: 5, restMs: 100 };

export class InsideGate {
  /** When the last ones were heard, as many as the limit; the oldest is at `#next`. */
  readonly #heard: number[] = [];
  #next = 0;
  #enteredAt: number | undefined;
  #restsUntil = Number.NEGATIVE_INFINITY;

  /** A notification was heard. */
  heard(nowMs: number): void {
    this.#heard[this.#next] = nowMs;
    this.#next = (this.#next + 1) % INSIDE.perSecond;
  }

  /** If it returns true, `leave` must follow the commit. */
  enter(nowMs: number): boolean {
    if (this.#enteredAt !== undefined || nowMs < this.#restsUntil || !this.#isQuiet(nowMs)) return false;
    this.#enteredAt = nowMs;
    return true;
  }

  leave(nowMs: number): void {
    if (nowMs - this.#enteredAt! > INSIDE.longestMs) this.#restsUntil = nowMs + INSIDE.restMs;
    this.#enteredAt = undefined;
  }

  #isQuiet(nowMs: number): boolean {
    const oldest = this.#heard[this.#next];
    return oldest === undefined || nowMs - oldest >= 1_000;
  }
}
