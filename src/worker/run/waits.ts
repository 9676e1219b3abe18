/**
 * What a handler waits for without working: sleeps, children and signals. Short waits are waited for here. When no work
 * is in progress and all that is left takes long, the execution is paused, or suspended if it waits for signals: the
 * worker is freed, the handler is stopped, and it runs again from the top when it can continue. Signals arrive in the
 * database and not here: while the worker cannot be freed they are polled.
 */
import type { WorkerPort } from '../../contract/protocol.ts';
import type { PauseOutcome, PauseRequest } from '../../contract/steps.ts';
import { EngineError } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { SuspendOutcome, SuspendRequest, WaitEnd } from '../../contract/signals.ts';
import { insist, isHopeless } from './insist.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { callAfter } from './long-timer.ts';
import type { SignalWait } from './wait-for.ts';
import { TaskAborted } from '../task.ts';
import { whenAborted } from '../../model/aborting.ts';

/** Waits shorter than this are not worth a pause. */
const PATIENCE_MS = 250;
/**
 * After something happened, a remaining wait may be the rest of a Promise.all, or the loser of a Promise.race beside
 * work that is invisible here: it causes no pause for this long.
 */
export const LEFTOVER_PATIENCE_MS = 5_000;
/** Interval between polls for signals while other work occupies the worker. The first one is after PATIENCE_MS. */
const POLL_MS = 1_000;

interface Wait {
  /** On the monotonic clock; undefined when it has no due time. */
  dueAt: number | undefined;
  /** Children that have not finished, as far as is known here; all of them are waited for. */
  children: ReadonlySet<string>;
  signals: SignalWait | undefined;
  /** The outcome of the wait for signals. */
  outcome: WaitEnd | undefined;
  impatient: boolean;
  /** What it waited for has happened. */
  isFinished: boolean;
  /** Cancel the timers: of its due time, and of its patience. */
  callOff: (() => void) | undefined;
  calmed: (() => void) | undefined;
  resolve(): void;
  reject(error: unknown): void;
}

const NEW_WAIT: Omit<Wait, 'resolve' | 'reject'> = {
  dueAt: undefined,
  children: new Set(),
  signals: undefined,
  outcome: undefined,
  impatient: false,
  isFinished: false,
  callOff: undefined,
  calmed: undefined,
};

/** What a pause must know about the rest of the run. */
export interface Beside {
  /** Resolves when the run's output and the order of its outcomes so far are stored; undefined when they are. */
  stored(): Promise<void> | undefined;
  /** Whether an outcome is about to be delivered to the handler. */
  isHandingOver(): boolean;
}

export class Waits {
  readonly #port: WorkerPort;
  readonly #lease: HeldLease;
  readonly #beside: Beside;
  readonly #waits = new Set<Wait>();
  #busy = 0;
  #pausing: Promise<void> | undefined;
  #considering = false;
  #polling = false;
  #callOffPoll: (() => void) | undefined;
  #happenedAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(port: WorkerPort, lease: HeldLease, beside: Beside) {
    this.#port = port;
    this.#lease = lease;
    this.#beside = beside;
  }

  /** Runs work: there is no pause while it lasts, and afterwards the handler may continue. */
  async during<Value>(work: () => Promise<Value>): Promise<Value> {
    try {
      return await this.busyWith(work);
    } finally {
      this.happened();
    }
  }

  /** Runs something that only prepares a wait. */
  async busyWith<Value>(work: () => Promise<Value>): Promise<Value> {
    this.#busy += 1;
    try {
      await this.#pausing;
      this.#lease.throwIfStopped();
      if (this.#closed) throw new TaskAborted('ended');
      return await work();
    } finally {
      this.#busy -= 1;
      this.consider();
    }
  }

  /** `askedAt`: when the handler called; what has happened since may let it continue. */
  async sleep(ms: number, askedAt: number): Promise<void> {
    await this.#add({ dueAt: performance.now() + ms }, { ms, patienceMs: this.#patienceSince(askedAt) });
  }

  /**
   * Resolves when `ended` does. A pause would wait for the children in `open`; those that finish are removed from it.
   */
  async children(open: ReadonlySet<string>, ended: Promise<unknown>): Promise<void> {
    await this.#add({ children: open }, { ended });
  }

  /** Resolves when the database reports the outcome. */
  async signals(signals: SignalWait, askedAt: number): Promise<WaitEnd> {
    if (this.#forSignals().length >= LIMITS.waits) {
      const sentence = `An execution can have at most ${LIMITS.waits} open waits; combine conditions with anyOf or allOf.`;
      throw new EngineError('invalid_step', sentence);
    }
    this.#pollAfter(PATIENCE_MS);
    const { outcome } = await this.#add({ signals }, { patienceMs: this.#patienceSince(askedAt) });
    return outcome!;
  }

  /** The handler has finished: what it left behind is no longer waited for. */
  close(): void {
    this.#closed = true;
    this.#callOffPoll?.();
    for (const wait of this.#waits) wait.reject(new TaskAborted('ended'));
  }

  #patienceSince(askedAt: number): number {
    return this.#happenedAt >= askedAt ? LEFTOVER_PATIENCE_MS : 0;
  }

  async #add(
    what: Partial<Pick<Wait, 'dueAt' | 'children' | 'signals'>>,
    until: { ms?: number; ended?: Promise<unknown>; patienceMs?: number },
  ): Promise<Wait> {
    const { signal } = this.#lease;
    this.#lease.throwIfStopped();
    let stop!: () => void;
    let wait!: Wait;
    try {
      await new Promise<void>((resolve, reject) => {
        wait = { ...NEW_WAIT, ...what, resolve, reject };
        stop = whenAborted(signal, () => reject(signal.reason as Error));
        until.ended?.then(() => this.#finish(wait), reject);
        this.#waits.add(wait);
        this.#wait(wait, until.ms, until.patienceMs ?? PATIENCE_MS);
      });
      return wait;
    } finally {
      wait.callOff?.();
      wait.calmed?.();
      stop();
      this.#waits.delete(wait);
      this.happened();
    }
  }

  /** The handler may be continuing: what is left is no reason to pause for a while. */
  happened(): void {
    this.#happenedAt = performance.now();
    if (this.#closed || this.#lease.lostBy !== undefined) return;
    for (const wait of this.#waits) this.#calmDown(wait, LEFTOVER_PATIENCE_MS);
  }

  #calmDown(wait: Wait, ms: number): void {
    wait.impatient = false;
    wait.calmed?.();
    wait.calmed = callAfter(ms, () => this.#turnImpatient(wait));
  }

  /** A long sleep has a timer here too: beside work that takes longer, or inside a step, no pause ends it. */
  #wait(wait: Wait, ms: number | undefined, patienceMs: number): void {
    if (ms === undefined) return this.#calmDown(wait, patienceMs);
    wait.callOff = callAfter(ms, () => this.#finish(wait));
    if (ms > PATIENCE_MS) this.#calmDown(wait, patienceMs);
  }

  /** While a pause is in progress nothing resumes: it decides whether the worker keeps the execution. */
  #finish(wait: Wait): void {
    wait.isFinished = true;
    if (this.#pausing === undefined) wait.resolve();
  }

  #turnImpatient(wait: Wait): void {
    wait.impatient = true;
    this.consider();
  }

  /** Pauses when only long waits are left. Decided a turn later: code that runs now may still start something. */
  consider(): void {
    if (this.#considering) return;
    this.#considering = true;
    setImmediate(() => {
      this.#considering = false;
      if (this.#pausing !== undefined || this.#polling || !this.#mayPause()) return;
      this.#pausing = this.#pause().finally(() => this.#goOn());
    });
  }

  #goOn(): void {
    this.#pausing = undefined;
    for (const wait of this.#waits) if (wait.isFinished) wait.resolve();
    this.consider();
  }

  #mayPause(): boolean {
    if (this.#closed || this.#busy > 0 || this.#waits.size === 0 || this.#beside.isHandingOver())
      return false;
    return [...this.#waits].every((wait) => wait.impatient && !wait.isFinished);
  }

  async #pause(): Promise<void> {
    try {
      const stored = this.#beside.stored();
      if (stored !== undefined) {
        await stored;
        if (!this.#mayPause()) return;
      }
      // Once sent, it may have happened: only the reply to the same request tells whether it did.
      const request = pauseRequestOf([...this.#waits]);
      const signals = signalsRequestOf(this.#forSignals());
      const { claim } = this.#lease;
      const ask = (): Promise<PauseOutcome | SuspendOutcome> =>
        signals === undefined
          ? this.#port.pause(claim, request)
          : this.#port.suspend(claim, { ...request, ...signals });
      this.#answered(await insist(this.#lease, ask));
    } catch (error) {
      // A lost lease has already aborted the handler; any other error is thrown to it.
      if (!(error instanceof TaskAborted)) for (const wait of this.#waits) wait.reject(error);
    }
  }

  #answered(answer: PauseOutcome | SuspendOutcome): void {
    switch (answer.outcome) {
      case 'already_satisfied':
        return this.#signalled(answer.ended);
      case 'due':
        return this.#beginAgain();
      case 'open':
        return;
      case 'paused':
      case 'suspended':
        return this.#lease.lose('paused');
      default:
        this.#lease.refused(answer);
    }
  }

  #signalled(ended: readonly { name: string; key: string; end: WaitEnd }[]): void {
    for (const { name, key, end } of ended) {
      const wait = this.#forSignals().find(
        ({ signals }) => signals?.request.name === name && signals.request.key === key,
      );
      if (wait === undefined) continue;
      wait.outcome = end;
      this.#finish(wait);
    }
  }

  /** Children have finished whose outcomes have not arrived here yet: waits for them once more. */
  #beginAgain(): void {
    for (const wait of this.#waits) {
      if (wait.children.size > 0) this.#calmDown(wait, PATIENCE_MS);
    }
  }

  #forSignals(): Wait[] {
    return [...this.#waits].filter((wait) => wait.signals !== undefined && !wait.isFinished);
  }

  #pollAfter(ms: number): void {
    this.#callOffPoll ??= callAfter(ms, () => {
      this.#callOffPoll = undefined;
      if (this.#closed || !this.#lease.isTrusted()) return;
      const waits = this.#forSignals();
      if (waits.length === 0) return;
      // A pause in progress asks for the same.
      if (this.#pausing !== undefined) return this.#pollAfter(POLL_MS);
      this.#polling = true;
      void this.#poll(waits).finally(() => {
        this.#polling = false;
        if (!this.#closed) this.#pollAfter(POLL_MS);
        this.consider();
      });
    });
  }

  async #poll(waits: readonly Wait[]): Promise<void> {
    try {
      const request = { ...signalsRequestOf(waits)!, mode: 'poll' as const };
      const answer = await this.#port.suspend(this.#lease.claim, request);
      // The handler may have finished meanwhile: then the lease is needed to report its outcome.
      if (!this.#closed) this.#answered(answer);
    } catch (error) {
      // A transient error is gone at the next poll; any other would also be returned to the suspension.
      if (isHopeless(error)) for (const wait of waits) wait.reject(error);
    }
  }
}

function pauseRequestOf(waits: readonly Wait[]): PauseRequest {
  const dues = waits.flatMap((wait) => wait.dueAt ?? []);
  const families = waits.map((wait) => wait.children).filter((open) => open.size > 0);
  const children = [...new Set(families.flatMap((open) => [...open]))];
  // Several waits: any of them may let the handler continue, and none finishes sooner than that.
  const needed = Math.min(...families.map((open) => open.size));
  return {
    ...(dues.length === 0 ? {} : { wakeInMs: Math.max(0, Math.ceil(Math.min(...dues) - performance.now())) }),
    ...(children.length === 0 ? {} : { children: { executionIds: children, needed } }),
  };
}

/** The request for all waits for signals together, or undefined when there are none. */
function signalsRequestOf(waits: readonly Wait[]): SuspendRequest | undefined {
  const signals = waits.flatMap((wait) => wait.signals ?? []);
  if (signals.length === 0) return undefined;
  return {
    waits: signals.map(({ request }) => request),
    waitpoints: signals.flatMap(({ waitpoints }) => waitpoints),
  };
}

/**
 * A handler that starts two things and awaits only the first must not end the process when both are aborted. What it
 * awaits still rejects.
 */
export function forgiven<Value>(begin: () => Promise<Value>): Promise<Value> {
  const begun = begin();
  begun.catch(() => undefined);
  return begun;
}
