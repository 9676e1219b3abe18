/**
 * What the end of a member decided for those after it, as the functions answer it, and who is told.
 */
import type { EngineContext } from '../kit/context.ts';

export interface Advanced {
  execution_id: string | null;
  outcome: 'unblocked' | 'skipped' | 'more' | 'told';
  route_id: number | null;
}

/** Rings for what may run now. Answers whether more is left to be done. */
export function ringForAdvanced({ doorbell }: EngineContext, rows: readonly Advanced[]): boolean {
  const free = rows.filter((row) => row.outcome === 'unblocked');
  const skipped = rows.filter((row) => row.outcome === 'skipped');
  if (free.length > 0)
    doorbell.ring({ routes: [...new Set(free.map((row) => row.route_id!))], count: free.length });
  if (skipped.length > 0) doorbell.ring({ ended: skipped.map((row) => row.execution_id!) });
  return rows.some((row) => row.outcome === 'more');
}
