/**
 * Removes queue rows and timers that no longer mean anything and that nobody comes across: of a lane nobody claims from, or
 * due in years. A part of them a pass, round and round.
 */
import { sweepQueue, sweepTimers, type QueuePlace } from './sweeping.sql.ts';
import type { Chore } from './reconciler.ts';

const LOOKED_AT = 5_000;
const START: QueuePlace = { routeId: 0, rank: -2_147_483_648, seq: 0 };

/** Each runner has its own, which remembers where it was. */
export function stalePointers(): Chore {
  let queue = START;
  let timers = 0;
  return {
    name: 'stale-pointers',
    everyMs: 300_000,
    async run({ database }) {
      const inQueue = await sweepQueue(database, queue, LOOKED_AT);
      const inTimers = await sweepTimers(database, timers, LOOKED_AT);
      queue = inQueue.next ?? START;
      timers = inTimers.next ?? 0;
      return inQueue.removed + inTimers.removed;
    },
  };
}
