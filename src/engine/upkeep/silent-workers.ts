/**
 * Removes workers from the registry that have not been heard of for long: their process died, or could not say goodbye.
 * Not a reconciler of executions: it acts on none, and their work was taken over when their leases lapsed. So it is
 * one statement that the runner sends when it tidies.
 */
import type { EngineContext } from '../kit/context.ts';
import { forgetWorkersSilentFor } from '../operator/workers.sql.ts';

/** Sixty refreshes missed. One that is alive after all enters itself again with its next refresh. */
const SILENT_MS = 600_000;

export function forgetSilentWorkers(context: EngineContext): Promise<void> {
  return forgetWorkersSilentFor(context.database, SILENT_MS);
}
