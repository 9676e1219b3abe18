/**
 * Removes workers from the registry whose last heartbeat is long ago: their process died, or could not deregister. It
 * is no reconciler: it acts on no execution, and their work was taken over when their leases lapsed. So it is one
 * statement that the runner sends when it tidies up.
 */
import type { EngineContext } from '../kit/context.ts';
import { forgetWorkersSilentFor } from '../operator/workers.sql.ts';

/** Sixty missed heartbeats. A worker that is alive after all registers again with its next one. */
const SILENT_MS = 600_000;

export function forgetSilentWorkers(context: EngineContext): Promise<void> {
  return forgetWorkersSilentFor(context.database, SILENT_MS);
}
