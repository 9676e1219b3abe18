/**
 * Removes stale queue rows and timers that nothing else would find: in a lane nobody claims from, or due in years. Each
 * pass examines some, and starts over at the end.
 */
import { sweepQueue, sweepTimers, type QueueKey } from './sweeping.sql.ts';
import type { Chore } from './reconciler.ts';

const EXAMINED = 5_000;
const START: QueueKey = { routeId: 0, rank: -2_147_483_648, seq: 0 };

/** Each runner has its own, which remembers where it stopped. */
export function stalePointers(): Chore {
  let queue = START;
  let timers = 0;
  return {
    name: 'stale-pointers',
    everyMs: 300_000,
    async run({ database }) {
      const inQueue = await sweepQueue(database, queue, EXAMINED);
      const inTimers = await sweepTimers(database, timers, EXAMINED);
      queue = inQueue.next ?? START;
      timers = inTimers.next ?? 0;
      return inQueue.removed + inTimers.removed;
    },
  };
}
