/**
 * Finishes what publishers left behind: executions that were not told yet, waits that nobody told because their process
 * died, and what was kept long enough.
 */
import { forgetOldTopics, tellMissedWaits, tellTopics } from '../topics/telling.ts';
import type { Chore } from './reconciler.ts';

/** Waits examined in one pass. */
const EXAMINED = 10_000;

export const topicWork: Chore = { name: 'topic-work', everyMs: 5_000, run: tellTopics };

/** Cycles through all waits: each pass begins where the last one stopped. */
export function missedTopics(): Chore {
  let after: string | null = null;
  return {
    name: 'missed-topics',
    everyMs: 30_000,
    async run(context) {
      const { told, next } = await tellMissedWaits(context, after, EXAMINED);
      after = next;
      return told;
    },
  };
}

export const oldTopics: Chore = { name: 'old-topics', everyMs: 60_000, run: forgetOldTopics };
