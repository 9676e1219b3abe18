/**
 * The runs of a worker that have not finished, in no order. Each knows its place, so that none costs an entry in a table.
 */
import type { MeasuredLease } from '../metrics.ts';

export class Runs {
  readonly #leases: MeasuredLease[] = [];
  #whenEmpty: (() => void)[] = [];

  get all(): readonly MeasuredLease[] {
    return this.#leases;
  }

  get size(): number {
    return this.#leases.length;
  }

  add(lease: MeasuredLease): void {
    lease.place = this.#leases.push(lease) - 1;
  }

  /** Does nothing for a run that was removed before. */
  remove(lease: MeasuredLease): void {
    const { place } = lease;
    if (this.#leases[place] !== lease) return;
    const last = this.#leases.pop()!;
    if (last !== lease) {
      this.#leases[place] = last;
      last.place = place;
    }
    if (this.#leases.length === 0) for (const resolve of this.#whenEmpty.splice(0)) resolve();
  }

  /** Resolves when there is none. */
  async settled(): Promise<void> {
    if (this.#leases.length === 0) return;
    await new Promise<void>((resolve) => {
      this.#whenEmpty.push(resolve);
    });
  }
}
