/**
 * Reading whole lists page by page, with several page sizes, which must not change the list.
 */
import { expect } from 'vitest';
import type { ExecutionFilter, ExecutionSummary, ListPage } from '../../../src/contract/operations.ts';
import type { ExecutionId, SubmitRequest } from '../../../src/index.ts';
import { newKind, type Bench } from '../open.ts';

const PAGE_SIZES = [1, 2, 3, 100];

export const idsOf = (page: readonly { executionId: ExecutionId }[]): ExecutionId[] =>
  page.map(({ executionId }) => executionId);
export const sorted = (ids: readonly string[]): string[] => ids.toSorted();

export interface Lists {
  list(filter: ExecutionFilter, page?: { limit?: number; cursor?: string }): Promise<ListPage>;
  /** The whole list, page by page. */
  all(filter: ExecutionFilter, limit: number): Promise<ExecutionSummary[]>;
  /** Expects exactly this list, whatever the page size. */
  expectList(filter: ExecutionFilter, ids: readonly ExecutionId[]): Promise<void>;
  /** The same, in any order. */
  expectSame(filter: ExecutionFilter, ids: readonly ExecutionId[]): Promise<void>;
  /** Submits one after another, each at a later time than the one before. */
  submitInTime(requests: readonly Partial<SubmitRequest>[]): Promise<ExecutionId[]>;
  submitTogether(count: number, request: Partial<SubmitRequest>): Promise<ExecutionId[]>;
}

export function useLists(bench: Bench): Lists {
  const lists: Lists = {
    list: (filter, page = {}) => bench.engine.executions.list({ filter, ...page }),
    async all(filter, limit) {
      const found: ExecutionSummary[] = [];
      let cursor: string | null | undefined;
      while (cursor !== null) {
        const page = await lists.list(filter, { limit, ...(cursor === undefined ? {} : { cursor }) });
        expect(page.executions.length).toBeLessThanOrEqual(limit);
        found.push(...page.executions);
        cursor = page.cursor;
      }
      return found;
    },
    async expectList(filter, ids) {
      for (const limit of PAGE_SIZES) {
        expect(idsOf(await lists.all(filter, limit)), `by ${limit}`).toEqual(ids);
      }
    },
    async expectSame(filter, ids) {
      for (const limit of PAGE_SIZES) {
        expect(sorted(idsOf(await lists.all(filter, limit))), `by ${limit}`).toEqual(sorted(ids));
      }
    },
    async submitInTime(requests) {
      const ids: ExecutionId[] = [];
      for (const request of requests) {
        await bench.database.moveClock(5);
        ids.push(await bench.submit(request));
      }
      return ids;
    },
    async submitTogether(count, request) {
      const kind = newKind();
      return idsOf(
        await bench.engine.executions.submit(Array.from({ length: count }, () => ({ kind, ...request }))),
      );
    },
  };
  return lists;
}
