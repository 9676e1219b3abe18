/**
 * In a seat: a worker, and beside it a second connection that submits flows to it, as a web server would. Flows one at
 * a time, many at once, and races over two processes. Knows no engine.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { loadContender } from '../../contenders/index.mjs';
import { percentile } from '../../harness/figures.mjs';
import { Desk } from './desk.mjs';

const PROBE_EVERY_MS = 5;
const SETTLE_LIMIT_MS = 120_000;

async function openFlows(order, desk) {
  const { openFlows: open } = await import(`./${order.contender}.mjs`);
  return open(order, desk);
}

/** Submits a flow and waits until its last member has begun. */
async function runOne(flows, desk, n) {
  desk.tell(n, 'sent');
  await flows.submit(n);
  await desk.seen(n, 'end');
}

/** The flows from `first` to `end`, with this many in flight: the next is submitted when one has ended. */
async function runMany(flows, desk, { first, end, underWay }) {
  let next = first;
  const lane = async () => {
    while (next < end) {
      const n = next;
      next += 1;
      await runOne(flows, desk, n);
    }
  };
  await Promise.all(Array.from({ length: Math.min(underWay, end - first) }, lane));
}

/** Waits until nothing is unsettled, then counts what is kept. */
async function settled(contender, target, expected) {
  const probe = await contender.openProbe(target);
  try {
    const deadline = performance.now() + SETTLE_LIMIT_MS;
    while ((await probe.unsettled()) > 0) {
      if (performance.now() > deadline) throw new Error('The last members are never settled.');
      await delay(PROBE_EVERY_MS);
    }
    const at = performance.now();
    const finished = await probe.finished();
    if (expected !== null && finished !== null && finished !== expected)
      throw new Error(`${finished} members are kept as finished, not ${expected}.`);
    return at;
  } finally {
    await probe.close();
  }
}

/** Flows per second, until the end of the last one is durable. */
export async function flowRate(order) {
  const { contender, target, count, warmUp, underWay } = order;
  const desk = new Desk();
  const flows = await openFlows(order, desk);
  const loaded = await loadContender(contender);
  try {
    await runMany(flows, desk, { first: 0, end: warmUp, underWay });
    const startedAt = performance.now();
    await runMany(flows, desk, { first: warmUp, end: warmUp + count, underWay });
    const kept = flows.perFlow === null ? null : (warmUp + count) * flows.perFlow;
    return { ms: (await settled(loaded, target, kept)) - startedAt };
  } finally {
    await flows.stop();
  }
}

/** Percentiles of flows that run alone, one after the other, from `since` to the start of the last member. */
export async function flowTime(order) {
  const { count, warmUp, since } = order;
  const desk = new Desk();
  const flows = await openFlows(order, desk);
  try {
    await runMany(flows, desk, { first: 0, end: warmUp + count, underWay: 1 });
    const took = Array.from(
      { length: count },
      (_, i) => desk.at(warmUp + i, 'end') - desk.at(warmUp + i, since),
    );
    const sorted = took.toSorted((a, b) => a - b);
    return { 'p50 ms': percentile(sorted, 50), 'p95 ms': percentile(sorted, 95) };
  } finally {
    await flows.stop();
  }
}

/** A worker of a race. From then on it reports what happened to which flow. */
export async function openRace(order, seat) {
  const desk = new Desk((n, what, at) => seat.say({ n, what, at }));
  Object.assign(seat.kept, { desk, flows: await openFlows(order, desk) });
}

export async function submitRace({ n }, seat) {
  await seat.kept.flows.submit(n);
}

/** Lets the winner win, if it runs here. */
export function letWin({ n }, seat) {
  seat.kept.desk.tell(n, 'go');
}

export async function closeRace(_, seat) {
  await seat.kept.flows.stop();
}
