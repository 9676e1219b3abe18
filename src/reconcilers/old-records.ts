/**
 * Forgets what belongs to no execution's row and is old enough: events and idempotency keys. Not a reconciler of
 * executions: it acts on none. The runner calls it beside its passes.
 */
import type { EngineContext } from '../engine/context.ts';
import { forgetEvents, forgetKeys } from '../store/retention.ts';

const BATCH = 5_000;
/** When a key whose execution has not ended is looked at again. */
const AGAIN_MS = 3_600_000;
/** Batches of one call: what is left is for the next. */
const MAX_BATCHES = 200;

export async function forgetOldRecords(
  context: EngineContext,
  retentionMs: number,
  signal: AbortSignal,
): Promise<void> {
  for (let round = 0; round < MAX_BATCHES && !signal.aborted; round += 1) {
    const events = await forgetEvents(context.database, retentionMs, BATCH);
    const keys = await forgetKeys(context.database, BATCH, AGAIN_MS);
    if (events < BATCH && keys < BATCH) return;
  }
}
