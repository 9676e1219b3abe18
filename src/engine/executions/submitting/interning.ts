/**
 * Interns routes before anything is submitted to them, in a separate transaction, so that an application's open
 * transaction does not block others that use the same lane or kind for the first time. The database checks whether a
 * route is known: a submit to an unknown one writes nothing and is sent again. An unused route is harmless, and is
 * forgotten later. Policies are interned on the same occasion, because the executions of a route mostly share one; a
 * policy that is not is stored with each execution.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { EngineError } from '../../../contract/errors.ts';
import { LIMITS } from '../../../contract/limits.ts';
import type { Database } from '../../database/database.ts';
import type { SubmitCall, SubmitRoute } from './submits.sql.ts';
import { internPolicies, internRoutes } from '../claiming/routes.sql.ts';
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
  const intern = where === 'inside' && context.database.isShared ? internInTime : internBoth;
  const again = await send({ ...call, routes: await intern(context.database, call) });
  if (!lacksRoute(again)) return again;
  throw new EngineError(
    'contention',
    'While submitting executions: a route was forgotten meanwhile. Submit again.',
  );
}

function lacksRoute(answers: readonly { outcome: string }[]): boolean {
  return answers.some((answer) => answer.outcome === 'unknown_route');
}

async function internBoth(database: Database, call: SubmitCall): Promise<SubmitRoute[]> {
  // Routes first: without them the submit cannot be sent again, and the caller may hold the only other connection.
  const routes = await internRoutes(database, call.routes);
  await internPolicies(
    database,
    call.templates.map((template) => template.policy),
  );
  return routes;
}

/**
 * The caller may have the last connection of the pool. Interning then finishes when that is released, too late for this
 * call.
 */
async function internInTime(database: Database, call: SubmitCall): Promise<SubmitRoute[]> {
  const interning = internBoth(database, call);
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
