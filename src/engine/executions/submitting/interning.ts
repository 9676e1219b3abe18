/**
 * Interns routes before anything is submitted to them, in a separate transaction, so that an application's open
 * transaction does not block others that use the same lane or kind for the first time. The database checks whether a
 * route is known: a submit to an unknown one writes nothing and is sent again. An unused route is harmless, and is
 * forgotten later.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { EngineError } from '../../../contract/errors.ts';
import { LIMITS } from '../../../contract/limits.ts';
import type { Database } from '../../database/database.ts';
import type { SubmitCall, SubmitRoute } from '../executions.sql.ts';
import { internRoutes } from '../claiming/routes.sql.ts';
import type { EngineContext } from '../../kit/context.ts';

/** Sends a call, and once more with its routes interned if one was unknown. `inside`: in the caller's transaction. */
export async function knowingRoutes<Answer extends { outcome: string }>(
  context: EngineContext,
  call: SubmitCall,
  send: (call: SubmitCall) => Promise<Answer[]>,
  where: 'inside' | 'alone' = 'alone',
): Promise<Answer[]> {
  const answers = await send(call);
  if (!lacksRoute(answers)) return answers;
  const intern = where === 'inside' && context.database.isShared ? internInTime : internRoutes;
  const again = await send({ ...call, routes: await intern(context.database, call.routes) });
  if (!lacksRoute(again)) return again;
  throw new EngineError(
    'contention',
    'While submitting executions: a route was forgotten meanwhile. Submit again.',
  );
}

function lacksRoute(answers: readonly { outcome: string }[]): boolean {
  return answers.some((answer) => answer.outcome === 'unknown_route');
}

/**
 * The caller may have the last connection of the pool. Interning then finishes when that is released, too late for this
 * call.
 */
async function internInTime(database: Database, routes: readonly SubmitRoute[]): Promise<SubmitRoute[]> {
  const interning = internRoutes(database, routes);
  interning.catch(() => undefined);
  const over = new AbortController();
  const late = delay(LIMITS.poolWaitMs, undefined, { signal: over.signal }).then(() => {
    throw new EngineError(
      'retry_transaction',
      `This combination of lane, kind and capabilities is new, and the pool had no free connection within ${LIMITS.poolWaitMs / 1_000} seconds to register it. Roll back and try again. To avoid this, give the pool one more connection, or give the engine its own (databaseUrl).`,
    );
  });
  late.catch(() => undefined);
  return Promise.race([interning, late]).finally(() => over.abort());
}
