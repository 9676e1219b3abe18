/**
 * Limits how often something is done without making the first times wait: a few tokens are there at the start, each
 * use takes one, and they return one by one at a fixed interval. Reads no clock: the caller says what time it is.
 */
export class TokenBucket {
  readonly #burst: number;
  readonly #everyMs: number;
  #tokens: number;
  /** When the latest token returned. */
  #filledAt = Number.NEGATIVE_INFINITY;

  constructor({ burst, everyMs }: { burst: number; everyMs: number }) {
    this.#burst = burst;
    this.#everyMs = everyMs;
    this.#tokens = burst;
  }

  /** Takes a token and returns 0; if there is none, returns the milliseconds until the next one. */
  take(nowMs: number): number {
    const returned = Math.floor((nowMs - this.#filledAt) / this.#everyMs);
    if (this.#tokens + returned >= this.#burst) {
      this.#tokens = this.#burst;
      this.#filledAt = nowMs;
    } else if (returned > 0) {
      this.#tokens += returned;
      this.#filledAt += returned * this.#everyMs;
    }
    if (this.#tokens === 0) return this.#filledAt + this.#everyMs - nowMs;
    this.#tokens -= 1;
    return 0;
  }
}
