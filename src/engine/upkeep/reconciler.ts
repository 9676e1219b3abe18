/**
 * What a reconciler is: a name, a rhythm, a way to find what is due and an ordinary operation to act on it. It owns
 * no transition of its own and no loop; the runner has the loop.
 */
import type { EngineContext } from '../kit/context.ts';
import type { DueRow } from '../executions/due.sql.ts';

export interface Reconciler<Item extends DueRow = DueRow> {
  name: string;
  /** Time between passes; a pass that found nothing lets twice as long go by. */
  everyMs: number;
  /** Most rows acted on in one statement. */
  batch: number;
  due(context: EngineContext, limit: number): Promise<Item[]>;
  /** Answers the uuids it acted on; rows somebody else works on are left for the next pass. */
  act(context: EngineContext, items: readonly Item[]): Promise<readonly string[]>;
}

/** Work that belongs to no execution, done at a rhythm by one process at a time. Answers how many rows it took care of. */
export interface Chore {
  name: string;
  everyMs: number;
  run(context: EngineContext, signal: AbortSignal): Promise<number>;
}
