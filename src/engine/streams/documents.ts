/**
 * The documents of attempts as they are read. Whatever ends an attempt folds a few patches of what stays into the next
 * document, and leaves the rest to whoever needs it first: that is done here, in parts.
 */
import type { Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import { readSummary, refoldDocument } from './streams.sql.ts';

/** Patches folded in one statement. */
const PART = 1_000;

/** The document and its place, whole. An attempt of null is the current one. */
export async function readDocument(
  database: Database,
  key: ExecutionKey,
  attemptIndex: number | null,
): ReturnType<typeof readSummary> {
  for (;;) {
    const found = await readSummary(database, key, attemptIndex);
    if (found === undefined || found.attemptIndex === null || !found.isBehind) return found;
    await refoldDocument(database, key, found.attemptIndex, PART);
  }
}
