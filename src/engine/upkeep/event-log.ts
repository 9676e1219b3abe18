/**
 * Maintains the event log when nobody reads it: assigns positions to events, and drops the oldest slot of the log when
 * it has been kept long enough. Subscribers assign positions themselves, sooner.
 */
import { LIMITS } from '../../contract/limits.ts';
import { retentionOf } from './retention-setting.ts';
import { sequenceEvents } from '../feed/events.sql.ts';
import { dropEventSlot, forgetRuns, openEventSlot } from './retention.sql.ts';
import type { Chore } from './reconciler.ts';

/** There are eight slots, one of which is being written. */
const MAX_DROPS = 7;
const RUN_BATCH = 5_000;
/** Batches per pass; the rest is left for the next. */
const MAX_BATCHES = 200;

export const eventPositions: Chore = {
  name: 'event-positions',
  everyMs: 5_000,
  run: async ({ database }) => (await sequenceEvents(database, 'skip')).stamped ?? 0,
};

export const oldEvents: Chore = {
  name: 'old-events',
  everyMs: 60_000,
  async run(context, signal) {
    const { database } = context;
    const retentionMs = await retentionOf(context);
    if (retentionMs === null) return 0;
    let done = 0;
    while (done < MAX_DROPS && (await dropEventSlot(database, retentionMs, LIMITS.consumerGraceMs)))
      done += 1;
    // After the drops, because the next slot must be empty to be opened.
    if (await openEventSlot(database, retentionMs)) done += 1;
    for (let round = 0; round < MAX_BATCHES && !signal.aborted; round += 1) {
      const removed = await forgetRuns(database, RUN_BATCH);
      done += removed;
      if (removed < RUN_BATCH) break;
    }
    return done;
  },
};
