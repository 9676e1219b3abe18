/**
 * What a pause or a suspension waits for besides signals: a time, children, or both. Checked, and in the form the SQL
 * functions take.
 */
import type { PauseRequest } from '../../contract/steps.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { list, parsed, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { faultAt, shape } from '../../contract/shape/shape.ts';
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

export function pauseTerms({ wakeInMs, children }: PauseRequest): PauseTerms {
  return {
    delayMs: wakeInMs ?? null,
    children: children === undefined ? null : childUuids(children.executionIds),
    needed: children?.needed ?? null,
  };
}

/** Array.from, unlike map, does not skip holes. */
function childUuids(ids: readonly string[]): string[] {
  return Array.from(ids, (id, index) => parseExecutionId(id, `request.children.executionIds[${index}]`).uuid);
}
