/**
 * What had ended before this run goes on in the order it ended in: a race between waits and sleeps is won by the same one again,
 * however many of them have ended since. Nothing is paused meanwhile.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { forgiven, type Waits } from './waits.ts';

interface Past {
  endedAtMs: number;
  /** What it goes on with, being made. */
  made: Promise<unknown>;
  goOn(): void;
}

export class PastEnds {
  readonly #waits: Waits;
  /** Until children that have ended were looked at: they may have won. */
  readonly #looked: () => Promise<void>;
  #pasts: Past[] = [];

  constructor(waits: Waits, looked: () => Promise<void>) {
    this.#waits = waits;
    this.#looked = looked;
  }

  /** What `make` makes, after all that is asked for at the same time and ended before it. */
  turnOf<Value>(endedAtMs: number, make: () => Promise<Value>): Promise<Value> {
    return this.#waits.busyWith(async () => {
      // Nobody awaits it before its turn; what it fails with is told then.
      const made = forgiven(make);
      await new Promise<void>((goOn) => {
        this.#pasts.push({ endedAtMs, made, goOn });
        if (this.#pasts.length === 1) void this.#goOn();
      });
      return made;
    });
  }

  async #goOn(): Promise<void> {
    await nextTurn();
    await this.#looked();
    const pasts = this.#pasts.toSorted((one, other) => one.endedAtMs - other.endedAtMs);
    this.#pasts = [];
    await Promise.allSettled(pasts.map(({ made }) => made));
    for (const past of pasts) past.goOn();
  }
}
