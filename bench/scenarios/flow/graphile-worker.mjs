/**
 * graphile-worker has no flows. By hand: a handler adds the next link before it is done, and branches count themselves
 * in a table of the bench; the last one adds the join in the same statement. A handler that runs again counts twice:
 * nobody should use it like that, but it is the baseline to beat. Runs in a seat.
 */
import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import { withClient } from '../../harness/stores.mjs';

const TASK = 'bench';
const logger = new Logger(() => () => undefined);
const LEFT = 'CREATE TABLE bench_left (n int PRIMARY KEY, branches int NOT NULL)';
const COUNT_DOWN = `WITH left_over AS (UPDATE bench_left SET branches = branches - 1 WHERE n = $1 RETURNING branches)
  SELECT graphile_worker.add_job($2, json_build_object('n', $1::int, 'role', 'end')) FROM left_over WHERE branches = 0`;

const NEXT = {
  link: (size, { n, i }, helpers) =>
    helpers.addJob(TASK, { n, i: i + 1, role: i + 2 === size ? 'end' : 'link' }),
  root: async (size, { n }, helpers) => {
    await helpers.query('INSERT INTO bench_left VALUES ($1, $2)', [n, size]);
    const payload = { n, role: 'branch' };
    await helpers.addJobs(Array.from({ length: size }, () => ({ identifier: TASK, payload })));
  },
  branch: (_, { n }, helpers) => helpers.query(COUNT_DOWN, [n, TASK]),
  end: () => undefined,
};

/** @returns {Promise<import('./desk.mjs').Flows>} */
export async function openFlows({ target, settings, shape }, desk) {
  const { kind, size } = shape;
  await withClient(target.url, (client) => client.query(LEFT));
  const work = async (payload, helpers) => {
    if (payload.role === 'end') desk.tell(payload.n, 'end');
    await NEXT[payload.role](size, payload, helpers);
    if (payload.role === 'root') desk.tell(payload.n, 'over');
  };
  const runner = await run({
    preset: { worker: { connectionString: target.url, ...settings.worker } },
    logger,
    noHandleSignals: true,
    taskList: { [TASK]: work },
  });
  const utils = await makeWorkerUtils({ connectionString: target.url, logger });
  const first = kind === 'chain' ? { i: 0, role: 'link' } : { role: 'root' };
  return {
    perFlow: null,
    submit: async (n) => void (await utils.addJob(TASK, { n, ...first })),
    async stop() {
      await runner.stop();
      await utils.release();
    },
  };
}
