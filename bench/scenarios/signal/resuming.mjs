/**
 * In a seat: a worker, and beside it a second connection that sends to it, as a web server would: signals or messages to
 * suspended executions, or fresh executions as the baseline. One process, so that one clock stamps both ends.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { connect, handle, startWorker, task } from '../../../dist/index.js';
import { percentile } from '../../harness/figures.mjs';

const SECRET = 'nothing but the bench is signed with this';
const CONCURRENCY = 500;
const TICK_MS = 1;
const COUNT_EVERY_MS = 100;
const QUIET_LIMIT_MS = 60_000;
const CALLERS = 32;
const SUBMIT_BATCH = 1_000;
/** Everything before is cold: connections, plans, code. */
const WARM_UP = 100;

/** What is sent, and when it was sent, acknowledged and begun. */
class Desk {
  /** Of those that are suspended: how each is reached. */
  addresses = new Map();
  #times = [];
  #begun = 0;

  begun(n) {
    this.#times[n].begunAt = performance.now();
    this.#begun += 1;
  }

  async send(n, call) {
    const times = { sentAt: performance.now() };
    this.#times[n] = times;
    await call(n);
    times.answeredAt = performance.now();
  }

  /** Waits until this many have begun. */
  quiet(count) {
    return until(
      () => this.#begun >= count,
      () => `${count - this.#begun} never began.`,
    );
  }

  /** Those that count, in milliseconds, sorted. The first may begin before its response arrives. */
  differences(from, since) {
    return this.#times
      .slice(from)
      .map((times) => times.begunAt - times[since])
      .toSorted((a, b) => a - b);
  }
}

async function until(isTrue, complaint) {
  const deadline = performance.now() + QUIET_LIMIT_MS;
  while (!(await isTrue())) {
    if (performance.now() > deadline) throw new Error(complaint());
    await delay(TICK_MS);
  }
}

const waiting = task('waiting');
const receiving = task('receiving');
const fresh = task('fresh');

/** Returns a function that sends the n-th, and one that stops. */
async function open({ target, what, count }) {
  const desk = new Desk();
  const options = { databaseUrl: target.url, signingSecret: SECRET };
  const engine = await connect(options);
  const worker = startWorker(engine, {
    concurrency: CONCURRENCY,
    handlers: [
      handle(waiting, async ({ n }, ctx) => {
        if (!ctx.resumed) desk.addresses.set(n, (await ctx.createWaitpoint('go')).token);
        await ctx.waitFor('go');
        desk.begun(n);
      }),
      handle(receiving, async ({ n }, ctx) => {
        if (!ctx.resumed) desk.addresses.set(n, ctx.executionId);
        await ctx.receive('go');
        desk.begun(n);
      }),
      handle(fresh, async ({ n }) => desk.begun(n)),
    ],
  });
  const sender = await connect({ ...options, listen: 'off', reconcile: 'off' });
  if (what === 'signal') await suspend(sender, desk, { kind: 'waiting', count });
  if (what === 'message') await suspend(sender, desk, { kind: 'receiving', count });
  const calls = {
    signal: (n) => sender.signal({ token: desk.addresses.get(n) }),
    message: (n) => sender.send(desk.addresses.get(n), 'go', { n }),
    submit: (n) => sender.executions.submit({ kind: 'fresh', payload: { n } }),
  };
  const stop = async () => {
    await worker.stop();
    await Promise.all([engine.close(), sender.close()]);
  };
  return { desk, call: calls[what], stop };
}

async function suspend(sender, desk, { kind, count }) {
  for (let n = 0; n < count; n += SUBMIT_BATCH) {
    const length = Math.min(SUBMIT_BATCH, count - n);
    await sender.executions.submit(
      Array.from({ length }, (_, index) => ({ kind, payload: { n: n + index } })),
    );
  }
  const complaint = () => 'Not all were suspended.';
  await until(() => desk.addresses.size >= count, complaint);
  // Counting them is work for the server: no more often than necessary.
  await until(
    async () => (await suspended(sender, kind)) >= count || void (await delay(COUNT_EVERY_MS)),
    complaint,
  );
}

async function suspended(sender, kind) {
  let found = 0;
  let cursor = null;
  do {
    const filter = { states: ['suspended'], kind };
    const page = await sender.executions.list({
      filter,
      limit: 1_000,
      ...(cursor === null ? {} : { cursor }),
    });
    found += page.executions.length;
    cursor = page.cursor;
  } while (cursor !== null);
  return found;
}

async function closed(desk, call, { first, end }) {
  let next = first;
  const caller = async () => {
    while (next < end) {
      const n = next;
      next += 1;
      await desk.send(n, call);
    }
  };
  await Promise.all(Array.from({ length: CALLERS }, caller));
}

/** At a fixed pace, regardless of the responses. */
async function paced(desk, call, { first, end, perSecond }) {
  const startedAt = performance.now();
  const calls = [];
  for (let sent = first; sent < end;) {
    const due = first + Math.floor(((performance.now() - startedAt) / 1_000) * perSecond);
    for (; sent < Math.min(due, end); sent += 1) calls.push(desk.send(sent, call));
    await delay(TICK_MS);
  }
  await Promise.all(calls);
}

/** Percentiles in milliseconds, at a steady pace. */
export async function resumeLatency({ target, what, count, perSecond }) {
  const end = WARM_UP + count;
  const { desk, call, stop } = await open({ target, what, count: end });
  try {
    await closed(desk, call, { first: 0, end: WARM_UP });
    await desk.quiet(WARM_UP);
    await paced(desk, call, { first: WARM_UP, end, perSecond });
    await desk.quiet(end);
    const [fromAnswer, fromCall] = ['answeredAt', 'sentAt'].map((since) => desk.differences(WARM_UP, since));
    return {
      'p50 ms': percentile(fromAnswer, 50),
      'p95 ms': percentile(fromAnswer, 95),
      'p50 ms from the call': percentile(fromCall, 50),
    };
  } finally {
    await stop();
  }
}

/** How many per second, with callers that each await their response, until the last has begun. */
export async function resumeRate({ target, what, count }) {
  const end = WARM_UP + count;
  const { desk, call, stop } = await open({ target, what, count: end });
  try {
    await closed(desk, call, { first: 0, end: WARM_UP });
    await desk.quiet(WARM_UP);
    const startedAt = performance.now();
    await closed(desk, call, { first: WARM_UP, end });
    await desk.quiet(end);
    return { 'begun/s': (count / (performance.now() - startedAt)) * 1_000 };
  } finally {
    await stop();
  }
}
