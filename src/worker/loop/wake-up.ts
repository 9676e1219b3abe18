/**
 * What a claim loop waits for: a hint, a timer that comes due, a free slot, or the poll interval. A ring that arrives
 * while nothing waits is kept, so that none is lost between a poll and the wait after it.
 */
import { LIMITS } from '../../contract/limits.ts';

/** setTimeout takes 31 bits; later timers are found again by polls in between. */
const MAX_TIMEOUT_MS = 2_000_000_000;
/**
 * Delay before the next poll while what is due or ready could not be taken (its row is locked, or it is backed off).
 */
const STUCK_MS = { first: LIMITS.heldPollMs, max: 5_000 };

export class WakeUp {
  readonly #pollMs: number;
  #rung = false;
  #closed = false;
  #wake: (() => void) | undefined;
  #wakeOnSlot: (() => void) | undefined;
  #dueTimer: NodeJS.Timeout | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  #leastDueMs = 0;
  #pollTimer: NodeJS.Timeout | undefined;
  #pollAgainMs: number = STUCK_MS.first;

  constructor(pollMs: number) {
    this.#pollMs = pollMs;
  }

  /** Something may be claimable. */
  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  /** There is new work. If its row is locked right now, it is polled again after the shortest delay. */
  hint(): void {
    this.#pollAgainMs = STUCK_MS.first;
    this.ring();
  }

  /**
   * Notes how many executions a poll skipped because their rows were locked. No hint follows when the locks are
   * released, so the next poll comes soon; the delay grows while they stay locked, up to the poll interval.
   */
  notePassedBy(count: number): void {
    clearTimeout(this.#pollTimer);
    const waitMs = count === 0 ? 0 : this.#pollAgainMs;
    this.#pollAgainMs = Math.min(Math.max(waitMs * 2, STUCK_MS.first), STUCK_MS.max);
    if (waitMs === 0 || waitMs >= this.#pollMs || this.#closed) return;
    this.#pollTimer = setTimeout(() => this.ring(), waitMs);
  }

  /** A run finished. */
  freed(): void {
    this.#wakeOnSlot?.();
  }

  /** A timer is due in this many milliseconds; the earliest one counts. */
  dueIn(ms: number): void {
    const now = performance.now();
    const dueAt = now + Math.max(ms, this.#leastDueMs);
    const sooner = this.#dueAt > now && this.#dueAt <= dueAt;
    if (this.#closed || sooner) return;
    this.#dueAt = dueAt;
    this.#armDue();
  }

  /** Timers may fire slightly early; one that did is set again for the rest. */
  #armDue(): void {
    clearTimeout(this.#dueTimer);
    const waitMs = Math.min(Math.ceil(this.#dueAt - performance.now()), MAX_TIMEOUT_MS);
    this.#dueTimer = setTimeout(() => {
      if (performance.now() < this.#dueAt) this.#armDue();
      else this.#due();
    }, waitMs);
  }

  /** Also wakes a worker without a free slot: what timed out may be its own run. */
  #due(): void {
    this.ring();
    this.#wakeOnSlot?.();
  }

  /** Backs off while firing does not help: a due timer that cannot be fired must not keep the loop spinning. */
  noteFiring(due: 'stuck' | 'moving'): void {
    const next = Math.min(Math.max(this.#leastDueMs * 2, STUCK_MS.first), STUCK_MS.max);
    this.#leastDueMs = due === 'moving' ? 0 : next;
  }

  /** Returns true once when a timer has come due and should be fired. */
  takeDue(): boolean {
    if (performance.now() < this.#dueAt) return false;
    this.#dueAt = Number.POSITIVE_INFINITY;
    clearTimeout(this.#dueTimer);
    return true;
  }

  /** Waits for a ring or the poll interval, which is jittered so that idle workers do not poll in step. */
  async work(): Promise<void> {
    if (!this.#rung && !this.#closed) {
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, this.#pollMs * (0.75 + Math.random() * 0.5));
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = undefined;
    }
    this.#rung = false;
  }

  /**
   * Waits until a run finishes or a timer comes due, and one turn of the event loop longer: runs that finish together
   * make room for one larger claim.
   */
  async slot(): Promise<void> {
    if (this.#closed) return;
    await new Promise<void>((resolve) => {
      this.#wakeOnSlot = resolve;
    });
    this.#wakeOnSlot = undefined;
    await new Promise<void>((resolve) => {
      setImmediate(resolve);
    });
  }

  /** Ends all current and future waits. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#dueTimer);
    clearTimeout(this.#pollTimer);
    this.#wake?.();
    this.#wakeOnSlot?.();
  }
}
