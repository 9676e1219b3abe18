/**
 * What writers know about their own transactions: acknowledged, given up, or cut off in the middle of a commit. The table
 * is held against it in the end.
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
