/**
 * Fires what waited for a time. Any process may call this at any moment: timers are re-checked under their locks.
 */
import { fireTimers as fire, listDueTimers, type DueTimer, type FiredAnswer } from './due.sql.ts';
import type { FireOptions } from '../../contract/engine.ts';
import type { EngineContext } from '../kit/context.ts';
import { checkChoice, checkMembers } from '../kit/settings.ts';

export const TIMER_BATCH = 1_000;
const FLOWS = ['await', 'leave'];

/** Answers the executions whose timers were taken care of; timers of others stay for the next pass. */
export async function fireTimers(context: EngineContext, timers: readonly DueTimer[]): Promise<string[]> {
  if (timers.length === 0) return [];
  const answers = await fire(
    context.database,
    timers.map((timer) => timer.timerId),
  );
  const fired = answers.filter((row) => row.outcome === 'fired');
  const others = answers.filter((row) => row.outcome !== 'fired' && row.outcome !== 'discarded');
  if (fired.length > 0) {
    context.doorbell.ring({ routes: [...new Set(fired.map((row) => row.route_id!))], count: fired.length });
  }
  if (others.length > 0) ringForOthers(context, others);
  return idsOf(answers);
}

/** Tells the workers that lost their leases, who waits for an end, and who is to fire the timers that were set. */
function ringForOthers(context: EngineContext, rows: readonly FiredAnswer[]): void {
  const dues = rows.flatMap((row) => (row.due_in_ms === null ? [] : [row.due_in_ms]));
  // Members of flows may be among them.
  if (rows.some((row) => row.outcome === 'execution_timed_out')) context.flowWork.stir();
  context.doorbell.ring({
    workers: [
      ...new Set(rows.flatMap((row) => (row.worker_instance_id === null ? [] : [row.worker_instance_id]))),
    ],
    ended: idsOf(rows.filter((row) => row.outcome === 'execution_timed_out')),
    streams: idsOf(rows.filter((row) => row.outcome === 'attempt_timed_out')),
    dueInMs: dues.length === 0 ? null : Math.min(...dues),
  });
}

function idsOf(rows: readonly FiredAnswer[]): string[] {
  return rows.map((row) => row.execution_id);
}

/** Fires one batch of whatever is due now, and has done what is left for flows; answers how many executions it took care of. */
export async function fireDueTimers(context: EngineContext, options: FireOptions = {}): Promise<number> {
  checkMembers(options, 'options', ['flows']);
  const { flows = 'await' } = options;
  checkChoice(flows, 'options.flows', FLOWS);
  const fired = await fireTimers(context, await listDueTimers(context.database, TIMER_BATCH));
  // Who ended a member has it told; who is asked to waits for that, and for what others have left.
  if (flows === 'await') {
    context.flowWork.stir();
    await context.flowWork.settled();
  }
  return fired.length;
}
