/**
 * Passes a watcher the hints that concern it: about work it can run, about timers, about its leases.
 */
import type { Hint, HintWatcher, Interest } from '../../../contract/protocol.ts';
import type { EngineContext } from '../../kit/context.ts';
import { demandOf, interestShape } from './demand.ts';

/** Watches until the returned function is called. */
export function watch(context: EngineContext, interest: Interest, watcher: HintWatcher): () => void {
  const demand = demandOf(interestShape.check(interest, 'interest', ''));
  return context.doorbell.watch((hint) => {
    if (hint.routes.length === 0 && hint.dueInMs === null && hint.workers.length === 0) return false;
    const routes = concerning(context, hint, new Set(context.routes.matching(demand).map((r) => r.routeId)));
    if (routes.length === 0 && hint.dueInMs === null && hint.workers.length === 0) return false;
    const taken = watcher({ ...hint, routes });
    return taken && hint.routes !== 'all' && routes.length === hint.routes.length;
  });
}

/**
 * The hint's routes that match. An unknown route may match, so it counts, and the next claim reads the routes again.
 * So does `all`, which is also sent when a lane is resumed.
 */
function concerning(
  context: EngineContext,
  hint: Hint,
  matching: ReadonlySet<number>,
): readonly number[] | 'all' {
  const unknown =
    hint.routes === 'all' || hint.routes.some((routeId) => context.routes.get(routeId) === undefined);
  if (unknown) context.routes.forget();
  if (hint.routes === 'all') return 'all';
  return hint.routes.filter((routeId) => matching.has(routeId) || context.routes.get(routeId) === undefined);
}
