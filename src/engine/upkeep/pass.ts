/**
 * One pass of one reconciler: batches until nothing is due. A failing batch is halved down to the row that fails, which
 * is counted and backed off, so that one bad row never stops the rest.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { isEngineError, isPassingTrouble } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { ReconcilerReport } from '../../contract/operations.ts';
import type { EngineContext } from '../kit/context.ts';
import { clearSetbacks, recordSetback } from './bookkeeping.sql.ts';
import type { DueRow } from '../executions/due.sql.ts';
import type { Reconciler } from './reconciler.ts';

/** Full batches per pass, so that other reconcilers get their turn. */
const MAX_BATCHES = 100;
const ROLLBACK_WAIT_MS = 20;

/** What one pass did. */
export type PassReport = Omit<ReconcilerReport, 'name' | 'passes' | 'errors' | 'timeouts'>;

/**
 * Runs until only locked rows are left, or until aborted. Locked rows are tried again a few times, at growing
 * intervals.
 */
export async function runPass<Item extends DueRow>(
  context: EngineContext,
  reconciler: Reconciler<Item>,
  batch: number,
  signal: AbortSignal,
): Promise<PassReport> {
  const report: PassReport = { acted: 0, skipped: 0, failed: 0, splits: 0, unfinished: 0 };
  let [round, polls] = [0, 0];
  for (; round < MAX_BATCHES && !signal.aborted; round += 1) {
    const items = await reconciler.due(context, batch);
    const before = report.acted + report.failed;
    if (items.length > 0) await actSplitting(context, reconciler, items, report, signal);
    const moved = report.acted + report.failed - before;
    // Skipped rows are due again in each round.
    report.skipped = items.length - moved;
    if (moved > 0 && items.length === batch) continue;
    if (report.skipped === 0 || polls === LIMITS.passPolls) break;
    await delay(LIMITS.heldPollMs * 2 ** polls, undefined, { signal }).catch(() => undefined);
    polls += 1;
  }
  if (round === MAX_BATCHES) report.unfinished = 1;
  return report;
}

async function actSplitting<Item extends DueRow>(
  context: EngineContext,
  reconciler: Reconciler<Item>,
  items: readonly Item[],
  report: PassReport,
  signal: AbortSignal,
): Promise<void> {
  // The rest is due again in the next pass.
  if (signal.aborted) return;
  try {
    const acted = new Set(await reconciler.act(context, items));
    report.acted += acted.size;
    const recovered = items.filter((item) => item.hadSetback && acted.has(item.uuid));
    if (recovered.length > 0) await clearSetbacks(context.database, reconciler.name, recovered);
  } catch (error) {
    if (isPassingTrouble(error)) throw error;
    if (items.length === 1) {
      report.failed += 1;
      await recordSetback(context.database, reconciler.name, items[0]!, codeOf(error));
      return;
    }
    report.splits += 1;
    // The server reports an error a moment before it releases its locks; the halves would skip those rows.
    await delay(ROLLBACK_WAIT_MS);
    const middle = Math.ceil(items.length / 2);
    await actSplitting(context, reconciler, items.slice(0, middle), report, signal);
    await actSplitting(context, reconciler, items.slice(middle), report, signal);
  }
}

function codeOf(error: unknown): string {
  if (!isEngineError(error)) return 'unknown';
  return error.sqlState ?? error.code;
}
