/**
 * The worker: claims as much as it has room for, runs handlers, keeps their leases alive, and on stop finishes what it
 * can and hands the rest back. It knows the Engine interface and nothing below.
 */
import { randomUUID } from 'node:crypto';
import { EngineError } from '../contract/errors.ts';
import type { Claim, Engine, Hint } from '../contract/engine.ts';
import { LIMITS } from '../contract/limits.ts';
import { HeldLease, LeaseWatch } from './lease-watch.ts';
import { runHandler, type RunEnd } from './run-handler.ts';
import type { Handler } from './task.ts';
import { WakeUp } from './wake-up.ts';

export interface WorkerOptions {
  /** By kind. The worker claims only kinds it has handlers for. */
  handlers: Readonly<Record<string, Handler>>;
  /** Executions run at the same time. Default 10. */
  concurrency?: number;
  /** How long the worker may be silent before others take over. Default 30 s. */
  leaseMs?: number;
  /** Default: every lane. */
  lanes?: readonly string[];
  capabilities?: readonly string[];
  /** Name of the deployment this worker belongs to. Default `worker`. */
  workerId?: string;
  /** Longest time between two looks when no hint comes. Default 2 s. */
  pollMs?: number;
  /** Hears of every claim or renewal that failed. The worker goes on by itself; this is for logs and alarms. */
  onError?: (error: unknown) => void;
}

export interface WorkerStats {
  claimed: number;
  completed: number;
  failed: number;
  retryScheduled: number;
  /** Runs whose lease was gone before they could report. */
  lost: number;
  released: number;
  /** Calls that failed at the database; `onError` hears why. */
  claimErrors: number;
  renewErrors: number;
}

export interface StopOptions {
  /** How long running handlers may go on before their work is handed back. Default 10 s; Infinity waits for all. */
  deadlineMs?: number;
}

export interface Worker {
  readonly workerInstanceId: string;
  readonly running: number;
  readonly stats: Readonly<WorkerStats>;
  /** Stops claiming, waits for handlers, hands back what is not finished by the deadline. */
  stop(options?: StopOptions): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

const DEFAULTS = {
  concurrency: 10,
  leaseMs: 30_000,
  workerId: 'worker',
  pollMs: 2_000,
  stopDeadlineMs: 10_000,
};

/** Most handlers one process may run at once; beyond that, start another process. */
const MAX_CONCURRENCY = 100_000;
const MAX_POLL_MS = 3_600_000;
const MAX_STOP_MS = 86_400_000;
/** Leases held, as a multiple of the concurrency: those running and those whose end is being reported. */
const MAX_HELD = 2;
/** A database that does not answer must not keep a process from ending; what is not given back lapses. */
const HAND_BACK_LIMIT_MS = 5_000;

/** Starts claiming at once. Options are checked here, so that a wrong one is heard of by who gave it. */
export function startWorker(engine: Engine, options: WorkerOptions): Worker {
  const kinds = Object.keys(options?.handlers ?? {});
  if (kinds.length === 0) {
    throw new EngineError('invalid_input', 'handlers must name at least one kind.', { field: 'handlers' });
  }
  for (const kind of kinds) checkHandler(options.handlers[kind], kind);
  checkWorkerId(options.workerId ?? DEFAULTS.workerId);
  checkRange(options.concurrency ?? DEFAULTS.concurrency, 'concurrency', 1, MAX_CONCURRENCY);
  checkRange(options.leaseMs ?? DEFAULTS.leaseMs, 'leaseMs', LIMITS.leaseMsMin, LIMITS.leaseMsMax);
  checkRange(options.pollMs ?? DEFAULTS.pollMs, 'pollMs', 1, MAX_POLL_MS);
  return new ClaimLoop(engine, kinds, options);
}

function checkHandler(handler: unknown, kind: string): void {
  if (typeof handler === 'function') return;
  const field = `handlers.${kind}`;
  throw new EngineError('invalid_input', `${field} must be a function.`, { field });
}

/** The instance id is the name, a dash and a uuid; together they must fit. */
function checkWorkerId(workerId: unknown): void {
  const maxBytes = LIMITS.workerNameBytes - 37;
  const fits = typeof workerId === 'string' && workerId.length > 0 && Buffer.byteLength(workerId) <= maxBytes;
  if (fits && !workerId.includes('\u0000')) return;
  throw new EngineError(
    'invalid_input',
    `workerId must be a text of 1 to ${maxBytes} bytes without \\u0000.`,
    {
      field: 'workerId',
    },
  );
}

function checkRange(value: number, field: string, min: number, max: number): void {
  if (Number.isInteger(value) && value >= min && value <= max) return;
  throw new EngineError('invalid_input', `${field} must be a whole number from ${min} to ${max}.`, { field });
}

class ClaimLoop implements Worker {
  readonly workerInstanceId: string;
  readonly stats: WorkerStats = {
    claimed: 0,
    completed: 0,
    failed: 0,
    retryScheduled: 0,
    lost: 0,
    released: 0,
    claimErrors: 0,
    renewErrors: 0,
  };
  readonly #engine: Engine;
  readonly #kinds: string[];
  readonly #handlers: Readonly<Record<string, Handler>>;
  readonly #options: WorkerOptions;
  readonly #concurrency: number;
  readonly #leaseMs: number;
  readonly #leases: LeaseWatch;
  readonly #wakeUp: WakeUp;
  readonly #runs = new Map<HeldLease, Promise<void>>();
  readonly #unwatch: () => void;
  readonly #looping: Promise<void>;
  /** Handlers running now. */
  #handling = 0;
  /** Room already promised to a claim under way. */
  #asking = 0;
  #stopping: Promise<void> | undefined;
  /** The time to stop is over; or the engine was closed, and nothing can be claimed any more. */
  #late = false;

  constructor(engine: Engine, kinds: string[], options: WorkerOptions) {
    this.#engine = engine;
    this.#kinds = kinds;
    this.#handlers = options.handlers;
    this.#options = options;
    this.#concurrency = options.concurrency ?? DEFAULTS.concurrency;
    this.#leaseMs = options.leaseMs ?? DEFAULTS.leaseMs;
    this.workerInstanceId = `${options.workerId ?? DEFAULTS.workerId}-${randomUUID()}`;
    this.#leases = new LeaseWatch(engine, this.#leaseMs, (error) => this.#failed('renewErrors', error));
    this.#wakeUp = new WakeUp(options.pollMs ?? DEFAULTS.pollMs);
    this.#unwatch = engine.watch({ ...options, kinds }, (hint) => this.#onHint(hint));
    this.#looping = this.#loop();
  }

  get running(): number {
    return this.#runs.size;
  }

  #onHint(hint: Hint): boolean {
    if (hint.workers.includes(this.workerInstanceId) || hint.workers.includes('*')) this.#leases.checkNow();
    if (hint.dueInMs !== null) this.#wakeUp.dueIn(hint.dueInMs);
    if (hint.routes.length === 0) return false;
    this.#wakeUp.ring();
    return this.#stopping === undefined && this.#free() - this.#asking >= hint.count;
  }

  /** Ends being reported do not count as running, so that the next claim overlaps with them; but they are bounded too. */
  #free(): number {
    return Math.min(this.#concurrency - this.#handling, this.#concurrency * MAX_HELD - this.#runs.size);
  }

  async #loop(): Promise<void> {
    while (this.#stopping === undefined && !this.#late) {
      const asked = Math.min(this.#free(), LIMITS.claimBatch);
      if (asked <= 0) {
        await this.#wakeUp.slot();
        continue;
      }
      const got = await this.#claim(asked);
      if (got < asked && this.#stopping === undefined && !this.#late) await this.#wakeUp.work();
    }
  }

  /** Claims once; answers how many came. A failing database is waited for like an empty queue. */
  async #claim(limit: number): Promise<number> {
    const due = this.#wakeUp.takeDue();
    this.#asking = limit;
    try {
      const fired = due ? await this.#engine.fireTimers() : undefined;
      const sentAt = performance.now();
      const { claims, nextDueInMs } = await this.#engine.claim({
        workerId: this.#options.workerId ?? DEFAULTS.workerId,
        workerInstanceId: this.workerInstanceId,
        kinds: this.#kinds,
        ...(this.#options.lanes === undefined ? {} : { lanes: this.#options.lanes }),
        ...(this.#options.capabilities === undefined ? {} : { capabilities: this.#options.capabilities }),
        limit,
        leaseMs: this.#leaseMs,
      });
      this.#wakeUp.noteFiring(fired === 0 && nextDueInMs === 0 ? 'stuck' : 'moving');
      if (nextDueInMs !== null) this.#wakeUp.dueIn(nextDueInMs);
      for (const claim of claims) this.#take(claim, sentAt);
      return claims.length;
    } catch (error) {
      this.#failed('claimErrors', error);
      if (error instanceof EngineError && error.code === 'closed') this.#late = true;
      if (due) this.#retryDue();
      return 0;
    } finally {
      this.#asking = 0;
    }
  }

  #failed(counter: 'claimErrors' | 'renewErrors', error: unknown): void {
    this.stats[counter] += 1;
    this.#options.onError?.(error);
  }

  /** The timers are still to be fired; a database that is away is asked less and less often. */
  #retryDue(): void {
    this.#wakeUp.noteFiring('stuck');
    this.#wakeUp.dueIn(0);
  }

  /** A claim whose answer comes after the stop was over is given back untouched. */
  #take(claim: Claim, sentAt: number): void {
    if (this.#late) this.#engine.release(claim).catch(() => undefined);
    else this.#start(claim, sentAt);
  }

  #start(claim: Claim, sentAt: number): void {
    this.stats.claimed += 1;
    const lease = new HeldLease(claim, sentAt);
    this.#leases.add(lease);
    this.#handling += 1;
    const run = runHandler(this.#engine, lease, this.#handlers[claim.kind]!, () => this.#handled())
      .then(
        (end: RunEnd) => this.#count(lease, end),
        () => this.#count(lease, 'lost'),
      )
      .finally(() => this.#finish(lease));
    this.#runs.set(lease, run);
  }

  #handled(): void {
    this.#handling -= 1;
    this.#wakeUp.freed();
  }

  /** What was handed back is counted there, not as lost. */
  #count(lease: HeldLease, end: RunEnd): void {
    if (lease.lostBy === 'shutdown') return;
    this.stats[end === 'retry_scheduled' ? 'retryScheduled' : end] += 1;
  }

  #finish(lease: HeldLease): void {
    this.#leases.remove(lease);
    this.#runs.delete(lease);
    this.#wakeUp.freed();
  }

  stop(options: StopOptions = {}): Promise<void> {
    const deadlineMs = options.deadlineMs ?? DEFAULTS.stopDeadlineMs;
    if (deadlineMs !== Infinity) checkRange(deadlineMs, 'deadlineMs', 0, MAX_STOP_MS);
    this.#stopping ??= this.#drain(deadlineMs);
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #drain(deadlineMs: number): Promise<void> {
    this.#unwatch();
    this.#wakeUp.close();
    const finished = this.#looping.then(() => Promise.all(this.#runs.values()));
    await withDeadline(finished, deadlineMs);
    this.#late = true;
    const handBacks = [...this.#runs.keys()].map((lease) => this.#handBack(lease));
    await withDeadline(Promise.all(handBacks), HAND_BACK_LIMIT_MS);
  }

  /** The attempt is not spent: the next worker continues it at once. */
  async #handBack(lease: HeldLease): Promise<void> {
    if (lease.isTrusted()) {
      lease.lose('shutdown');
      const answer = await this.#engine.release(lease.claim).catch(() => undefined);
      if (answer?.outcome === 'released') this.stats.released += 1;
    }
    this.#finish(lease);
  }
}

async function withDeadline(work: Promise<unknown>, deadlineMs: number): Promise<void> {
  if (deadlineMs === Infinity) return void (await work);
  let timer: NodeJS.Timeout | undefined;
  const deadline = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, deadlineMs);
  });
  await Promise.race([work, deadline]);
  clearTimeout(timer);
}
