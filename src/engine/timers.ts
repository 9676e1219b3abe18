/**
 * Fires what waited for a time. Any process may call this at any moment: timers are re-checked under their locks.
 */
import { fireTimers as fire, listDueTimers, type DueTimer, type FiredAnswer } from '../store/reconciling.ts';
import type { EngineContext } from './context.ts';

export const TIMER_BATCH = 1_000;

export interface FiredTimers {
  /** Executions that became claimable. */
  fired: string[];
  /** Executions whose timer no longer meant anything. */
  discarded: string[];
  /** Executions whose time, or whose attempt's time, was over. */
  timedOut: string[];
}

export async function fireTimers(context: EngineContext, timers: readonly DueTimer[]): Promise<FiredTimers> {
  if (timers.length === 0) return { fired: [], discarded: [], timedOut: [] };
  const answers = await fire(
    context.database,
    timers.map((timer) => timer.timerId),
  );
  const withOutcome = (outcome: string): FiredAnswer[] => answers.filter((row) => row.outcome === outcome);
  const fired = withOutcome('fired');
  const ended = withOutcome('execution_timed_out');
  const again = withOutcome('attempt_timed_out');
  if (fired.length > 0) {
    context.doorbell.ring({ routes: [...new Set(fired.map((row) => row.route_id!))], count: fired.length });
  }
  if (ended.length + again.length > 0) ringForTimeouts(context, ended, again);
  return {
    fired: idsOf(fired),
    discarded: idsOf(withOutcome('discarded')),
    timedOut: idsOf([...ended, ...again]),
  };
}

/** Tells the workers that lost their leases, who waits for an end, and who is to fire the timers that were set. */
function ringForTimeouts(
  context: EngineContext,
  ended: readonly FiredAnswer[],
  again: readonly FiredAnswer[],
): void {
  const rows = [...ended, ...again];
  const dues = rows.flatMap((row) => (row.due_in_ms === null ? [] : [row.due_in_ms]));
  context.doorbell.ring({
    workers: [
      ...new Set(rows.flatMap((row) => (row.worker_instance_id === null ? [] : [row.worker_instance_id]))),
    ],
    ended: idsOf(ended),
    dueInMs: dues.length === 0 ? null : Math.min(...dues),
  });
}

function idsOf(rows: readonly FiredAnswer[]): string[] {
  return rows.map((row) => row.execution_id);
}

/** Fires one batch of whatever is due now; answers how many timers it took care of. */
export async function fireDueTimers(context: EngineContext): Promise<number> {
  const { fired, discarded, timedOut } = await fireTimers(
    context,
    await listDueTimers(context.database, TIMER_BATCH),
  );
  return fired.length + discarded.length + timedOut.length;
}
