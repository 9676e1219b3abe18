/**
 * Hands work that a claim passed by on to other workers. Work that stays held is passed by again and again; each hint sends every
 * worker looking, so the hints become rarer while that lasts. The last one is never dropped, only delayed.
 */
import { LIMITS } from '../../contract/limits.ts';

export class HandOn {
  #restMs: number = LIMITS.lookAgainMs;
  #resting: NodeJS.Timeout | undefined;
  #passedAt = Number.NEGATIVE_INFINITY;
  #next: (() => void) | undefined;

  /** A claim passed some by: `ring` is called now, or when the rest after the last time is over. */
  pass(ring: () => void): void {
    const now = performance.now();
    if (now - this.#passedAt >= LIMITS.handOnMs) this.#restMs = LIMITS.lookAgainMs;
    this.#passedAt = now;
    this.#next = ring;
    if (this.#resting === undefined) this.#ring();
  }

  #ring(): void {
    const ring = this.#next;
    this.#next = undefined;
    this.#resting = undefined;
    if (ring === undefined) return;
    this.#resting = setTimeout(() => this.#ring(), this.#restMs).unref();
    this.#restMs = Math.min(this.#restMs * 2, LIMITS.handOnMs);
    ring();
  }
}
