/**
 * Forgets executions that finished long enough ago, in small batches, oldest first. Locked rows are left for the next
 * pass, so that nothing that runs ever waits for it.
 */
import { retentionOf } from './retention-setting.ts';
import { forgetExecutions, listForgettable } from './retention.sql.ts';
import type { Reconciler } from './reconciler.ts';

/** When an execution that something still needs is checked again. */
const AGAIN_MS = 3_600_000;

export const retention: Reconciler = {
  name: 'retention',
  everyMs: 30_000,
  batch: 500,
  due: async (context, limit) => listForgettable(context.database, await retentionOf(context), limit),
  act: async (context, items) =>
    forgetExecutions(context.database, items, await retentionOf(context), AGAIN_MS),
};
