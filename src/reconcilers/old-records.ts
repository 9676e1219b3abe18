/**
 * Forgets what belongs to no execution's row and is old enough: events and idempotency keys.
 */
import { retentionOf } from '../engine/retention.ts';
import { forgetEvents, forgetKeys } from '../store/retention.ts';
import type { Chore } from './reconciler.ts';

const BATCH = 5_000;
/** Batches of one pass: what is left is for the next. */
const MAX_BATCHES = 200;
/** When a key whose execution has not ended is looked at again. */
const AGAIN_MS = 3_600_000;

export const oldRecords: Chore = {
  name: 'old-records',
  everyMs: 60_000,
  async run(context, signal) {
    const { database } = context;
    const retentionMs = await retentionOf(context);
    let done = 0;
    let afterId = 0;
    for (let round = 0; round < MAX_BATCHES && !signal.aborted; round += 1) {
      const keys = await forgetKeys(database, BATCH, AGAIN_MS);
      const events =
        retentionMs === null ? undefined : await forgetEvents(database, retentionMs, BATCH, afterId);
      afterId = events?.lastId ?? 0;
      done += keys + (events?.removed ?? 0);
      if (keys < BATCH && (events?.removed ?? 0) < BATCH) break;
    }
    return done;
  },
};
