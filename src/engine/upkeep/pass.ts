/**
 * One pass of one reconciler: batches until nothing is due, a failing set split in halves down to the row. A row that
 * fails alone is counted and backed off, so that one bad row never stops the rest.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { isEngineError, isPassingTrouble } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { ReconcilerReport } from '../../contract/operations.ts';
import type { EngineContext } from '../kit/context.ts';
import { clearSetbacks, recordSetback } from './reconciling.sql.ts';
import type { DueRow } from '../executions/due.sql.ts';
import type { Reconciler } from './reconciler.ts';

/** Full batches one pass may act on before it lets others have a turn. */
const MAX_BATCHES = 100;
const ROLLBACK_WAIT_MS = 20;

/** What one pass did. */
export type PassReport = Omit<ReconcilerReport, 'name' | 'passes' | 'errors' | 'timeouts'>;

/** Runs until nothing is left but rows that stay held, or the signal says stop. Held rows are looked at again a few times, less and less often. */
export async function runPass<Item extends DueRow>(
  context: EngineContext,
  reconciler: Reconciler<Item>,
  batch: number,
  signal: AbortSignal,
): Promise<PassReport> {
  const report: PassReport = { acted: 0, skipped: 0, failed: 0, splits: 0, unfinished: 0 };
  let [round, looks] = [0, 0];
  for (; round < MAX_BATCHES && !signal.aborted; round += 1) {
    const items = await reconciler.due(context, batch);
    const before = report.acted + report.failed;
    if (items.length > 0) await actSplitting(context, reconciler, items, report, signal);
    const moved = report.acted + report.failed - before;
    // What was skipped is due again in each round.
    report.skipped = items.length - moved;
    if (moved > 0 && items.length === batch) continue;
    if (report.skipped === 0 || looks === LIMITS.passLooks) break;
    await pause(LIMITS.lookAgainMs * 2 ** looks, undefined, { signal }).catch(() => undefined);
    looks += 1;
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
  // What is left when time is up is due again in the next pass.
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
    // The server tells of an error a moment before it lets go of its locks; the halves would skip those rows.
    await pause(ROLLBACK_WAIT_MS);
    const middle = Math.ceil(items.length / 2);
    await actSplitting(context, reconciler, items.slice(0, middle), report, signal);
    await actSplitting(context, reconciler, items.slice(middle), report, signal);
  }
}

function codeOf(error: unknown): string {
  if (!isEngineError(error)) return 'unknown';
  return error.sqlState ?? error.code;
}
