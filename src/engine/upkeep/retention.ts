/**
 * Forgets executions that finished long enough ago, in small batches, oldest first. Locked rows are left for the next
 * pass, so that nothing that runs ever waits for it.
 */
import { retentionOf } from './retention-setting.ts';
import { forgetExecutions, listForgettable, type ListPlace } from './retention.sql.ts';
import type { Reconciler } from './reconciler.ts';

/** When an execution that something still needs is checked again. */
const AGAIN_MS = 3_600_000;

/** Each runner has its own, which remembers where it stopped. */
export function retention(): Reconciler {
  let after: ListPlace | undefined;
  return {
    name: 'retention',
    everyMs: 30_000,
    batch: 500,
    async due(context, limit) {
      const found = await listForgettable(context.database, await retentionOf(context), limit, after);
      after = found.next ?? undefined;
      return found.due;
    },
    act: async (context, items) =>
      forgetExecutions(context.database, items, await retentionOf(context), AGAIN_MS),
  };
}
