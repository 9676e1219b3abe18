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

/** Returns the executions whose timers fired; locked timers are left for the next pass. */
export async function fireTimers(context: EngineContext, timers: readonly DueTimer[]): Promise<string[]> {
  if (timers.length === 0) return [];
  const answers = await fire(
    context.database,
    timers.map((timer) => timer.timerId),
  );
  announce(context, answers);
  return answers.map((row) => row.uuid);
}

/** Fires one batch of what is due now and finishes the resulting work for flows; returns the number of executions. */
export async function fireDueTimers(context: EngineContext, options: FireOptions = {}): Promise<number> {
  const { flows = 'await' } = fireOptions.check(options, 'options');
  const fired = await fireTimers(context, await listDueTimers(context.database, TIMER_BATCH));
  // Ending a member already started the work for its flow; `await` waits for it, and does what others left undone.
  if (flows === 'await') await context.flowWork.finish();
  return fired.length;
}
