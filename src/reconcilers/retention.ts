/**
 * Forgets executions that ended long enough ago. Small batches, oldest first, and rows somebody works on are left for
 * the next pass: nothing that runs ever waits for it.
 */
import { forgetExecutions, listForgettable } from '../store/retention.ts';
import type { Reconciler } from './reconciler.ts';

/** When one that something still needs is looked at again. */
const AGAIN_MS = 3_600_000;

export function retention(retentionMs: number): Reconciler {
  return {
    name: 'retention',
    everyMs: 10_000,
    batch: 500,
    due: (context, limit) => listForgettable(context.database, retentionMs, limit),
    act: (context, items) => forgetExecutions(context.database, items, retentionMs, AGAIN_MS),
  };
}
