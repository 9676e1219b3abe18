/**
 * What writers know about their own transactions: committed, aborted, or cut off during the commit. The table is
 * compared with it in the end.
 */

export class Ledger {
  /** Transaction name to the number of events it must have. */
  committed = new Map();
  aborted = new Set();
  unknown = new Map();
  longestMs = 0;
  faults = [];

  noteLength(ms) {
    this.longestMs = Math.max(this.longestMs, ms);
  }

  fault(error) {
    this.faults.push(String(error?.stack ?? error));
  }
}
