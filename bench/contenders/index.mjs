/**
 * Which contenders there are. A module is loaded only on demand, because loading some peers changes the process: a
 * worker process loads its own and no other.
 */

/** Ours first: ratios are always ours ÷ peer. */
export const CONTENDER_NAMES = ['flowfabric', 'graphile-worker', 'pg-boss', 'dbos', 'openworkflow', 'bullmq'];

/**
 * @param {string} name
 * @returns {Promise<import('./contract.mjs').Contender>}
 */
export async function loadContender(name) {
  if (!CONTENDER_NAMES.includes(name)) {
    throw new Error(`There is no contender ${name}; there are ${CONTENDER_NAMES.join(', ')}.`);
  }
  const { contender } = await import(`./${name}.mjs`);
  return contender;
}
