/**
 * Clocks of the stream scenarios: calls made one after the other, and frames sent at a fixed pace, regardless of the
 * responses. Knows no engine.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { percentile } from '../../harness/figures.mjs';

export const FRAME_BYTES = 200;
/** A contender that needs longer is judged by what it has done by then. */
const LIMIT_MS = 15_000;
const QUIET_LIMIT_MS = 60_000;
const TICK_MS = 5;

/** Milliseconds by a clock that all processes of a machine share, finer than the wall clock's. */
export function hostNow() {
  return performance.timeOrigin + performance.now();
}

/** This many calls, each awaited; `perCall` frames each. */
export async function timedCalls({ calls, perCall }, call) {
  const took = [];
  const startedAt = performance.now();
  while (took.length < calls && performance.now() - startedAt < LIMIT_MS) {
    const sentAt = performance.now();
    await call(took.length);
    took.push(performance.now() - sentAt);
  }
  return figuresOf(took, took.length * perCall, performance.now() - startedAt);
}

/** Exactly this many calls by several callers, each of which awaits its own. */
export async function timedCallers({ calls, callers }, call) {
  const took = [];
  let sent = 0;
  const startedAt = performance.now();
  const caller = async (place) => {
    while (sent < calls) {
      sent += 1;
      const sentAt = performance.now();
      await call(place);
      took.push(performance.now() - sentAt);
    }
  };
  await Promise.all(Array.from({ length: callers }, (_, place) => caller(place)));
  return figuresOf(took, took.length, performance.now() - startedAt);
}

function figuresOf(took, frames, ms) {
  const sorted = took.toSorted((a, b) => a - b);
  return {
    'frames/s': (frames / ms) * 1_000,
    'p50 ms a call': percentile(sorted, 50),
    'p99 ms a call': percentile(sorted, 99),
  };
}

/** A frame that carries its number and when it was sent. */
export function numbered(n, at) {
  return JSON.stringify({ n, at }).padEnd(FRAME_BYTES);
}

/** Sends `count` at a fixed pace. Each carries its number and when it was sent. */
export async function paced({ count, perSecond }, send) {
  const startedAt = performance.now();
  const sending = [];
  for (let n = 0; n < count; n += 1) {
    const wait = startedAt + (n * 1_000) / perSecond - performance.now();
    if (wait > 0) await delay(wait);
    sending.push(send(n, numbered(n, hostNow())));
  }
  await Promise.all(sending);
}

/** What readers received, and with which delay. */
export class Arrivals {
  #lateMs = [];
  #skipped;
  received = 0;

  /** Frames with a lower number are not timed: code and connections are cold. */
  constructor(skipped) {
    this.#skipped = skipped;
  }

  take(text) {
    const { n, at } = JSON.parse(text);
    this.received += 1;
    if (n >= this.#skipped) this.#lateMs.push(hostNow() - at);
  }

  async figures(expected) {
    const deadline = performance.now() + QUIET_LIMIT_MS;
    while (this.received < expected) {
      if (performance.now() > deadline) throw new Error(`${this.received} of ${expected} frames were read.`);
      await delay(TICK_MS);
    }
    if (this.received > expected) throw new Error(`${this.received} frames were read, not ${expected}.`);
    const sorted = this.#lateMs.toSorted((a, b) => a - b);
    return { 'p50 ms': percentile(sorted, 50), 'p99 ms': percentile(sorted, 99) };
  }
}
