/**
 * How many connections one process opens at most, and what for. There is no other place that opens any while an engine runs;
 * `migrate` and the doctor have theirs only while they work.
 */
import { LIMITS } from '../../contract/limits.ts';

export const DEFAULT_POOL_SIZE = 10;

export interface ConnectionBudget {
  /** For statements of the engine: `poolSize`. */
  statements: number;
  /** For `ctx.tx`, and for handlers of consumers: apart from each other and from statements, because user code may take long. */
  transactions: number;
  handlings: number;
  listener: number;
  total: number;
}

export function connectionBudget(
  poolSize: number = DEFAULT_POOL_SIZE,
  listen: 'on' | 'off' = 'on',
): ConnectionBudget {
  const transactions = Math.min(LIMITS.transactions, poolSize);
  const listener = listen === 'on' ? 1 : 0;
  const total = poolSize + 2 * transactions + listener;
  return { statements: poolSize, transactions, handlings: transactions, listener, total };
}

/** A sentence for whoever has to make room. */
export function describeBudget({
  statements,
  transactions,
  handlings,
  listener,
  total,
}: ConnectionBudget): string {
  return `This process opens up to ${total} connections: ${statements} for statements (poolSize), ${transactions} for ctx.tx, ${handlings} for handlers of consumers, ${listener} to listen.`;
}
