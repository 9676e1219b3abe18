/**
 * Keeps the event log in order where nobody reads it: events get their positions, and the oldest part of the log goes when
 * it has been kept long enough. Subscribers give positions out themselves, sooner.
 */
import { LIMITS } from '../contract/limits.ts';
import { retentionOf } from '../engine/retention.ts';
import { sequenceEvents } from '../store/events.ts';
import { dropEventSlot, openEventSlot } from '../store/retention.ts';
import type { Chore } from './reconciler.ts';

/** There are eight slots, and one of them is being written. */
const MAX_DROPS = 8;

export const eventPositions: Chore = {
  name: 'event-positions',
  everyMs: 5_000,
  run: async ({ database }) => (await sequenceEvents(database, 'skip')).stamped,
};

export const oldEvents: Chore = {
  name: 'old-events',
  everyMs: 60_000,
  async run(context) {
    const { database } = context;
    const retentionMs = await retentionOf(context);
    if (retentionMs === null) return 0;
    let done = 0;
    while (done < MAX_DROPS && (await dropEventSlot(database, retentionMs, LIMITS.consumerGraceMs)))
      done += 1;
    // After the drops: the next slot must be empty to be opened.
    if (await openEventSlot(database, retentionMs)) done += 1;
    return done;
  },
};
