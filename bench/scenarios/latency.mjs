/**
 * From the submit call to the start of the handler, producer and worker in one process: at a steady 50 per second, and
 * at half of what the same process can submit and run at full speed. Each contender has its own half.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { loadContender } from '../contenders/index.mjs';
import { withStore } from '../harness/draining.mjs';
import { percentile } from '../harness/figures.mjs';
import { withSeats } from '../harness/seats.mjs';
import { settleStore } from '../harness/stores.mjs';
import { keyOf, pairs } from './cases.mjs';

const STEADY_PER_SECOND = 50;
const FOR_MS = { quick: 3_000, full: 5_000 };
const CAPACITY_MS = { quick: 1_500, full: 3_000 };
const CAPACITY_CALLERS = 32;
const WARM_UP_JOBS = 20;
const TICK_MS = 1;
const QUIET_LIMIT_MS = 30_000;
/** With more jobs waiting than this, the rate was not half the capacity, and the sample is refused. */
const WAITING_MAX = 50_000;

/** In a seat: returns percentiles in milliseconds, and the rate that was sustained. */
export async function measureLatency({ contender, target, settings, load, forMs, capacityMs }) {
  const loaded = await loadContender(contender);
  const desk = new Desk();
  const worker = await loaded.startWorker(target, settings, (n) => desk.begun(n));
  const producer = worker.producer ?? (await loaded.openProducer(target));
  try {
    desk.submitOne = (n) => producer.submitOne(n);
    await submitClosed(desk, { callers: 1, until: () => desk.submitted >= WARM_UP_JOBS });
    await desk.quiet();
    const rate = load === 'steady' ? STEADY_PER_SECOND : (await capacityOf(desk, capacityMs)) / 2;
    desk.waits = [];
    await submitOpen(desk, rate, forMs);
    await desk.quiet();
    const sorted = desk.waits.toSorted((a, b) => a - b);
    const at = (percent) => percentile(sorted, percent);
    return {
      'p50 ms': at(50),
      'p95 ms': at(95),
      'p99 ms': at(99),
      'jobs/s': sorted.length / (forMs / 1_000),
    };
  } finally {
    await producer.close();
    await worker.stop();
  }
}

/** Records when each job was submitted and how long it waited. */
class Desk {
  submitted = 0;
  waits = [];
  submitOne;
  #sent = new Map();

  async submit() {
    const n = this.submitted;
    this.submitted += 1;
    this.#sent.set(n, performance.now());
    await this.submitOne(n);
  }

  begun(n) {
    const sentAt = this.#sent.get(n);
    if (sentAt === undefined) return;
    this.#sent.delete(n);
    this.waits.push(performance.now() - sentAt);
  }

  get waiting() {
    return this.#sent.size;
  }

  /** Waits until every job has begun. */
  async quiet() {
    const deadline = performance.now() + QUIET_LIMIT_MS;
    while (this.#sent.size > 0) {
      if (performance.now() > deadline) throw new Error(`${this.#sent.size} jobs never began.`);
      await delay(TICK_MS);
    }
  }
}

/** Callers that each await their submit before the next. */
async function submitClosed(desk, { callers, until }) {
  const caller = async () => {
    while (!until()) await desk.submit();
  };
  await Promise.all(Array.from({ length: callers }, caller));
}

/** Jobs per second that were submitted and begun; the time until the last one began counts. */
async function capacityOf(desk, forMs) {
  const before = desk.submitted;
  const startedAt = performance.now();
  await submitClosed(desk, { callers: CAPACITY_CALLERS, until: () => performance.now() - startedAt > forMs });
  await desk.quiet();
  return ((desk.submitted - before) / (performance.now() - startedAt)) * 1_000;
}

/** Submits at a fixed rate, regardless of the responses. */
async function submitOpen(desk, perSecond, forMs) {
  const startedAt = performance.now();
  const calls = [];
  let sent = 0;
  for (let elapsed = 0; elapsed < forMs; elapsed = performance.now() - startedAt) {
    const due = Math.floor((Math.min(elapsed, forMs) / 1_000) * perSecond);
    for (; sent < due; sent += 1) calls.push(desk.submit());
    if (desk.waiting > WAITING_MAX)
      throw new Error(`It cannot keep up with ${perSecond.toFixed(0)} per second.`);
    await delay(TICK_MS);
  }
  await Promise.all(calls);
}

/** A quick run measures only ours under the second load: finding each capacity takes time. */
function measured(bench, load) {
  const all = pairs(bench, 'latency');
  const isShort = bench.options.size === 'quick' && load === 'half';
  return isShort ? all.filter(({ contender }) => contender.side === 'ours') : all;
}

const LOADS = [
  { load: 'steady', group: `${STEADY_PER_SECOND} per second` },
  { load: 'half', group: 'half of its own capacity' },
];

/** @type {import('../harness/runner.mjs').Scenario} */
export const latency = {
  name: 'latency',
  title: 'From submit to the start of the handler',
  metrics: [
    { name: 'p50 ms', better: 'lower' },
    { name: 'p95 ms', better: 'lower' },
    { name: 'p99 ms', better: 'lower' },
    { name: 'jobs/s', better: 'higher' },
  ],
  cases: (bench) =>
    LOADS.flatMap(({ load, group }) =>
      measured(bench, load).map((pair) => ({
        ...pair,
        key: keyOf(load, pair.contender.name, pair.label),
        group,
        load,
      })),
    ),
  run: (one, bench) =>
    withStore(bench, one, async (store) => {
      await settleStore(store, 'analysed');
      const { size } = bench.options;
      const order = {
        settings: one.variant.settings,
        load: one.load,
        forMs: FOR_MS[size],
        capacityMs: CAPACITY_MS[size],
      };
      return bench.watched(() =>
        withSeats(1, ([seat]) =>
          seat.call(import.meta.url, 'measureLatency', {
            ...order,
            contender: one.contender.name,
            target: store,
          }),
        ),
      );
    }),
};
