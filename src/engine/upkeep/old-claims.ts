/**
 * Removes the claims whose leases have all ended, and finds out when to look into the others again.
 */
import { sweepGrants } from '../executions/due.sql.ts';
import type { Chore } from './reconciler.ts';

const BATCH = 1_000;
/** Batches per pass; the rest is left for the next. */
const MAX_BATCHES = 100;

export const oldClaims: Chore = {
  name: 'old-claims',
  everyMs: 1_000,
  async run({ database }, signal) {
    let done = 0;
    for (let round = 0; round < MAX_BATCHES && !signal.aborted; round += 1) {
      const seen = await sweepGrants(database, BATCH);
      done += seen;
      if (seen < BATCH) break;
    }
    return done;
  },
};
