/**
 * How long things are kept. The setting applies to all processes, so it is stored in the database: a script that
 * connects without it must not shorten what the deployment keeps.
 */
import { readRetention, writeRetention } from './retention.sql.ts';
import type { EngineContext } from '../kit/context.ts';

/** Used while nothing is set. */
const DEFAULT_RETENTION_MS = 7 * 86_400_000;

/** Null means for ever. */
export async function setRetention(context: EngineContext, retentionMs: number | null): Promise<void> {
  await writeRetention(context.database, retentionMs);
}

/** Null means for ever. */
export async function retentionOf(context: EngineContext): Promise<number | null> {
  const stored = await readRetention(context.database);
  return stored === undefined ? DEFAULT_RETENTION_MS : stored;
}
