/**
 * Finishes work on flows that was left behind: what finished members require, tickets of a crashed process, and
 * outcomes that were not propagated. The last is a safety net: any non-zero count is a bug.
 */
import { reconcileSiblings, tellLostEnds, type MemberPlace } from '../flows/work.sql.ts';
import { GROUPS, workOnFlows } from '../flows/work.ts';
import type { Chore } from './reconciler.ts';

/** Members examined in one pass for an outcome that was not propagated. */
const EXAMINED = 10_000;
const NO_UUID = '00000000-0000-0000-0000-000000000000';
const START: MemberPlace = { flow: NO_UUID, execution: NO_UUID };

export const flowWork: Chore = { name: 'flow-work', everyMs: 1_000, run: workOnFlows };

export const flowSiblings: Chore = {
  name: 'flow-siblings',
  everyMs: 10_000,
  async run(context) {
    const { stale, drained } = await reconcileSiblings(context.database, GROUPS);
    return stale + drained;
  },
};

/** Cycles through all members: each pass begins where the last one stopped. */
export function lostEnds(): Chore {
  let after: MemberPlace = START;
  return {
    name: 'lost-ends',
    everyMs: 15_000,
    async run(context) {
      const { found, next } = await tellLostEnds(context.database, after, EXAMINED);
      after = next ?? START;
      return found;
    },
  };
}
