/**
 * pg-boss in two ways. Its own flows: `flow()` submits the whole graph, and `resolveFlow()` passes ends on to the next
 * jobs, called continuously here, where its own timer calls it at most once a second. By hand: a handler submits the
 * next link before it is done. Both with loops of fetch and complete over large batches, its fastest setup. Runs in a
 * seat.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { PgBoss } from 'pg-boss';

const QUEUE = 'bench';
const LOOPS = 2;
const BATCH = 1_000;
const EMPTY_WAIT_MS = 5;

async function open(target) {
  const boss = new PgBoss({ connectionString: target.url, supervise: false, schedule: false });
  boss.on('error', (error) => process.stderr.write(`pg-boss: ${error.message}\n`));
  await boss.start();
  return boss;
}

function job(ref, data, dependsOn) {
  return { ref, name: QUEUE, data, ...(dependsOn === undefined ? {} : { dependsOn }) };
}

function link(n, i, size) {
  return { n, i, role: i === size - 1 ? 'end' : 'link' };
}

const JOBS = {
  chain: (n, size) =>
    Array.from({ length: size }, (_, i) =>
      job(`link-${i}`, link(n, i, size), i === 0 ? undefined : [`link-${i - 1}`]),
    ),
  all: (n, size) => {
    const middle = Array.from({ length: size }, (_, i) =>
      job(`branch-${i}`, { n, role: 'branch' }, ['root']),
    );
    const refs = middle.map(({ ref }) => ref);
    return [job('root', { n, role: 'root' }), ...middle, job('join', { n, role: 'end' }, refs)];
  },
};

async function runBatch(boss, jobs, { desk, next }) {
  for (const { data } of jobs) {
    if (data.role === 'end') desk.tell(data.n, 'end');
    if (data.role === 'root') desk.tell(data.n, 'over');
  }
  const following = next(jobs);
  if (following.length > 0) await boss.insert(QUEUE, following);
  const ids = jobs.map(({ id }) => id);
  await boss.complete(QUEUE, ids, { ok: true });
}

/** @returns {Promise<import('./desk.mjs').Flows>} */
export async function openFlows({ target, settings, shape }, desk) {
  const { kind, size } = shape;
  const isByHand = settings.way === 'by hand';
  const next = (jobs) =>
    isByHand
      ? jobs
          .filter(({ data }) => data.role === 'link')
          .map(({ data }) => ({ data: link(data.n, data.i + 1, size) }))
      : [];
  const [boss, sender] = await Promise.all([open(target), open(target)]);
  const stopping = new AbortController();
  const working = async () => {
    while (!stopping.signal.aborted) {
      const jobs = await boss.fetch(QUEUE, { batchSize: BATCH });
      if (jobs.length === 0) await delay(EMPTY_WAIT_MS);
      else await runBatch(boss, jobs, { desk, next });
    }
  };
  const resolving = async () => {
    while (!stopping.signal.aborted) {
      await boss.resolveFlow();
      await delay(EMPTY_WAIT_MS);
    }
  };
  const others = isByHand ? [] : [resolving()];
  const loops = Promise.all([...Array.from({ length: LOOPS }, working), ...others]);
  return {
    perFlow: JOBS[kind](0, size).length,
    submit: async (n) =>
      void (await (isByHand ? sender.send(QUEUE, link(n, 0, size)) : sender.flow(JOBS[kind](n, size)))),
    async stop() {
      stopping.abort();
      await loops;
      await Promise.all([boss, sender].map((one) => one.stop({ graceful: false })));
    },
  };
}
