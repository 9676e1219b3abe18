/**
 * The type of what the adapters give to `ctx.tx` as `through`. Nothing runs here.
 */
import type { Transactor } from '../contract/engine.ts';

/**
 * A transactor, and by the `object` not merely a function: what a generic function answers that is one, the compiler
 * looks at last, and `ctx.tx('a', async (tx) => …, { through: pgTransactor(pool) })` would not know what `tx` is.
 */
export type Through<Tx> = Transactor<Tx> & object;
