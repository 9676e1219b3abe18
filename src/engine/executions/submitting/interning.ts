/**
 * Makes routes known before anything is submitted to them, in a transaction of the engine's own, so that an open transaction of
 * an application holds up nobody else who uses the same lane or kind for the first time. Whether a route is known the database
 * says: a submit to one that is not writes nothing, and is sent again. One that nobody submits to is harmless, and forgotten.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { EngineError } from '../../../contract/errors.ts';
import { LIMITS } from '../../../contract/limits.ts';
import type { Database } from '../../database/database.ts';
import type { SubmitCall, SubmitRoute } from '../executions.sql.ts';
import { internRoutes } from '../claiming/routes.sql.ts';
import type { EngineContext } from '../../kit/context.ts';

/** Sends a call, and once more with its routes interned if one of them was not. `inside`: in a transaction of the caller's. */
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
  throw new EngineError('contention', 'While submitting executions: the route was forgotten meanwhile.');
}

function lacksRoute(answers: readonly { outcome: string }[]): boolean {
  return answers.some((answer) => answer.outcome === 'unknown_route');
}

/** The caller may hold the last connection of the pool; what waits for one is done when it has been let go. */
async function internInTime(database: Database, routes: readonly SubmitRoute[]): Promise<SubmitRoute[]> {
  const interning = internRoutes(database, routes);
  interning.catch(() => undefined);
  const over = new AbortController();
  const late = pause(LIMITS.poolWaitMs, undefined, { signal: over.signal }).then(() => {
    throw new EngineError(
      'retry_transaction',
      `This combination of lane, kind and capabilities is new, and the pool had no free connection within ${LIMITS.poolWaitMs / 1_000} seconds to make it known. Roll back and try again; a pool with one connection more, or one of the engine's own (databaseUrl), spares you that.`,
    );
  });
  late.catch(() => undefined);
  return Promise.race([interning, late]).finally(() => over.abort());
}
