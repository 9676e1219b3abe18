/**
 * Removes the claims whose leases have all ended, and finds out when to look into the others again. Claims with leases
 * that cannot be ended yet stay due, so a sweep goes on after them, also in the next pass, and starts over at the end.
 */
import { sweepGrants, type ClaimKey } from '../executions/due.sql.ts';
import type { Chore } from './reconciler.ts';

const START: ClaimKey = { lookAtMs: 0, claimNo: 0 };
/** Claims per statement, and statements per pass; the rest is left for the next. */
const PER_PASS = { batch: 1_000, batches: 100 };

/** Each runner has its own, which remembers where it stopped. */
export function oldClaims({ batch, batches } = PER_PASS): Chore {
  let after: ClaimKey | null = null;
  return {
    name: 'old-claims',
    everyMs: 1_000,
    async run({ database }, signal) {
      let total = 0;
      for (let round = 0; round < batches && !signal.aborted; round += 1) {
        const { next, done } = await sweepGrants(database, after ?? START, batch);
        total += done;
        after = next;
        if (after === null) break;
      }
      return total;
    },
  };
}
