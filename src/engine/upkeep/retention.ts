/**
 * Forgets executions that ended long enough ago. Small batches, oldest first, and rows somebody works on are left for
 * the next pass: nothing that runs ever waits for it.
 */
import { retentionOf } from './retention-setting.ts';
import { forgetExecutions, listForgettable } from './retention.sql.ts';
import type { Reconciler } from './reconciler.ts';

/** When one that something still needs is looked at again. */
const AGAIN_MS = 3_600_000;

export const retention: Reconciler = {
  name: 'retention',
  everyMs: 30_000,
  batch: 500,
  due: async (context, limit) => listForgettable(context.database, await retentionOf(context), limit),
  act: async (context, items) =>
    forgetExecutions(context.database, items, await retentionOf(context), AGAIN_MS),
};
