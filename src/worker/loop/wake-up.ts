/**
 * What a claim loop waits for: a hint, a timer that comes due, room for another run, or simply time. Rings that come
 * while nobody waits are kept, so that none falls between a look and the wait after it.
 */
import { LIMITS } from '../../contract/limits.ts';

/** setTimeout holds 31 bits; later timers are found again by a look in between. */
const MAX_TIMEOUT_MS = 2_000_000_000;
/** While what is due, or ready, stays so after a look (somebody holds its row, or it is backed off), the next one waits this long. */
const STUCK_MS = { first: LIMITS.lookAgainMs, max: 5_000 };

export class WakeUp {
  readonly #pollMs: number;
  #rung = false;
  #closed = false;
  #wake: (() => void) | undefined;
  #wakeOnSlot: (() => void) | undefined;
  #dueTimer: NodeJS.Timeout | undefined;
  #dueAt = Number.POSITIVE_INFINITY;
  #leastDueMs = 0;
  #lookTimer: NodeJS.Timeout | undefined;
  #lookAgainMs: number = STUCK_MS.first;

  constructor(pollMs: number) {
    this.#pollMs = pollMs;
  }

  /** Something may be claimable. */
  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  /** Somebody says that there is work. If just that is held now, it is looked at again as soon as if it were the first. */
  hint(): void {
    this.#lookAgainMs = STUCK_MS.first;
    this.ring();
  }

  /**
   * How many executions a look passed by because somebody held them. Nobody rings when they are let go, so the next look comes
   * soon; later and later while they stay held, and never later than the poll.
   */
  notePassedBy(count: number): void {
    clearTimeout(this.#lookTimer);
    const waitMs = count === 0 ? 0 : this.#lookAgainMs;
    this.#lookAgainMs = Math.min(Math.max(waitMs * 2, STUCK_MS.first), STUCK_MS.max);
    if (waitMs === 0 || waitMs >= this.#pollMs || this.#closed) return;
    this.#lookTimer = setTimeout(() => this.ring(), waitMs);
  }

  /** A run ended. */
  freed(): void {
    this.#wakeOnSlot?.();
  }

  /** A timer is due in this long; the earliest one counts. */
  dueIn(ms: number): void {
    const now = performance.now();
    const dueAt = now + Math.max(ms, this.#leastDueMs);
    const sooner = this.#dueAt > now && this.#dueAt <= dueAt;
    if (this.#closed || sooner) return;
    this.#dueAt = dueAt;
    this.#armDue();
  }

  /** Timers may go off a little early; one that did is set again for the rest. */
  #armDue(): void {
    clearTimeout(this.#dueTimer);
    const waitMs = Math.min(Math.ceil(this.#dueAt - performance.now()), MAX_TIMEOUT_MS);
    this.#dueTimer = setTimeout(() => {
      if (performance.now() < this.#dueAt) this.#armDue();
      else this.#due();
    }, waitMs);
  }

  /** Also for a worker without room: what has run out of its time may be its own. */
  #due(): void {
    this.ring();
    this.#wakeOnSlot?.();
  }

  /** Whether firing helps: a due timer nobody can fire now must not keep the loop spinning. */
  noteFiring(due: 'stuck' | 'moving'): void {
    const next = Math.min(Math.max(this.#leastDueMs * 2, STUCK_MS.first), STUCK_MS.max);
    this.#leastDueMs = due === 'moving' ? 0 : next;
  }

  /** True once when a timer has come due: then it should be fired. */
  takeDue(): boolean {
    if (performance.now() < this.#dueAt) return false;
    this.#dueAt = Number.POSITIVE_INFINITY;
    clearTimeout(this.#dueTimer);
    return true;
  }

  /** Until a ring, or the poll interval, jittered so that idle workers do not look in step. */
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
   * Until a run ends or a timer comes due, and a turn of the event loop more: others that end with it make room for one
   * larger claim.
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

  /** Ends all waiting, now and later. */
  close(): void {
    this.#closed = true;
    clearTimeout(this.#dueTimer);
    clearTimeout(this.#lookTimer);
    this.#wake?.();
    this.#wakeOnSlot?.();
  }
}
