/**
 * Subscribers in a separate process. They run no reconcilers, so that their cost is the feed alone. Everything here
 * runs in a seat. Nothing is judged here: what was received is returned, and the scenario compares it with the log.
 */
import { connect, decodeCursor } from '../../../dist/index.js';

const RECEIVE_LIMIT_MS = 60_000;

/** Milliseconds by a clock that all processes of a machine share, finer than the wall clock's. */
export function hostNow() {
  return performance.timeOrigin + performance.now();
}

/** Reads one subscription to the end, and can wait for a number of events. */
class Reader {
  received = 0;
  /** Positions that did not follow the one before. Meaningful only without a filter. */
  gaps = 0;
  #subscription;
  #take;
  #last;
  #wanted = Number.POSITIVE_INFINITY;
  #resolve;
  #reading;

  constructor(subscription, take) {
    this.#subscription = subscription;
    this.#take = take;
    this.#last = decodeCursor(subscription.cursor);
    this.#reading = this.#read();
    // Reported to whoever awaits it.
    this.#reading.catch(() => undefined);
  }

  async #read() {
    for await (const event of this.#subscription) {
      if (event.type === 'disconnected') continue;
      this.#take(event);
      if (event.position !== this.#last + 1n) this.gaps += 1;
      this.#last = event.position;
      this.received += 1;
      if (this.received === this.#wanted) this.#resolve();
    }
  }

  get last() {
    return this.#last;
  }

  async reach(count) {
    let timer;
    const reached = new Promise((resolve, reject) => {
      const sentence = () => `${this.received} of ${count} events were received in ${RECEIVE_LIMIT_MS} ms.`;
      timer = setTimeout(() => reject(new Error(sentence())), RECEIVE_LIMIT_MS);
      this.#resolve = resolve;
      this.#wanted = count;
      if (this.received >= count) resolve();
    });
    try {
      await Promise.race([reached, this.#reading]);
    } finally {
      clearTimeout(timer);
    }
    if (this.received < count) throw new Error(`The subscription ended after ${this.received} events.`);
  }
}

async function openReader(engine, options, take) {
  return new Reader(await engine.events.subscribe(options), take);
}

/** Opens a connection and, before it returns, subscriptions to everything from now on; each counts what it gets. */
export async function followAll({ target, readers }, seat) {
  seat.kept.engine = await connect({ databaseUrl: target.url, reconcile: 'off' });
  const opening = Array.from({ length: readers }, async () => {
    const tally = { counts: {}, behindMs: 0 };
    const reader = await openReader(seat.kept.engine, { from: 'now' }, (event) => {
      const name = `${event.family}/${event.type}`;
      tally.counts[name] = (tally.counts[name] ?? 0) + 1;
      tally.behindMs = Math.max(tally.behindMs, Date.now() - event.occurredAtMs);
    });
    return { reader, tally };
  });
  seat.kept.readers = await Promise.all(opening);
}

/** Once each has this many: what each received, and the largest delay after the event. */
export async function receivedByAll({ count }, seat) {
  const { readers, engine } = seat.kept;
  await Promise.all(readers.map(({ reader }) => reader.reach(count)));
  await engine.close();
  return readers.map(({ reader, tally }) => ({ ...tally, received: reader.received, gaps: reader.gaps }));
}

/** Opens one subscription that records when each event arrived. */
export async function followTimes({ target }, seat) {
  const arrivals = { ids: [], at: [] };
  const engine = await connect({ databaseUrl: target.url, reconcile: 'off' });
  const reader = await openReader(engine, { from: 'now' }, (event) => {
    arrivals.at.push(hostNow());
    arrivals.ids.push(event.executionId);
  });
  Object.assign(seat.kept, { engine, reader, arrivals });
}

/** Once it has this many: which executions' events arrived, and when, in the order of their positions. */
export async function timesOf({ count }, seat) {
  const { reader, engine, arrivals } = seat.kept;
  await reader.reach(count);
  await engine.close();
  return { ...arrivals, gaps: reader.gaps };
}

/** Opens the connection before the clock starts. */
export async function openConnection({ target }, seat) {
  seat.kept.engine = await connect({ databaseUrl: target.url, reconcile: 'off' });
}

/** Reads from the start until this many events arrived. Returns the position it reached, and how long that took. */
export async function catchUp({ filter, count }, seat) {
  const { engine } = seat.kept;
  const startedAt = performance.now();
  const reader = await openReader(engine, { from: 'beginning', filter }, () => undefined);
  await reader.reach(count);
  const ms = performance.now() - startedAt;
  const { received, gaps, last } = reader;
  await engine.close();
  return { ms, received, gaps, passed: Number(last) };
}
