/**
 * The worker: claims as much as it has room for, runs handlers, keeps their leases alive, and on stop finishes what it
 * can and hands the rest back. It knows the worker protocol and nothing below.
 */
import { randomUUID } from 'node:crypto';
import { EngineError } from '../contract/errors.ts';
import type { Claim, ClaimResult, Hint, WorkerPort, WorkerRegistration } from '../contract/protocol.ts';
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
import { checkOptions, DEFAULTS, MAX_CONCURRENCY, SILENT, type WorkerOptions } from './options.ts';
import { Registration } from './loop/registration.ts';
import { runHandler, type RunEnd } from './run/run-handler.ts';
import { letGoOfStrays } from './loop/stray-rejections.ts';
import { WakeUp } from './loop/wake-up.ts';

/** A worker that runs in this process. */
export interface Worker {
  readonly workerInstanceId: string;
  readonly running: number;
  readonly stats: Readonly<WorkerStats>;
  /** How it is now, for a probe. */
  health(): WorkerHealth;
  /** What it has done so far, in numbers. */
  metrics(): WorkerMetrics;
  /**
   * Stops claiming, waits for handlers, hands back what is not finished by the deadline (10 s unless told otherwise). Resolves by the
   * deadline and one second, whether or not the database answers: what could not be handed back lapses.
   */
  stop(options?: StopOptions): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}

/** How often a worker without room looks for due timers, once it knew of one: soon after it fired some or somebody held them, then this rarely. */
const FULL_LOOK_MS = 1_000;
/** Leases held, as a multiple of the concurrency: those running and those whose end is being reported. */
const MAX_HELD = 2;

/** Starts claiming at once. */
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
  readonly #runs = new Map<MeasuredLease, Promise<void>>();
  /** Groups that got all they asked for: there may be more. A limit that is used up has one of them under it. */
  readonly #hungry = new Set<ClaimGroup>();
  readonly #unwatch: () => void;
  readonly #holdOnToStrays: () => void;
  readonly #looping: Promise<void>;
  /** Claims that are given back without having been run. */
  readonly #untouched = new Set<Promise<unknown>>();
  /** Handlers running now. */
  #handling = 0;
  /** Room already promised to a claim under way. */
  #asking = 0;
  #turn = 0;
  #fullLookMs: number = LIMITS.lookAgainMs;
  #state: WorkerHealth['state'] = 'running';
  #stopping: Promise<void> | undefined;
  readonly #hurry = new AbortController();
  /** The time to stop is over; or the engine was closed, and nothing can be claimed any more. */
  #late = false;

  constructor(port: WorkerPort, handlers: ReadonlyMap<string, TaskHandler>, options: WorkerOptions) {
    this.#port = port;
    this.#handlers = handlers;
    this.#options = options;
    this.#groups = new ClaimGroups(handlers, options.lanes, MAX_CONCURRENCY);
    this.#concurrency = options.concurrency ?? DEFAULTS.concurrency;
    this.#leaseMs = options.leaseMs ?? DEFAULTS.leaseMs;
    this.workerInstanceId = `${options.workerId ?? DEFAULTS.workerId}-${randomUUID()}`;
    this.#leases = new LeaseWatch(port, this.#leaseMs, (error) => this.#failed('renewErrors', error));
    this.#wakeUp = new WakeUp(options.pollMs ?? DEFAULTS.pollMs);
    // Nobody may have been awake for long: what is over by now must not be begun.
    this.#wakeUp.dueIn(0);
    this.#counts = new WorkerCounts(handlers.keys());
    this.#unwatch = port.watch(this.#describe(), (hint) => this.#onHint(hint));
    this.#vitals = new Vitals();
    this.#holdOnToStrays = letGoOfStrays();
    this.#looping = this.#loop();
    this.#registration = new Registration(port, {
      describe: () => this.#describe(),
      onBeat: () => this.#vitals.beat(),
      onError: (error) => this.#tell(error),
    });
  }

  get running(): number {
    return this.#runs.size;
  }

  get stats(): WorkerStats {
    return this.#counts.stats;
  }

  health(): WorkerHealth {
    return this.#vitals.read(this.#state, this.#runs.keys());
  }

  metrics(): WorkerMetrics {
    const now = { slots: this.#concurrency, handling: this.#handling, running: this.running };
    return this.#counts.read(now, this.#runs.keys());
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
    // Which task and lane the work is of is not known here: only what fits under every limit is surely taken.
    const room = Math.min(this.#free(), ...this.#groups.groups.flatMap(roomsOf));
    return this.#stopping === undefined && room - this.#asking >= hint.count;
  }

  /** Ends being reported do not count as running, so that the next claim overlaps with them; but they are bounded too. */
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

  /** A claim fires what is due before it; without room there is none, and what is due may be what fills the room. */
  async #fireWithoutRoom(): Promise<void> {
    const isFull = this.#groups.groups.every((group) => this.#room(group) <= 0);
    if (!isFull || this.#late || !this.#wakeUp.takeDue()) return;
    try {
      const fired = await this.#port.fireTimers({ flows: 'leave' });
      this.#fullLookMs = fired > 0 ? LIMITS.lookAgainMs : Math.min(this.#fullLookMs * 2, FULL_LOOK_MS);
    } catch (error) {
      this.#fullLookMs = FULL_LOOK_MS;
      this.#failed('claimErrors', error);
      if (error instanceof EngineError && error.code === 'closed') this.#close();
    }
    // When the next is due is told by claims, and none is made now.
    this.#wakeUp.dueIn(this.#fullLookMs);
  }

  /** How many a group may claim now. */
  #room(group: ClaimGroup): number {
    return Math.min(this.#free(), LIMITS.claimBatch, ...roomsOf(group));
  }

  /** Claims once for each group, in turns over who is first; answers whether any of them got all it asked for. */
  async #claimAll(groups: readonly ClaimGroup[]): Promise<boolean> {
    this.#turn += 1;
    this.#fullLookMs = LIMITS.lookAgainMs / 2;
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
      // A failing database is waited for like an empty queue.
      this.#failed('claimErrors', error);
      if (error instanceof EngineError && error.code === 'closed') this.#close();
      else if (due) this.#retryDue();
      return false;
    }
  }

  /** Nothing can be claimed any more; no timer may keep the process from ending. */
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
    this.#tell(error);
  }

  #tell(error: unknown): void {
    try {
      this.#options.onError?.(error);
    } catch {
      // Nowhere to report it: this was the place.
    }
  }

  /** The timers are still to be fired; a database that is away is asked less and less often. */
  #retryDue(): void {
    this.#wakeUp.noteFiring('stuck');
    this.#wakeUp.dueIn(0);
  }

  /**
   * Given back untouched: a claim whose answer comes after the stop was over, and one beyond a limit, which can come
   * when the answer of an earlier claim was lost and found.
   */
  #take(claim: Claim, sentAt: number): void {
    const limits = this.#groups.limitsFor(claim);
    const fits = limits.every((limit) => limit.free > 0);
    if (this.#late || !fits) this.#giveBack(claim);
    else this.#start(claim, sentAt, limits);
  }

  #giveBack(claim: Claim): void {
    const given = this.#port
      .release(claim)
      .catch(() => undefined)
      .finally(() => this.#untouched.delete(given));
    this.#untouched.add(given);
  }

  #start(claim: Claim, sentAt: number, limits: readonly Limit[]): void {
    this.#counts.count(claim.kind, 'claimed');
    const lease = new MeasuredLease(claim, sentAt);
    this.#leases.add(lease);
    this.#handling += 1;
    for (const limit of limits) limit.take();
    const run = runHandler(this.#port, lease, this.#handlers.get(claim.kind)!, {
      log: this.#options.log ?? SILENT,
      middleware: this.#options.middleware ?? [],
      onHandled: () => this.#handled(lease, limits),
    }).then(
      (end) => this.#over(lease, end),
      () => this.#over(lease, 'lost'),
    );
    this.#runs.set(lease, run);
  }

  #handled(lease: MeasuredLease, limits: readonly Limit[]): void {
    this.#handling -= 1;
    this.#counts.handled(lease.claim.kind, lease.heldMs);
    for (const limit of limits) limit.giveBack();
    this.#wakeUp.freed();
    // The loop may be waiting for work of other groups, which have room; this one's is known to be there.
    if (limits.length === 0) return;
    const isFed = (group: ClaimGroup): boolean => group.limits.some((limit) => limits.includes(limit));
    if ([...this.#hungry].some(isFed)) this.#wakeUp.ring();
  }

  #over(lease: MeasuredLease, end: RunEnd): void {
    // What was handed back is counted there, not as lost.
    if (lease.lostBy !== 'shutdown')
      this.#counts.count(lease.claim.kind, end === 'retry_scheduled' ? 'retryScheduled' : end);
    this.#finish(lease);
  }

  #finish(lease: MeasuredLease): void {
    // For what the handler may have left running.
    lease.tell('ended');
    this.#leases.remove(lease);
    this.#runs.delete(lease);
    this.#wakeUp.freed();
  }

  stop(options: StopOptions = {}): Promise<void> {
    const deadlineMs = deadlineOf(options, DEFAULTS.stopDeadlineMs);
    if (this.#stopping === undefined) this.#stopping = this.#drain(deadlineMs);
    // Asked again with less time, as by a second Ctrl-C: the sooner deadline counts.
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
    const finished = this.#looping.then(() => Promise.all(this.#runs.values()));
    await Promise.race([withDeadline(finished, deadlineMs), hurried(this.#hurry.signal)]);
    this.#late = true;
    const handBacks = [...this.#runs.keys()].map((lease) => this.#handBack(lease));
    // A claim under way is waited for as well: what it answers is given back, and the engine may be closed after that.
    const allBack = Promise.all([...handBacks, this.#looping.then(() => Promise.all(this.#untouched))]);
    await Promise.all([withDeadline(allBack, LAST_WORD_MS), this.#registration.close()]);
    this.#vitals.close();
    this.#holdOnToStrays();
    this.#state = 'stopped';
  }

  /** The attempt is not spent: the next worker continues it at once. */
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
