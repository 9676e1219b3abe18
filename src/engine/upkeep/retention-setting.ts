/**
 * How long things are kept. It holds for all processes, so it is kept in the database: a script that connects without
 * saying anything must not shorten what the deployment keeps.
 */
import { readRetention, writeRetention } from './retention.sql.ts';
import type { EngineContext } from '../kit/context.ts';

/** When nobody has said how long. */
const DEFAULT_RETENTION_MS = 7 * 86_400_000;

/** Null is for ever. */
export async function setRetention(context: EngineContext, retentionMs: number | null): Promise<void> {
  await writeRetention(context.database, retentionMs);
}

/** Null is for ever. */
export async function retentionOf(context: EngineContext): Promise<number | null> {
  const told = await readRetention(context.database);
  return told === undefined ? DEFAULT_RETENTION_MS : told;
}
