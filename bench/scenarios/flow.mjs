/**
 * Flows: chains of ten members, a hundred branches that are all awaited, and a hundred of which the first is enough.
 * How many per second, and the latency of a single one. One scenario per figure, because each compares its own.
 */
import { withStore } from '../harness/draining.mjs';
import { percentile } from '../harness/figures.mjs';
import { withSeats } from '../harness/seats.mjs';
import { settleStore } from '../harness/stores.mjs';
import { jobs, keyOf } from './cases.mjs';
import { Desk } from './flow/desk.mjs';

const SEAT = new URL('flow/measuring.mjs', import.meta.url);
const CHAIN = { kind: 'chain', size: 10 };
const ALL = { kind: 'all', size: 100 };
const ANY = { kind: 'any', size: 100 };

const CHAINS = { quick: 400, full: 3_000 };
const CHAINS_UNDER_WAY = 200;
const CHAINS_ALONE = { quick: 20, full: 100 };
const JOINS = { quick: 20, full: 200 };
const JOINS_UNDER_WAY = 10;
const JOINS_ALONE = { quick: 10, full: 50 };
const RACES = { quick: 5, full: 30 };
/** Everything before is cold: connections, plans, code. */
const WARM_UP = { chain: 20, all: 3, any: 2 };
/** Per process: two have room for the race and its join, but neither has room for all of it. */
const RACE_CONCURRENCY = 64;
const RACE_PROCESSES = 2;

const BOSS_FLOW = { label: 'flow(), resolveFlow() every 5 ms, 2 × batch 1000', settings: { way: 'flow' } };
const BOSS_BY_HAND = { label: 'by hand, 2 × batch 1000', settings: { way: 'by hand' } };
const GRAPHILE = [
  {
    label: 'by hand, 24 jobs, localQueue 500, completeJobBatchDelay 0',
    settings: { worker: { concurrentJobs: 24, localQueue: { size: 500 }, completeJobBatchDelay: 0 } },
  },
  { label: 'by hand, 24 jobs, no local queue', settings: { worker: { concurrentJobs: 24 } } },
];
const BULLMQ = {
  label: 'FlowProducer, concurrency 200, appendfsync everysec',
  settings: { worker: { concurrency: 200 } },
};

function dbos(way, more = {}) {
  const queue = { workerConcurrency: 500, minPollingIntervalMs: 20, ...more.queue };
  return {
    label: way,
    settings: { queue, ...(way === 'steps of one workflow' ? { way: 'steps' } : {}) },
    most: more.most,
  };
}

/** Which contenders can do it, and with what settings. `most`: more flows than this would take minutes. */
const WAYS = {
  chain: {
    flowfabric: [{ label: 'submitFlow, concurrency 500', settings: { worker: { concurrency: 500 } } }],
    'graphile-worker': GRAPHILE,
    'pg-boss': [BOSS_FLOW, BOSS_BY_HAND],
    dbos: [dbos('child workflows', { most: 400 }), dbos('steps of one workflow', { most: 1_000 })],
    bullmq: [BULLMQ],
  },
  all: {
    flowfabric: [{ label: 'submitFlow, concurrency 500', settings: { worker: { concurrency: 500 } } }],
    'graphile-worker': GRAPHILE,
    'pg-boss': [BOSS_FLOW],
    dbos: [dbos('child workflows', { most: 40 })],
    bullmq: [{ ...BULLMQ, label: `${BULLMQ.label}, added by the root` }],
  },
  any: {
    flowfabric: [
      {
        label: `submitFlow, 2 × concurrency ${RACE_CONCURRENCY}`,
        settings: { worker: { concurrency: RACE_CONCURRENCY } },
      },
    ],
    dbos: [
      dbos('queued child workflows, waitFirst every 20 ms, cancelWorkflows', {
        queue: { workerConcurrency: RACE_CONCURRENCY },
      }),
    ],
  },
};

function casesOf(bench, shape, { count, group }) {
  return bench.contenders.flatMap((contender) =>
    (WAYS[shape.kind][contender.name] ?? []).map(({ label, settings, most = count }) => ({
      contender,
      variant: { settings },
      key: keyOf(contender.name, label),
      group,
      label,
      count: jobs(bench, Math.min(count, most)),
      shape,
    })),
  );
}

function orderOf({ contender, variant, shape, count }, target) {
  const { settings } = variant;
  return { contender: contender.name, target, settings, shape, count, warmUp: WARM_UP[shape.kind] };
}

function inOneSeat(one, bench, name, more) {
  return withStore(bench, one, async (target) => {
    await settleStore(target, 'analysed');
    const order = { ...orderOf(one, target), ...more };
    return bench.watched(() => withSeats(1, ([seat]) => seat.call(SEAT, name, order)));
  });
}

async function rate(one, bench, { underWay, unit }) {
  const { ms } = await inOneSeat(one, bench, 'flowRate', { underWay });
  return { [unit]: (one.count / ms) * 1_000 };
}

/** One race after the other: the winner wins once all branches run, in both processes. */
async function raceAll(seats, order) {
  const desk = new Desk();
  for (const seat of seats) seat.onNews(({ n, what, at }) => desk.tell(n, what, at));
  for (const seat of seats) await seat.call(SEAT, 'openRace', order);
  const { size } = order.shape;
  const end = order.warmUp + order.count;
  for (let n = 0; n < end; n += 1) {
    await seats[0].call(SEAT, 'submitRace', { n });
    await desk.seen(n, 'begun', size);
    await Promise.all(seats.map((seat) => seat.call(SEAT, 'letWin', { n })));
    await Promise.all([desk.seen(n, 'end'), desk.seen(n, 'stopped', size - 1)]);
  }
  await Promise.all(seats.map((seat) => seat.call(SEAT, 'closeRace', {})));
  const sorted = (what) =>
    Array.from({ length: order.count }, (_, i) => order.warmUp + i)
      .map((n) => desk.at(n, what) - desk.at(n, 'over'))
      .toSorted((a, b) => a - b);
  const [join, losers] = ['end', 'stopped'].map(sorted);
  return {
    'p50 ms to the join': percentile(join, 50),
    'p95 ms to the join': percentile(join, 95),
    'p50 ms to the last loser': percentile(losers, 50),
    'p95 ms to the last loser': percentile(losers, 95),
  };
}

function race(one, bench) {
  return withStore(bench, one, async (target) => {
    await settleStore(target, 'analysed');
    return bench.watched(() => withSeats(RACE_PROCESSES, (seats) => raceAll(seats, orderOf(one, target))));
  });
}

function lower(...names) {
  return names.map((name) => ({ name, better: 'lower' }));
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const flowChain = {
  name: 'flow-chain',
  title: 'Chains of ten members, a second',
  metrics: [{ name: 'chains/s', better: 'higher' }],
  cases: (bench) =>
    casesOf(bench, CHAIN, {
      count: CHAINS[bench.options.size],
      group: `${CHAINS_UNDER_WAY} chains under way, one worker process`,
    }),
  run: (one, bench) => rate(one, bench, { underWay: CHAINS_UNDER_WAY, unit: 'chains/s' }),
};

/** @type {import('../harness/runner.mjs').Scenario} */
export const flowChainAlone = {
  name: 'flow-chain-alone',
  title: 'From the submit of a chain of ten to its last member',
  metrics: lower('p50 ms', 'p95 ms'),
  cases: (bench) =>
    casesOf(bench, CHAIN, { count: CHAINS_ALONE[bench.options.size], group: 'one chain at a time' }),
  run: (one, bench) => inOneSeat(one, bench, 'flowTime', { since: 'sent' }),
};

/** @type {import('../harness/runner.mjs').Scenario} */
export const flowJoin = {
  name: 'flow-join',
  title: 'From the end of a root through 100 branches to their join',
  metrics: lower('p50 ms', 'p95 ms'),
  cases: (bench) =>
    casesOf(bench, ALL, { count: JOINS_ALONE[bench.options.size], group: 'one flow at a time' }),
  run: (one, bench) => inOneSeat(one, bench, 'flowTime', { since: 'over' }),
};

/** @type {import('../harness/runner.mjs').Scenario} */
export const flowJoinRate = {
  name: 'flow-join-rate',
  title: 'Roots with 100 branches and their join, a second',
  metrics: [{ name: 'flows/s', better: 'higher' }],
  cases: (bench) =>
    casesOf(bench, ALL, {
      count: JOINS[bench.options.size],
      group: `${JOINS_UNDER_WAY} flows under way, one worker process`,
    }),
  run: (one, bench) => rate(one, bench, { underWay: JOINS_UNDER_WAY, unit: 'flows/s' }),
};

/** @type {import('../harness/runner.mjs').Scenario} */
export const flowAny = {
  name: 'flow-any',
  title: 'From the end of the first of 100 branches to the join, and to the AbortSignal of the last loser',
  metrics: lower(
    'p50 ms to the join',
    'p95 ms to the join',
    'p50 ms to the last loser',
    'p95 ms to the last loser',
  ),
  cases: (bench) =>
    casesOf(bench, ANY, {
      count: RACES[bench.options.size],
      group: 'one flow at a time, all branches running, two worker processes',
    }),
  run: race,
};
