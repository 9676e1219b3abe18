/**
 * One pass of one reconciler: batches until nothing is due, a failing set split in halves down to the row. A row that
 * fails alone is counted and backed off, so that one bad row never stops the rest.
 */
import { isEngineError } from '../contract/errors.ts';
import type { EngineContext } from '../engine/context.ts';
import { clearSetbacks, recordSetback, type DueRow } from '../store/reconciling.ts';
import type { Reconciler } from './reconciler.ts';

/** Full batches one pass may act on before it lets others have a turn. */
const MAX_BATCHES = 100;

export interface PassReport {
  acted: number;
  /** Due, but left alone because somebody works on them. */
  skipped: number;
  /** Rows that failed alone and are backed off. */
  failed: number;
  /** How often a failing set was halved. */
  splits: number;
}

/** Runs until nothing is left, a whole batch was skipped, or the signal says stop. */
export async function runPass<Item extends DueRow>(
  context: EngineContext,
  reconciler: Reconciler<Item>,
  batch: number,
  signal: AbortSignal,
): Promise<PassReport> {
  const report: PassReport = { acted: 0, skipped: 0, failed: 0, splits: 0 };
  for (let round = 0; round < MAX_BATCHES && !signal.aborted; round += 1) {
    const items = await reconciler.due(context, batch);
    if (items.length === 0) break;
    const before = report.acted + report.failed;
    await actSplitting(context, reconciler, items, report);
    const moved = report.acted + report.failed - before;
    report.skipped += items.length - moved;
    if (items.length < batch || moved === 0) break;
  }
  return report;
}

async function actSplitting<Item extends DueRow>(
  context: EngineContext,
  reconciler: Reconciler<Item>,
  items: readonly Item[],
  report: PassReport,
): Promise<void> {
  try {
    report.acted += await reconciler.act(context, items);
    const recovered = items.filter((item) => item.hadSetback);
    if (recovered.length > 0) await clearSetbacks(context.database, reconciler.name, recovered);
  } catch (error) {
    if (isPassing(error)) throw error;
    if (items.length === 1) {
      report.failed += 1;
      await recordSetback(context.database, reconciler.name, items[0]!, codeOf(error));
      return;
    }
    report.splits += 1;
    const middle = Math.ceil(items.length / 2);
    await actSplitting(context, reconciler, items.slice(0, middle), report);
    await actSplitting(context, reconciler, items.slice(middle), report);
  }
}

/** Trouble with the database, not with a row: splitting would not help, the next pass will. */
function isPassing(error: unknown): boolean {
  return (
    isEngineError(error) && ['unavailable', 'contention', 'closed', 'schema_missing'].includes(error.code)
  );
}

function codeOf(error: unknown): string {
  if (!isEngineError(error)) return 'unknown';
  return error.sqlState ?? error.code;
}
