/**
 * What a reconciler is: a name, an interval, a way to find what is due and an ordinary operation to act on it. It has
 * no transition of its own and no loop; the runner has the loop.
 */
import type { EngineContext } from '../kit/context.ts';
import type { DueRow } from '../executions/due.sql.ts';

export interface Reconciler<Item extends DueRow = DueRow> {
  name: string;
  /** Time between passes; doubled after a pass that found nothing. */
  everyMs: number;
  /** Most rows acted on in one statement. */
  batch: number;
  due(context: EngineContext, limit: number): Promise<Item[]>;
  /** Returns the uuids it acted on; locked rows are left for the next pass. */
  act(context: EngineContext, items: readonly Item[]): Promise<readonly string[]>;
}

/**
 * Work that belongs to no execution, done at an interval by one process at a time. Returns the number of rows handled.
 */
export interface Chore {
  name: string;
  everyMs: number;
  run(context: EngineContext, signal: AbortSignal): Promise<number>;
}
