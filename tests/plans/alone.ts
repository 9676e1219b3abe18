/**
 * Executions one at a time, so that the functions for single ones run every statement they have.
 */
import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/engine/database/database.ts';
import { submitOne } from '../../src/engine/executions/submitting/submits.sql.ts';
import { callsOn, claimBatch, exchange, LARGE_PAYLOAD, makeKnown, RETRIES, submitCall } from './workload.ts';

const LIMITS = { timeout_policy: { execution_deadline_ms: 3_600_000, attempt_timeout_ms: 3_600_000 } };

export async function walkAlone(database: Database): Promise<void> {
  const kind = `alone-${randomUUID().slice(0, 8)}`;
  const submitted = async (delayMs: number, payload = '1'): Promise<number> => {
    const call = submitCall({ kinds: [kind], count: 1, delayMs, payload, policy: { ...RETRIES, ...LIMITS } });
    const [answer] = await submitOne(database, await makeKnown(database, call));
    return answer!.routeId!;
  };
  await submitted(3_600_000);
  const routes = [await submitted(0, LARGE_PAYLOAD)];
  await submitted(0);
  const claims = await claimBatch(database, routes, 1);
  const next = await exchange(database, claims, routes);
  await callsOn(database).complete(next);
  // The limits of several are set by a statement of their own.
  await submitted(0);
  await callsOn(database).complete(await claimBatch(database, routes, 2));
}
