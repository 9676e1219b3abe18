/**
 * Looks after flows when nobody else does: does what ends of members have left to be done, removes tickets that a crash left behind,
 * and tells ends whose word was lost. The last must never find any: its count is kept, and looked at.
 */
import { reconcileSiblings, tellLostEnds, type MemberPlace } from '../flows/work.sql.ts';
import { GROUPS, workOnFlows } from '../flows/work.ts';
import type { Chore } from './reconciler.ts';

/** Members looked at in one pass for a word that was lost. */
const LOOKED_AT = 10_000;
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

/** Goes round: each pass begins where the last one stopped. */
export function lostEnds(): Chore {
  let place: MemberPlace = START;
  return {
    name: 'lost-ends',
    everyMs: 15_000,
    async run(context) {
      const { found, next } = await tellLostEnds(context.database, place, LOOKED_AT);
      place = next ?? START;
      return found;
    },
  };
}
