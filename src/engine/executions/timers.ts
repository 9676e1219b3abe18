/**
 * Fires what waited for a time. Any process may call this at any moment: timers are re-checked under their locks.
 */
import { fireTimers as fire, listDueTimers, type DueTimer } from './due.sql.ts';
import type { FireOptions } from '../../contract/protocol.ts';
import { announce } from '../kit/announce.ts';
import { choice } from '../../contract/kinds.ts';
import { shape } from '../../contract/shape.ts';
import type { EngineContext } from '../kit/context.ts';

export const TIMER_BATCH = 1_000;
const fireOptions = shape<FireOptions>({ flows: choice(['await', 'leave']).optional() });

/** Answers the executions whose timers were taken care of; timers of others stay for the next pass. */
export async function fireTimers(context: EngineContext, timers: readonly DueTimer[]): Promise<string[]> {
  if (timers.length === 0) return [];
  const answers = await fire(
    context.database,
    timers.map((timer) => timer.timerId),
  );
  announce(context, answers);
  return answers.map((row) => row.uuid);
}

/** Fires one batch of whatever is due now, and has done what is left for flows; answers how many executions it took care of. */
export async function fireDueTimers(context: EngineContext, options: FireOptions = {}): Promise<number> {
  const { flows = 'await' } = fireOptions.check(options, 'options');
  const fired = await fireTimers(context, await listDueTimers(context.database, TIMER_BATCH));
  // Who ended a member has it told; who is asked to waits for that, and for what others have left.
  if (flows === 'await') await context.flowWork.finish();
  return fired.length;
}
