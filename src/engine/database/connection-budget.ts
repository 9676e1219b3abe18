/**
 * How many connections one process opens at most, and what for. Nothing else opens any while an engine runs, except
 * `migrate` and the doctor for as long as they work.
 */
import { LIMITS } from '../../contract/limits.ts';

export const DEFAULT_POOL_SIZE = 10;

export interface ConnectionBudget {
  /** For statements of the engine: `poolSize`. */
  statements: number;
  /** For `ctx.tx` and, as `handlings`, for handlers of consumers. Separate, because user code may take long. */
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

/** A sentence for whoever has to raise a limit. */
export function describeBudget({
  statements,
  transactions,
  handlings,
  listener,
  total,
}: ConnectionBudget): string {
  return `This process opens up to ${total} connections: ${statements} for statements (poolSize), ${transactions} for ctx.tx, ${handlings} for handlers of consumers, ${listener} to listen.`;
}
