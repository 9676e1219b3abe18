/**
 * What a worker measures about itself and returns as plain objects: counters, durations of handlers, and its health. All
 * of it is in memory; nothing here uses the database. Times are ages on the monotonic clock, so that they can be compared
 * with a limit whatever the host's clock says.
 */
import { monitorEventLoopDelay, type IntervalHistogram } from 'node:perf_hooks';
import type { Claim } from '../contract/protocol.ts';
import type { Limit } from './loop/claim-groups.ts';
import { HeldLease } from './loop/lease-watch.ts';

/** What a worker has counted since it started. */
export interface WorkerStats {
  claimed: number;
  completed: number;
  failed: number;
  retryScheduled: number;
  /** Runs that freed the worker to wait for a time, children, signals or messages, or that continued as a new run. */
  paused: number;
  /** Runs that lost their lease before they could report an outcome. */
  lost: number;
  released: number;
  /** Calls that failed at the database; `onError` gets the errors. */
  claimErrors: number;
  renewErrors: number;
}

/** How long handlers ran. */
export interface DurationHistogram {
  /** Upper bounds of the buckets, smallest first. */
  boundsMs: readonly number[];
  /** How many fell into each bucket. There is one more than there are bounds, for all that took longer. */
  counts: number[];
  count: number;
  sumMs: number;
}

/** The counters of one task of a worker. */
export interface KindMetrics extends Omit<WorkerStats, 'claimErrors' | 'renewErrors'> {
  durations: DurationHistogram;
}

/** What a worker has done so far, as numbers. */
export interface WorkerMetrics extends WorkerStats {
  /** Handlers that may run at once. */
  slots: number;
  /** Handlers that run now. */
  handling: number;
  /** Runs that have not finished: running handlers, and outcomes being reported. */
  running: number;
  /** Leases the worker believes it holds. */
  heldLeases: number;
  durations: DurationHistogram;
  /** By task, for the tasks the worker has handlers for. */
  kinds: Record<string, KindMetrics>;
}

/** The current health of a worker. */
export interface WorkerHealth {
  state: 'running' | 'stopping' | 'stopped';
  /** Whether the database responds to claims; if not, for how long it has not. */
  claiming: { outcome: 'ok' } | { outcome: 'failing'; forMs: number };
  /** Time since the last successful claim. Grows while every slot is taken, because nothing is claimed then. */
  lastClaimAgoMs: number | null;
  /** Time since the renewal, or grant, of the held lease that was renewed least recently. Null without leases. */
  oldestRenewalAgoMs: number | null;
  /** How late timers were, over the last 10 to 20 seconds. A stall longer than `lease` costs every lease. */
  eventLoopDelay: { p99Ms: number; maxMs: number };
}

const BOUNDS_MS: readonly number[] = [
  5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000, 1_800_000, 3_600_000,
];

type RunCounter = Exclude<keyof WorkerStats, 'claimErrors' | 'renewErrors'>;

const NO_RUNS = { claimed: 0, completed: 0, failed: 0, retryScheduled: 0, paused: 0, lost: 0, released: 0 };

class Durations {
  readonly #counts = Array.from({ length: BOUNDS_MS.length + 1 }, () => 0);
  #count = 0;
  #sumMs = 0;

  add(ms: number): void {
    let fits = 0;
    while (fits < BOUNDS_MS.length && ms > BOUNDS_MS[fits]!) fits += 1;
    this.#counts[fits]! += 1;
    this.#count += 1;
    this.#sumMs += ms;
  }

  read(): DurationHistogram {
    return { boundsMs: BOUNDS_MS, counts: [...this.#counts], count: this.#count, sumMs: this.#sumMs };
  }
}

/** The counters, in total and by task. */
export class WorkerCounts {
  readonly stats: WorkerStats = { ...NO_RUNS, claimErrors: 0, renewErrors: 0 };
  readonly #durations = new Durations();
  readonly #kinds: ReadonlyMap<string, { runs: Record<RunCounter, number>; durations: Durations }>;

  constructor(kinds: Iterable<string>) {
    this.#kinds = new Map(
      Array.from(kinds, (kind) => [kind, { runs: { ...NO_RUNS }, durations: new Durations() }]),
    );
  }

  count(kind: string, counter: RunCounter): void {
    this.stats[counter] += 1;
    const own = this.#kinds.get(kind);
    if (own !== undefined) own.runs[counter] += 1;
  }

  handled(kind: string, ms: number): void {
    this.#durations.add(ms);
    this.#kinds.get(kind)?.durations.add(ms);
  }

  read(
    now: Pick<WorkerMetrics, 'slots' | 'handling' | 'running'>,
    leases: Iterable<HeldLease>,
  ): WorkerMetrics {
    const kinds = Array.from(this.#kinds, ([kind, { runs, durations }]) => [
      kind,
      { ...runs, durations: durations.read() },
    ]);
    return {
      ...this.stats,
      ...now,
      heldLeases: [...leases].filter((lease) => lease.lostBy === undefined).length,
      durations: this.#durations.read(),
      kinds: Object.fromEntries(kinds) as Record<string, KindMetrics>,
    };
  }
}

/** A lease that also knows when it was granted, and what it counts against. */
export class MeasuredLease extends HeldLease {
  readonly limits: readonly Limit[];
  /** Where its run is kept. */
  place = -1;
  /** Its handler has returned or thrown; what is left is to report it. */
  isHandled = false;
  readonly #takenAt = performance.now();

  constructor(claim: Claim, sentAt: number, limits: readonly Limit[]) {
    super(claim, sentAt);
    this.limits = limits;
  }

  get heldMs(): number {
    return performance.now() - this.#takenAt;
  }
}

/** Whether claims succeed, and whether the event loop keeps up. */
export class Vitals {
  readonly #loop = new LoopDelay();
  #answeredAt: number | undefined;
  #failingSince: number | undefined;

  claimAnswered(): void {
    this.#answeredAt = performance.now();
    this.#failingSince = undefined;
  }

  claimFailed(): void {
    this.#failingSince ??= performance.now();
  }

  /** The longest delay of the event loop in the last 10 to 20 seconds. */
  get longestDelayMs(): number {
    return this.#loop.read().maxMs;
  }

  /** Drops samples of the event loop from before the previous call, and returns the longest delay until now. */
  beat(): number {
    const longest = this.longestDelayMs;
    this.#loop.turnOver();
    return longest;
  }

  close(): void {
    this.#loop.close();
  }

  read(state: WorkerHealth['state'], leases: Iterable<MeasuredLease>): WorkerHealth {
    const now = performance.now();
    let oldest: number | null = null;
    for (const lease of leases) {
      if (lease.lostBy === undefined) oldest = Math.max(oldest ?? 0, lease.unconfirmedMs);
    }
    return {
      state,
      claiming:
        this.#failingSince === undefined
          ? { outcome: 'ok' }
          : { outcome: 'failing', forMs: now - this.#failingSince },
      lastClaimAgoMs: this.#answeredAt === undefined ? null : now - this.#answeredAt,
      oldestRenewalAgoMs: oldest,
      eventLoopDelay: this.#loop.read(),
    };
  }
}

const SAMPLE_MS = 20;
const NS_PER_MS = 1_000_000;

/**
 * Two overlapping histograms: one that is reset misses its next sample, and that may be the very stall to report.
 */
class LoopDelay {
  #current = startSampling();
  #previous: IntervalHistogram | undefined;
  #closed = false;

  turnOver(): void {
    if (this.#closed) return;
    this.#previous?.disable();
    this.#previous = this.#current;
    this.#current = startSampling();
  }

  close(): void {
    this.#closed = true;
    this.#previous?.disable();
    this.#current.disable();
  }

  read(): WorkerHealth['eventLoopDelay'] {
    const both = this.#previous === undefined ? [this.#current] : [this.#previous, this.#current];
    return {
      p99Ms: Math.max(...both.map((histogram) => late(histogram, histogram.percentile(99)))),
      maxMs: Math.max(...both.map((histogram) => late(histogram, histogram.max))),
    };
  }
}

function startSampling(): IntervalHistogram {
  const histogram = monitorEventLoopDelay({ resolution: SAMPLE_MS });
  histogram.enable();
  return histogram;
}

/** A sample is the time between two ticks, and the interval itself is no delay. An empty histogram has no valid values. */
function late(histogram: IntervalHistogram, ns: number): number {
  return histogram.count === 0 ? 0 : Math.max(0, ns / NS_PER_MS - SAMPLE_MS);
}
