/**
 * Forgets idempotency keys that were kept long enough.
 */
import { forgetKeys } from './retention.sql.ts';
import type { Chore } from './reconciler.ts';

const BATCH = 5_000;
/** Batches per pass; the rest is left for the next. */
const MAX_BATCHES = 200;
/** When a key of an unfinished execution is checked again. */
const AGAIN_MS = 3_600_000;

export const oldKeys: Chore = {
  name: 'old-keys',
  everyMs: 60_000,
  async run({ database }, signal) {
    let done = 0;
    for (let round = 0; round < MAX_BATCHES && !signal.aborted; round += 1) {
      const keys = await forgetKeys(database, BATCH, AGAIN_MS);
      done += keys;
      if (keys < BATCH) break;
    }
    return done;
  },
};
