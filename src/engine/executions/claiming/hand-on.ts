/**
 * Passes work that a claim skipped on to other workers. Work that stays locked is skipped again and again, and each
 * hint makes every worker poll, so the hints become rarer meanwhile. The last one is delayed, never dropped.
 */
import { LIMITS } from '../../../contract/limits.ts';

export class HandOn {
  #restMs: number = LIMITS.heldPollMs;
  #resting: NodeJS.Timeout | undefined;
  #passedAt = Number.NEGATIVE_INFINITY;
  #next: (() => void) | undefined;

  /** Called when a claim skipped some: `ring` is called now, or when the delay since the last ring is over. */
  pass(ring: () => void): void {
    const now = performance.now();
    if (now - this.#passedAt >= LIMITS.handOnMs) this.#restMs = LIMITS.heldPollMs;
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
