/**
 * The one loop that runs all reconcilers: intervals with jitter, a ticket so that only one process runs each pass, a
 * time limit per pass, and counters. Losing a ticket, or two processes believing they hold it, does no harm: passes
 * are safe to run concurrently.
 */
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { ReconcilerReport } from '../../contract/operations.ts';
import type { EngineContext } from '../kit/context.ts';
import { forgetOldSetbacks, returnTickets, takeTickets, vacuumQueues } from './bookkeeping.sql.ts';
import type { Chore, Reconciler } from './reconciler.ts';
import { runPass, type PassReport } from './pass.ts';
import { forgetSilentWorkers } from './silent-workers.ts';

const TICK_MS = 500;
/** How long the ticket of a dead process blocks others. */
const HOLD_MS = 6_000;
const PASS_TIMEOUT_MS = 30_000;
const TIDY_EVERY_MS = 600_000;
/** Removed queue rows after which the queue tables are vacuumed: autovacuum runs once a minute at best. */
const VACUUM_AFTER_ROWS = 20_000;

export interface ReconcilerRunner {
  report(): ReconcilerReport[];
  /** Starts no more passes. */
  stop(): void;
  close(): Promise<void>;
}

interface Entry {
  name: string;
  everyMs: number;
  maxBatch: number;
  pass(batch: number, signal: AbortSignal): Promise<PassReport>;
  report: ReconcilerReport;
  dueAt: number;
  batch: number;
  running: Promise<void> | undefined;
}

export interface RunnerOptions {
  /** Longest a pass may take. Default 30 s. */
  passTimeoutMs?: number;
  /** Periodic work that belongs to no execution. */
  chores?: readonly Chore[];
}

export function startReconcilers(
  context: EngineContext,
  reconcilers: readonly Reconciler[],
  options: RunnerOptions = {},
): ReconcilerRunner {
  const holder = randomUUID();
  const passTimeoutMs = options.passTimeoutMs ?? PASS_TIMEOUT_MS;
  const stop = new AbortController();
  const entries = [
    ...reconcilers.map((reconciler) => toEntry(context, reconciler)),
    ...(options.chores ?? []).map((chore) => choreEntry(context, chore)),
  ];
  const names = entries.map((entry) => entry.name);
  let held = new Set<string>();
  let vacuuming: Promise<void> | undefined;
  let ticketAt = Number.NEGATIVE_INFINITY;
  let tidiedAt = Number.NEGATIVE_INFINITY;

  const tick = async (): Promise<void> => {
    const now = performance.now();
    if (now - ticketAt >= HOLD_MS / 2) {
      ticketAt = now;
      held = new Set(await takeTickets(context.database, names, holder, HOLD_MS));
    }
    if (held.size > 0 && now - tidiedAt >= TIDY_EVERY_MS) {
      tidiedAt = now;
      await forgetOldSetbacks(context.database);
      await forgetSilentWorkers(context);
    }
    for (const entry of entries) {
      const due = held.has(entry.name) && now >= entry.dueAt;
      if (due && entry.running === undefined) startPass(entry, passTimeoutMs, stop.signal);
    }
    // Not awaited: a vacuum may take a while, and lapsed leases must not wait for it.
    vacuuming ??= vacuumWhenNeeded(context).finally(() => {
      vacuuming = undefined;
    });
  };

  const looping = loop(tick, stop.signal);
  return {
    report: () => entries.map((entry) => ({ ...entry.report })),
    stop: () => stop.abort(),
    async close() {
      stop.abort();
      await looping;
      await Promise.all([...entries.map((entry) => entry.running), vacuuming]);
      // A ticket that is not returned lapses by itself.
      await returnTickets(context.database, holder).catch(() => undefined);
    },
  };
}

const NOTHING_DONE: PassReport = { acted: 0, skipped: 0, failed: 0, splits: 0, unfinished: 0 };

function newEntry(what: Pick<Entry, 'name' | 'everyMs' | 'maxBatch' | 'pass'>): Entry {
  return {
    ...what,
    report: { name: what.name, passes: 0, errors: 0, timeouts: 0, ...NOTHING_DONE },
    dueAt: Number.NEGATIVE_INFINITY,
    batch: what.maxBatch,
    running: undefined,
  };
}

function toEntry(context: EngineContext, reconciler: Reconciler): Entry {
  const { name, everyMs, batch: maxBatch } = reconciler;
  const pass = (batch: number, signal: AbortSignal) => runPass(context, reconciler, batch, signal);
  return newEntry({ name, everyMs, maxBatch, pass });
}

function choreEntry(context: EngineContext, chore: Chore): Entry {
  const { name, everyMs } = chore;
  return newEntry({
    name,
    everyMs,
    maxBatch: 1,
    pass: async (_batch, signal) => ({ ...NOTHING_DONE, acted: await chore.run(context, signal) }),
  });
}

function startPass(entry: Entry, timeoutMs: number, stopped: AbortSignal): void {
  const limit = AbortSignal.timeout(timeoutMs);
  const intervalMs = entry.everyMs * (0.9 + Math.random() * 0.2);
  entry.dueAt = performance.now() + intervalMs;
  entry.running = entry
    .pass(entry.batch, AbortSignal.any([stopped, limit]))
    .then((pass) => {
      addReport(entry.report, pass);
      if (pass.acted + pass.skipped + pass.failed === 0) entry.dueAt += intervalMs;
      else if (pass.unfinished > 0) entry.dueAt = performance.now();
    })
    .catch(() => {
      entry.report.errors += 1;
    })
    .finally(() => {
      entry.running = undefined;
      entry.report.passes += 1;
      // After a timeout, passes use smaller batches until one finishes in time again.
      if (limit.aborted) entry.report.timeouts += 1;
      entry.batch = limit.aborted
        ? Math.max(1, Math.floor(entry.batch / 2))
        : Math.min(entry.maxBatch, entry.batch * 2);
    });
}

function addReport(total: PassReport, pass: PassReport): void {
  total.acted += pass.acted;
  total.skipped += pass.skipped;
  total.failed += pass.failed;
  total.splits += pass.splits;
  total.unfinished += pass.unfinished;
}

async function vacuumWhenNeeded(context: EngineContext): Promise<void> {
  if (context.counters.dequeued < VACUUM_AFTER_ROWS) return;
  context.counters.dequeued = 0;
  // Without the privilege Postgres only warns; autovacuum then does it, later.
  await vacuumQueues(context.database).catch(() => undefined);
}

/** Ticks until stopped. A tick that throws met a database error; the next one tries again. */
async function loop(tick: () => Promise<void>, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await tick().catch(() => undefined);
    await delay(TICK_MS * (0.8 + Math.random() * 0.4), undefined, { signal }).catch(() => undefined);
  }
}
