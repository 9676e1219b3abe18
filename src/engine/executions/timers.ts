/**
 * Fires due timers. Any process may call this at any moment: timers are checked again under their locks.
 */
import { fireTimers as fire, listDueTimers, type DueTimer } from './due.sql.ts';
import type { FireOptions } from '../../contract/protocol.ts';
import { announce } from '../kit/announce.ts';
import { choice } from '../../contract/shape/kinds.ts';
import { shape } from '../../contract/shape/shape.ts';
import type { EngineContext } from '../kit/context.ts';

export const TIMER_BATCH = 1_000;
const fireOptions = shape<FireOptions>({ flows: choice(['await', 'leave']).optional() });

/**
 * Returns the executions whose timers fired; locked timers are left for the next pass. `await`: waits for the work on
 * families.
 */
export async function fireTimers(
  context: EngineContext,
  timers: readonly DueTimer[],
  families: 'await' | 'begin' = 'await',
): Promise<string[]> {
  const own = timers.filter((timer) => !timer.isFamily).map(({ timerId }) => timerId);
  const answers = own.length === 0 ? [] : await fire(context.database, own);
  announce(context, answers);
  const fired = answers.map(({ uuid }) => uuid);
  const parents = timers.filter((timer) => timer.isFamily);
  if (families === 'begin') {
    context.families.begin(parents.map(({ timerId }) => timerId));
    // They stay due until their work has begun: whoever fires again at once would find them again.
    return fired;
  }
  for (const { timerId } of parents) await context.families.settle(timerId);
  return [...fired, ...parents.map(({ uuid }) => uuid)];
}

/** Fires one batch of what is due now and finishes the resulting work for flows; returns the number of executions. */
export async function fireDueTimers(context: EngineContext, options: FireOptions = {}): Promise<number> {
  const { flows = 'await' } = fireOptions.check(options, 'options');
  const due = await listDueTimers(context.database, TIMER_BATCH);
  // A family may be large: the caller, who is about to claim, does not wait for it.
  const fired = await fireTimers(context, due, flows === 'await' ? 'await' : 'begin');
  // Ending a member already started the work for its flow; `await` waits for it, and does what others left undone.
  if (flows === 'await') await context.flowWork.finish();
  return fired.length;
}
