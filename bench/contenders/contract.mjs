/**
 * What every contender offers, so that a scenario can drive any of them. A contender installs itself in an empty store,
 * takes jobs, runs them, and can report how much is left. It decides nothing about sizes, rounds or clocks: those
 * belong to the scenarios. All jobs are numbered from 0 and carry `{ n }`; every handler returns `{ ok, n }`.
 *
 * @typedef {object} Target
 * @property {string} url Where the store is: a separate database, or a Redis.
 *
 * @typedef {object} Variant One way to run the contender.
 * @property {string} name Shown in tables; names the settings that matter.
 * @property {'batched' | 'unbatched' | 'latency' | 'steps' | 'default'} mode `batched`: the fastest settings we know;
 *   `unbatched`: one job per statement; `latency`: tuned to start soon; `steps`: the scenario adds `steps` to the
 *   settings, and the handler runs that many durable steps one after the other; `default`: as its manual starts it.
 * @property {Record<string, unknown>} settings Passed to `startWorker` unchanged.
 * @property {number} [jobsMax] More jobs than this would take minutes.
 *
 * @typedef {object} Producer
 * @property {(first: number, count: number) => Promise<void>} submitMany One bulk call; awaited means durable.
 * @property {(n: number) => Promise<void>} submitOne
 * @property {() => Promise<void>} close
 *
 * @typedef {object} RunningWorker
 * @property {() => Promise<void>} stop
 * @property {Producer} [producer] Submits over the worker's own connection, if the contender offers that.
 *
 * @typedef {object} Probe
 * @property {() => Promise<number>} unsettled Jobs whose end is not durable yet.
 * @property {() => Promise<number | null>} finished Finished jobs that are kept; null when none are kept.
 * @property {() => Promise<void>} close
 *
 * @typedef {object} Contender
 * @property {string} name
 * @property {'ours' | 'peer'} side
 * @property {'postgres' | 'redis'} store
 * @property {string} packageName The package whose version is reported.
 * @property {string} keeps What is left in the store after a job ended, as a sentence.
 * @property {Variant[]} variants
 * @property {{ batch?: number, callers?: number }} bulk Its own best way to submit many, if batches of 1,000 do not
 * fit.
 * @property {(target: Target, settings?: Record<string, any>) => Promise<void>} prepare Installs the contender in an
 *   empty store; the settings are those of the worker that will run there, if any.
 * @property {(target: Target) => Promise<Producer>} openProducer
 * @property {(target: Target, settings: Record<string, any>, onRun: (n: number) => void) => Promise<RunningWorker>} startWorker
 * @property {(target: Target) => Promise<Probe>} openProbe
 */
import pg from 'pg';

/**
 * A probe that runs two queries on a database, each returning one number.
 * @param {Target} target
 * @param {{ unsettled: string, finished: string | null }} questions
 * @returns {Promise<Probe>}
 */
export async function sqlProbe(target, questions) {
  const client = new pg.Client({ connectionString: target.url });
  // The next statement reports a connection lost between two statements.
  client.on('error', () => undefined);
  await client.connect();
  const ask = async (text) => Number(Object.values((await client.query(text)).rows[0])[0]);
  return {
    unsettled: () => ask(questions.unsettled),
    finished: async () => (questions.finished === null ? null : ask(questions.finished)),
    close: () => client.end(),
  };
}

/** The numbers of one bulk call. */
export function numbers(first, count) {
  return Array.from({ length: count }, (_, index) => first + index);
}
