/**
 * The worker: claims as much as it has room for, runs handlers, keeps their leases alive, and on stop finishes what it
 * can and hands the rest back. It knows the worker protocol and nothing below.
 */
import { randomUUID } from 'node:crypto';
import { EngineError } from '../contract/errors.ts';
import type { Claim, ClaimResult, Hint, WorkerPort, WorkerRegistration } from '../contract/protocol.ts';
import { msOf } from '../contract/shape/duration.ts';
import { LIMITS } from '../contract/limits.ts';
import { deadlineOf, LAST_WORD_MS, withDeadline, type StopOptions } from '../contract/stopping.ts';
import { ClaimGroups, nameOf, type ClaimGroup, type Limit } from './loop/claim-groups.ts';
import { handlersByName } from './handlers.ts';
import type { TaskHandler } from '../define/handlers.ts';
import { LeaseWatch } from './loop/lease-watch.ts';
import {
  MeasuredLease,
  Vitals,
  WorkerCounts,
  type WorkerHealth,
  type WorkerMetrics,
  type WorkerStats,
} from './metrics.ts';
import { WorkerLog } from './log/worker-log.ts';
import { checkOptions, DEFAULTS, MAX_CONCURRENCY, type Worker, type WorkerOptions } from './options.ts';
import { Registration } from './loop/registration.ts';
import { completeForOf, runHandler, type RunHost, type RunOutcome } from './run/run-handler.ts';
import { Runs } from './loop/runs.ts';
import { ignoreStrayRejections } from './loop/stray-rejections.ts';
import { WakeUp } from './loop/wake-up.ts';

/**
 * Longest interval at which a worker without free slots polls for due timers, once it knew of one. It polls sooner after
 * it fired some, or when another transaction held them.
 */
const MAX_FULL_POLL_MS = 1_000;
/** Leases held, as a multiple of the concurrency: of running handlers, and of outcomes being reported. */
const MAX_HELD = 2;

/** Starts a worker, which claims at once. */
export function runWorker(port: WorkerPort, options: WorkerOptions): Worker {
  const handlers = handlersByName(options?.handlers);
  checkOptions(options);
  return new ClaimLoop(port, handlers, options);
}

class ClaimLoop implements Worker {
  readonly workerInstanceId: string;
  readonly #port: WorkerPort;
  readonly #handlers: ReadonlyMap<string, TaskHandler>;
  readonly #groups: ClaimGroups;
  readonly #options: WorkerOptions;
  readonly #concurrency: number;
  readonly #leaseMs: number;
  readonly #leases: LeaseWatch;
  readonly #wakeUp: WakeUp;
  readonly #counts: WorkerCounts;
  readonly #vitals: Vitals;
  readonly #registration: Registration;
  readonly #startedAt = performance.now();
  readonly #runs = new Runs();
  readonly #host: RunHost<MeasuredLease>;
  /** Groups that got all they asked for: there may be more. Every exhausted limit has one of them under it. */
  readonly #hungry = new Set<ClaimGroup>();
  readonly #unwatch: () => void;
  readonly #stopIgnoringStrays: () => void;
  readonly #looping: Promise<void>;
  /** Releases in progress of claims that were never run. */
  readonly #givingBack = new Set<Promise<unknown>>();
  /** Handlers running now. */
  #handling = 0;
  /** Slots already promised to a claim in progress. */
  #asking = 0;
  #turn = 0;
  #fullPollMs: number = LIMITS.heldPollMs;
  #state: WorkerHealth['state'] = 'running';
  #stopping: Promise<void> | undefined;
  readonly #hurry = new AbortController();
  /** The deadline of the stop has passed, or the connection was closed: nothing can be claimed any more. */
  #late = false;

  constructor(port: WorkerPort, handlers: ReadonlyMap<string, TaskHandler>, options: WorkerOptions) {
    this.#port = port;
    this.#handlers = handlers;
    this.#options = options;
    this.#groups = new ClaimGroups(handlers, options.lanes, MAX_CONCURRENCY);
    this.#concurrency = options.concurrency ?? DEFAULTS.concurrency;
    this.#leaseMs = msOf(options.lease ?? DEFAULTS.leaseMs);
    this.workerInstanceId = `${options.workerId ?? DEFAULTS.workerId}-${randomUUID()}`;
    this.#leases = new LeaseWatch(port, this.#leaseMs, (error) => this.#failed('renewErrors', error));
    this.#wakeUp = new WakeUp(msOf(options.poll ?? DEFAULTS.pollMs));
    // No worker may have been running for a while: executions that have expired meanwhile must not be started.
    this.#wakeUp.dueIn(0);
    this.#counts = new WorkerCounts(handlers.keys());
    this.#host = {
      port,
      completeFor: completeForOf(port),
      log: new WorkerLog(options.log),
      middleware: options.middleware ?? [],
      handled: (lease) => this.#handled(lease),
      finished: (lease, outcome) => this.#finished(lease, outcome),
    };
    this.#unwatch = port.watch(this.#describe(), (hint) => this.#onHint(hint));
    this.#vitals = new Vitals();
    this.#stopIgnoringStrays = ignoreStrayRejections();
    this.#looping = this.#loop();
    this.#registration = new Registration(port, {
      describe: () => this.#describe(),
      onBeat: () => this.#host.log.eventLoop(this.#vitals.beat(), this.#leaseMs),
      onError: (error) => this.#reportError(error),
    });
    this.#host.log.started(this.#describe(), port);
  }

  get running(): number {
    return this.#runs.size;
  }

  get stats(): WorkerStats {
    return this.#counts.stats;
  }

  health(): WorkerHealth {
    return this.#vitals.read(this.#state, this.#runs.all);
  }

  metrics(): WorkerMetrics {
    const now = { slots: this.#concurrency, handling: this.#handling, running: this.running };
    return this.#counts.read(now, this.#runs.all);
  }

  #describe(): WorkerRegistration {
    const { workerId = DEFAULTS.workerId, version, lanes, capabilities } = this.#options;
    return {
      workerInstanceId: this.workerInstanceId,
      workerId,
      ...(version === undefined ? {} : { version }),
      kinds: [...this.#handlers.keys()],
      lanes: lanes?.map(nameOf),
      capabilities,
      concurrency: this.#concurrency,
      running: this.running,
      uptimeMs: Math.floor(performance.now() - this.#startedAt),
      stopping: this.#state !== 'running',
    };
  }

  #onHint(hint: Hint): boolean {
    if (hint.workers.includes(this.workerInstanceId) || hint.workers.includes('*')) this.#leases.checkNow();
    if (hint.dueInMs !== null) this.#wakeUp.dueIn(hint.dueInMs);
    if (hint.routes.length === 0) return false;
    this.#wakeUp.hint();
    // The task and lane are not known here: only what fits under every limit is certain to be claimed.
    const room = Math.min(this.#free(), ...this.#groups.groups.flatMap(roomsOf));
    return this.#stopping === undefined && room - this.#asking >= hint.count;
  }

  /** Outcomes being reported do not count, so that the next claim overlaps with them; but their number is bounded too. */
  #free(): number {
    return Math.min(this.#concurrency - this.#handling, this.#concurrency * MAX_HELD - this.#runs.size);
  }

  async #loop(): Promise<void> {
    while (this.#stopping === undefined && !this.#late) {
      const groups = this.#groups.groups.filter((group) => this.#room(group) > 0);
      if (groups.length === 0) {
        await this.#wakeUp.slot();
        await this.#fireWithoutRoom();
        continue;
      }
      const full = await this.#claimAll(groups);
      if (!full && this.#stopping === undefined && !this.#late) await this.#wakeUp.work();
    }
  }

  /** Due timers are fired before each claim. Without free slots there is none, and timers may be what frees a slot. */
  async #fireWithoutRoom(): Promise<void> {
    const isFull = this.#groups.groups.every((group) => this.#room(group) <= 0);
    if (!isFull || this.#late || !this.#wakeUp.takeDue()) return;
    try {
      const fired = await this.#port.fireTimers({ flows: 'leave' });
      this.#fullPollMs = fired > 0 ? LIMITS.heldPollMs : Math.min(this.#fullPollMs * 2, MAX_FULL_POLL_MS);
    } catch (error) {
      this.#fullPollMs = MAX_FULL_POLL_MS;
      this.#failed('claimErrors', error);
      if (error instanceof EngineError && error.code === 'closed') this.#close();
    }
    // Only a claim returns when the next timer is due, and none is made now.
    this.#wakeUp.dueIn(this.#fullPollMs);
  }

  /** How many a group may claim now. */
  #room(group: ClaimGroup): number {
    return Math.min(this.#free(), LIMITS.claimBatch, ...roomsOf(group));
  }

  /** Claims once for each group, starting with another one each time; returns whether any got all it asked for. */
  async #claimAll(groups: readonly ClaimGroup[]): Promise<boolean> {
    this.#turn += 1;
    this.#fullPollMs = LIMITS.heldPollMs / 2;
    const due = this.#wakeUp.takeDue();
    try {
      const fired = due ? await this.#port.fireTimers({ flows: 'leave' }) : undefined;
      let full = false;
      let passed = 0;
      const dues: number[] = [];
      for (let index = 0; index < groups.length; index += 1) {
        const group = groups[(index + this.#turn) % groups.length]!;
        const asked = this.#room(group);
        if (asked <= 0) continue;
        const { claims, nextDueInMs, passedBy } = await this.#claim(group, asked);
        passed += passedBy;
        if (nextDueInMs !== null) dues.push(nextDueInMs);
        if (claims.length >= asked) this.#hungry.add(group);
        else this.#hungry.delete(group);
        full ||= claims.length >= asked;
      }
      this.#wakeUp.noteFiring(fired === 0 && dues.includes(0) ? 'stuck' : 'moving');
      if (dues.length > 0) this.#wakeUp.dueIn(Math.min(...dues));
      this.#wakeUp.notePassedBy(passed);
      return full;
    } catch (error) {
      // An unavailable database is waited for like an empty queue.
      this.#failed('claimErrors', error);
      if (error instanceof EngineError && error.code === 'closed') this.#close();
      else if (due) this.#retryDue();
      return false;
    }
  }

  /** Nothing can be claimed any more; no timer may keep the process alive. */
  #close(): void {
    this.#late = true;
    this.#wakeUp.close();
  }

  async #claim(group: ClaimGroup, limit: number): Promise<ClaimResult> {
    this.#asking = limit;
    try {
      const sentAt = performance.now();
      const answer = await this.#port.claim({
        workerId: this.#options.workerId ?? DEFAULTS.workerId,
        workerInstanceId: this.workerInstanceId,
        kinds: group.kinds,
        ...(group.lanes === undefined ? {} : { lanes: group.lanes }),
        ...(this.#options.capabilities === undefined ? {} : { capabilities: this.#options.capabilities }),
        limit,
        leaseMs: this.#leaseMs,
      });
      this.#vitals.claimAnswered();
      for (const claim of answer.claims) this.#take(claim, sentAt);
      return answer;
    } finally {
      this.#asking = 0;
    }
  }

  #failed(counter: 'claimErrors' | 'renewErrors', error: unknown): void {
    this.stats[counter] += 1;
    if (counter === 'claimErrors') this.#vitals.claimFailed();
    this.#reportError(error);
  }

  #reportError(error: unknown): void {
    const { onError } = this.#options;
    if (onError === undefined) return this.#host.log.trouble(error);
    try {
      onError(error);
    } catch {
      // An error of the error handler cannot be reported.
    }
  }

  /** The timers are not fired yet; an unavailable database is asked less and less often. */
  #retryDue(): void {
    this.#wakeUp.noteFiring('stuck');
    this.#wakeUp.dueIn(0);
  }

  /**
   * A claim is given back without being run if it arrives after the stop, or if it exceeds a limit, which happens when
   * the lost reply of an earlier claim is recovered.
   */
  #take(claim: Claim, sentAt: number): void {
    const limits = this.#groups.limitsFor(claim);
    if (this.#late || (limits.length > 0 && !limits.every((limit) => limit.free > 0))) this.#giveBack(claim);
    else this.#start(claim, sentAt, limits);
  }

  #giveBack(claim: Claim): void {
    const given = this.#port
      .release(claim)
      .catch(() => undefined)
      .finally(() => this.#givingBack.delete(given));
    this.#givingBack.add(given);
  }

  #start(claim: Claim, sentAt: number, limits: readonly Limit[]): void {
    this.#counts.count(claim.kind, 'claimed');
    const lease = new MeasuredLease(claim, sentAt, limits);
    this.#leases.add(lease);
    this.#handling += 1;
    for (const limit of limits) limit.take();
    this.#runs.add(lease);
    runHandler(this.#host, lease, this.#handlers.get(claim.kind)!);
  }

  #handled(lease: MeasuredLease): void {
    const { limits } = lease;
    lease.isHandled = true;
    this.#handling -= 1;
    this.#counts.handled(lease.claim.kind, lease.heldMs);
    for (const limit of limits) limit.giveBack();
    this.#wakeUp.freed();
    if (limits.length > 0) this.#feedHungry(limits);
  }

  /** The loop may be waiting for work of other groups that have free slots; for this group there may be some already. */
  #feedHungry(limits: readonly Limit[]): void {
    const isFed = (group: ClaimGroup): boolean => group.limits.some((limit) => limits.includes(limit));
    if ([...this.#hungry].some(isFed)) this.#wakeUp.ring();
  }

  #finished(lease: MeasuredLease, outcome: RunOutcome): void {
    // What was handed back is counted as released, not as lost.
    if (outcome !== 'lost' || lease.lostBy !== 'shutdown')
      this.#counts.count(lease.claim.kind, outcome === 'retry_scheduled' ? 'retryScheduled' : outcome);
    if (outcome === 'lost') this.#host.log.lost(lease, () => this.#vitals.longestDelayMs);
    this.#finish(lease);
  }

  #finish(lease: MeasuredLease): void {
    // Stops what the handler may have left running.
    lease.stopHandler('ended');
    this.#leases.remove(lease);
    this.#runs.remove(lease);
    this.#wakeUp.freed();
  }

  stop(options: StopOptions = {}): Promise<void> {
    const deadlineMs = deadlineOf(options, DEFAULTS.stopDeadlineMs);
    if (this.#stopping === undefined) this.#stopping = this.#drain(deadlineMs);
    // Called again with less time, as by a second Ctrl-C: the earlier deadline counts.
    else if (deadlineMs !== Infinity) setTimeout(() => this.#hurry.abort(), deadlineMs).unref();
    return this.#stopping;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  async #drain(deadlineMs: number): Promise<void> {
    this.#state = 'stopping';
    if (this.running > 0) this.#registration.refresh();
    this.#unwatch();
    this.#wakeUp.close();
    const finished = this.#looping.then(() => this.#runs.settled());
    await Promise.race([withDeadline(finished, deadlineMs), hurried(this.#hurry.signal)]);
    this.#late = true;
    // An outcome that is being reported is not handed back: the work would run again.
    const unhandled = this.#runs.all.filter((lease) => !lease.isHandled);
    const handBacks = unhandled.map((lease) => this.#handBack(lease));
    // Also waits for a claim in progress: its executions are given back, and the connection may be closed after that.
    const allBack = Promise.all([
      ...handBacks,
      finished,
      this.#looping.then(() => Promise.all(this.#givingBack)),
    ]);
    await Promise.all([withDeadline(allBack, LAST_WORD_MS), this.#registration.close()]);
    this.#vitals.close();
    this.#host.log.close();
    this.#stopIgnoringStrays();
    this.#state = 'stopped';
  }

  /** The attempt does not count as failed: the next worker continues it at once. */
  async #handBack(lease: MeasuredLease): Promise<void> {
    if (lease.isTrusted()) {
      lease.lose('shutdown');
      const answer = await this.#port.release(lease.claim).catch(() => undefined);
      if (answer?.outcome === 'released') this.#counts.count(lease.claim.kind, 'released');
    }
    this.#finish(lease);
  }
}

function roomsOf(group: ClaimGroup): number[] {
  return group.limits.map((limit) => limit.free);
}

function hurried(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true });
  });
}
