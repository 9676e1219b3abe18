/**
 * What a pause or a suspension waits for besides signals: a time, children, or both. Checked, and as the functions take it.
 */
import type { PauseRequest } from '../../contract/steps.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { list, parsed, whole } from '../../contract/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { faultAt, shape } from '../../contract/shape.ts';
import { delayTime } from '../kit/kinds.ts';

export interface PauseTerms {
  delayMs: number | null;
  children: readonly string[] | null;
  needed: number | null;
}

type Children = NonNullable<PauseRequest['children']>;

/** The keys of a request that `pauseTerms` reads. */
export const pauseFields = {
  wakeInMs: delayTime.optional(),
  children: shape<Children>({
    executionIds: list(parsed, LIMITS.awaitedChildren),
    needed: parsed,
  })
    .and(({ executionIds, needed }) => {
      const found = whole(1, executionIds.length).faultOf(needed);
      return found === undefined ? undefined : faultAt('.needed', found);
    })
    .optional(),
};

/** A time, children, or both. */
export function pauseTerms({ wakeInMs, children }: PauseRequest): PauseTerms {
  return {
    delayMs: wakeInMs ?? null,
    children: children === undefined ? null : childUuids(children.executionIds),
    needed: children?.needed ?? null,
  };
}

/** By Array.from, which does not pass over holes. */
function childUuids(ids: readonly string[]): string[] {
  return Array.from(ids, (id, index) => parseExecutionId(id, `request.children.executionIds[${index}]`).uuid);
}
