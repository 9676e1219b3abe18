/**
 * Fires overdue timers. Workers fire timers while they wait for work; this is for when none was free to.
 */
import { fireTimers, TIMER_BATCH } from '../executions/timers.ts';
import { listDueTimers, type DueTimer } from '../executions/due.sql.ts';
import type { Reconciler } from './reconciler.ts';

export const dueTimers: Reconciler<DueTimer> = {
  name: 'due-timers',
  everyMs: 2_500,
  batch: TIMER_BATCH,
  due: (context, limit) => listDueTimers(context.database, limit),
  act: (context, timers) => fireTimers(context, timers),
};
