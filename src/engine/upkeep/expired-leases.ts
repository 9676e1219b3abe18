/**
 * Ends the attempts of lapsed leases, so that another worker can take over.
 */
import { lapse } from '../executions/leases.ts';
import { listLapsedLeases, type LapsedLease } from '../executions/due.sql.ts';
import type { Reconciler } from './reconciler.ts';

export const expiredLeases: Reconciler<LapsedLease> = {
  name: 'expired-leases',
  everyMs: 1_000,
  batch: 1_000,
  due: (context, limit) => listLapsedLeases(context.database, limit),
  act: lapse,
};
