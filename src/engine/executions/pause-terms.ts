/**
 * What a pause or a suspension waits for besides signals: a time, children, or both. Checked, and as the functions take it.
 */
import type { PauseRequest } from '../../contract/steps.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import { checkList, checkWhole } from '../kit/checks.ts';
import { checkMembers } from '../kit/settings.ts';

export interface PauseTerms {
  delayMs: number | null;
  children: readonly string[] | null;
  needed: number | null;
}

/** A time, children, or both. */
export function pauseTerms({ wakeInMs, children }: PauseRequest): PauseTerms {
  if (children !== undefined) {
    checkMembers(children, 'request.children', ['executionIds', 'needed']);
    checkList(children.executionIds, 'request.children.executionIds', LIMITS.awaitedChildren);
    checkWhole(children.needed, 'request.children.needed', 1, children.executionIds.length);
  }
  return {
    delayMs: wakeInMs === undefined ? null : checkWhole(wakeInMs, 'request.wakeInMs', 0, LIMITS.delayMs),
    children: children === undefined ? null : childUuids(children.executionIds),
    needed: children?.needed ?? null,
  };
}

/** By Array.from, which does not pass over holes. */
function childUuids(ids: readonly string[]): string[] {
  return Array.from(ids, (id, index) => parseExecutionId(id, `request.children.executionIds[${index}]`).uuid);
}
