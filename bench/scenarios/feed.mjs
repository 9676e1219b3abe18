/**
 * Ours only, because no other contender has a feed: what following costs the work, how soon an event arrives, and how
 * fast a subscriber catches up. Three scenarios, because each compares a different figure.
 */
import { jobs, pairs, thousands } from './cases.mjs';
import { catchUpRate } from './feed/catch-up.mjs';
import { drainFollowed } from './feed/drain.mjs';
import { deliveryLatency } from './feed/latency.mjs';

const JOBS = { quick: 5_000, full: 20_000 };
const READERS = [
  { readers: 0, label: 'off: nobody follows' },
  { readers: 1, label: 'on: 1 subscriber in another process' },
  { readers: 8, label: 'on: 8 subscribers in another process' },
];
const PER_SECOND = 2_000;
const PER_CALL = 20;
/** Each is renewed once a second. */
const PACED_LEASES = 2_000;
const FOR_MS = { quick: 3_000, full: 10_000 };
const LOG_LEASES = 1_000;
const LOG_ROUNDS = { quick: 20, full: 200 };

/** The variant that comes first in the other drains. */
function ours(bench, count) {
  return pairs(bench, 'batched', count).find(({ contender }) => contender.side === 'ours');
}

function drainCases(bench) {
  const pair = ours(bench, JOBS[bench.options.size]);
  const keyOfReaders = (readers) => `drain with ${readers}`;
  return READERS.map(({ readers, label }) => ({
    ...pair,
    key: keyOfReaders(readers),
    group: `backlog of ${thousands(pair.count)}, one worker process, analysed`,
    label,
    readers,
    ...(readers === 0 ? {} : { relativeTo: { key: keyOfReaders(0), label: 'on ÷ off' } }),
  }));
}

function latencyCases(bench) {
  const { contender } = ours(bench);
  const leases = jobs(bench, PACED_LEASES);
  const batch = Math.min(PER_CALL, leases);
  const group = `${thousands(PER_SECOND)} events a second, from the answer of the write`;
  const label = `renewals, ${batch} per call, 1 subscriber in another process`;
  const forMs = FOR_MS[bench.options.size];
  return [{ contender, key: 'delivery', group, label, leases, batch, perSecond: PER_SECOND, forMs }];
}

function catchUpCases(bench) {
  const { contender } = ours(bench);
  const leases = jobs(bench, LOG_LEASES);
  const rounds = LOG_ROUNDS[bench.options.size];
  const events = leases * rounds;
  const shared = { contender, leases, rounds, events, group: `${thousands(events)} events in the log` };
  const relativeTo = { key: 'all', label: 'filtered ÷ all' };
  return [
    { ...shared, key: 'all', label: 'no filter', filter: 'all' },
    {
      ...shared,
      key: 'selective',
      label: `by a tag of 1 in ${thousands(leases)}`,
      filter: 'selective',
      relativeTo,
    },
  ];
}

/** @type {import('../harness/runner.mjs').Scenario} */
export const feed = {
  name: 'feed',
  title: 'Work off a backlog while it is followed (ours only)',
  metrics: [
    { name: 'jobs/s', better: 'higher' },
    { name: 'latest event, ms', better: 'lower' },
  ],
  cases: drainCases,
  run: drainFollowed,
};

/** @type {import('../harness/runner.mjs').Scenario} */
export const feedLatency = {
  name: 'feed-latency',
  title: 'From a write to its subscriber (ours only)',
  metrics: [
    { name: 'p50 ms', better: 'lower' },
    { name: 'p99 ms', better: 'lower' },
    { name: 'p50 ms from the call', better: 'lower' },
    { name: 'events/s', better: 'higher' },
  ],
  cases: latencyCases,
  run: deliveryLatency,
};

/** @type {import('../harness/runner.mjs').Scenario} */
export const feedCatchUp = {
  name: 'feed-catch-up',
  title: 'Read a log from its beginning (ours only)',
  metrics: [{ name: 'events/s passed', better: 'higher' }],
  cases: catchUpCases,
  run: catchUpRate,
};
