/**
 * The type of what the adapters pass to `ctx.tx` as `through`. There is no code here.
 */
import type { Transactor } from '../contract/transactions.ts';

/**
 * A transactor that is also an `object`, not merely a function. The compiler infers from a bare function returned by a
 * generic one last, and `ctx.tx('a', async (tx) => …, { through: pgTransactor(pool) })` would not know the type of
 * `tx`.
 */
export type Through<Tx> = Transactor<Tx> & object;
