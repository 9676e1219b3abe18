/**
 * What one reader saw: the identity of the event at every position, and what was wrong with the order on delivery. Kept
 * as numbers, because a long run delivers millions.
 */
import { changeOf, identityOf } from './identity.mjs';

const FIRST_ROOM = 65_536;

export class Record {
  #identities = new Float64Array(FIRST_ROOM);
  #versions = new Map();
  last = 0;
  /** Positions that came again, or late. */
  duplicated = 0;
  /** Positions that were skipped. */
  skipped = 0;
  inversions = 0;

  add(event) {
    const position = Number(event.position);
    if (position <= this.last) {
      this.duplicated += 1;
      return;
    }
    this.skipped += position - this.last - 1;
    this.last = position;
    this.#room(position);
    this.#identities[position] = identityOf(event);
    const change = changeOf(event.workerId, event.version);
    if (change === undefined) return;
    if (change.version <= (this.#versions.get(change.entity) ?? 0)) this.inversions += 1;
    this.#versions.set(change.entity, change.version);
  }

  report() {
    const { last, duplicated, skipped, inversions } = this;
    return { last, duplicated, skipped, inversions, identities: this.#identities.slice(0, last + 1) };
  }

  #room(position) {
    if (position < this.#identities.length) return;
    const larger = new Float64Array(2 * Math.max(position, this.#identities.length));
    larger.set(this.#identities);
    this.#identities = larger;
  }
}
