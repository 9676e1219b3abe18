/**
 * What a handler waits for without working: sleeps and children. Short waits are waited for here. When nothing else goes
 * on and all that is left takes long, the execution is paused: the worker is given up, the handler is stopped, and
 * it runs again from the top when there is something to go on with.
 */
import type { Engine, PauseRequest } from '../contract/engine.ts';
import { insist } from './insist.ts';
import { abortCodeFor, type HeldLease } from './lease-watch.ts';
import { callAfter } from './long-timer.ts';
import { TaskAborted } from './task.ts';

/** Waits shorter than this are not worth a pause. */
const PATIENCE_MS = 250;
/**
 * After something happened, what is still waited for may be the rest of a Promise.all, or the loser of a Promise.race
 * beside work this cannot see: it is left alone for so long.
 */
const LEFTOVER_PATIENCE_MS = 5_000;

interface Wait {
  /** On the monotonic clock; undefined when no time is waited for. */
  dueAt: number | undefined;
  /** Children that have not ended, as far as is known here; all of them are waited for. */
  children: ReadonlySet<string>;
  impatient: boolean;
  /** What was waited for has happened. */
  over: boolean;
  /** Call off the timers: of its end, and of its patience. */
  callOff: (() => void) | undefined;
  calmed: (() => void) | undefined;
  resolve(): void;
  reject(error: unknown): void;
}

export class Waits {
  readonly #engine: Engine;
  readonly #lease: HeldLease;
  readonly #waits = new Set<Wait>();
  #busy = 0;
  #pausing: Promise<void> | undefined;
  #considering = false;
  #happenedAt = Number.NEGATIVE_INFINITY;
  #closed = false;

  constructor(engine: Engine, lease: HeldLease) {
    this.#engine = engine;
    this.#lease = lease;
  }

  /** Runs something that is work: while it goes on there is no pause, and afterwards the handler may go on. */
  async during<Value>(work: () => Promise<Value>): Promise<Value> {
    try {
      return await this.busyWith(work);
    } finally {
      this.#happened();
    }
  }

  /** Runs what only prepares a wait. */
  async busyWith<Value>(work: () => Promise<Value>): Promise<Value> {
    this.#busy += 1;
    try {
      await this.#pausing;
      this.#lease.throwIfTold();
      if (this.#closed) throw new TaskAborted('ended');
      return await work();
    } finally {
      this.#busy -= 1;
      this.#consider();
    }
  }

  /** `askedAt`: when the handler asked for it; what has happened since may be what it goes on with. */
  sleep(ms: number, askedAt: number): Promise<void> {
    const patienceMs = this.#happenedAt >= askedAt ? LEFTOVER_PATIENCE_MS : 0;
    return this.#add({ dueAt: performance.now() + ms, children: new Set() }, ms, undefined, patienceMs);
  }

  /** Until `ended` says so. The children are what a pause would wait for; who ends is taken out of them. */
  children(open: ReadonlySet<string>, ended: Promise<unknown>): Promise<void> {
    return this.#add({ dueAt: undefined, children: open }, undefined, ended);
  }

  /** The handler is over: what it left behind is not waited for any more. */
  close(): void {
    this.#closed = true;
    for (const wait of this.#waits) wait.reject(new TaskAborted('ended'));
  }

  async #add(
    what: Pick<Wait, 'dueAt' | 'children'>,
    ms: number | undefined,
    ended?: Promise<unknown>,
    patienceMs = PATIENCE_MS,
  ): Promise<void> {
    const { signal } = this.#lease;
    this.#lease.throwIfTold();
    let onAbort!: () => void;
    let wait!: Wait;
    try {
      await new Promise<void>((resolve, reject) => {
        wait = {
          ...what,
          impatient: false,
          over: false,
          callOff: undefined,
          calmed: undefined,
          resolve,
          reject,
        };
        onAbort = () => reject(signal.reason as Error);
        signal.addEventListener('abort', onAbort, { once: true });
        ended?.then(() => this.#end(wait), reject);
        this.#waits.add(wait);
        this.#wait(wait, ms, patienceMs);
      });
    } finally {
      wait.callOff?.();
      wait.calmed?.();
      signal.removeEventListener('abort', onAbort);
      this.#waits.delete(wait);
      this.#happened();
    }
  }

  /** The handler may be going on with something: what is left is not a reason to pause for a while. */
  #happened(): void {
    this.#happenedAt = performance.now();
    if (this.#closed || this.#lease.lostBy !== undefined) return;
    for (const wait of this.#waits) this.#calmDown(wait, LEFTOVER_PATIENCE_MS);
  }

  #calmDown(wait: Wait, ms: number): void {
    wait.impatient = false;
    wait.calmed?.();
    wait.calmed = callAfter(ms, () => this.#turnImpatient(wait));
  }

  /** A long sleep is timed here too: beside work that takes longer, or inside a step, there is no pause to end it. */
  #wait(wait: Wait, ms: number | undefined, patienceMs: number): void {
    if (ms === undefined) return this.#calmDown(wait, patienceMs);
    wait.callOff = callAfter(ms, () => this.#end(wait));
    if (ms > PATIENCE_MS) this.#calmDown(wait, patienceMs);
  }

  /** While a pause is under way nobody goes on: it decides whether the work is still this worker's. */
  #end(wait: Wait): void {
    wait.over = true;
    if (this.#pausing === undefined) wait.resolve();
  }

  #turnImpatient(wait: Wait): void {
    wait.impatient = true;
    this.#consider();
  }

  /** Pauses when only long waits are left. Decided a turn later: code that runs now may still begin something. */
  #consider(): void {
    if (this.#considering) return;
    this.#considering = true;
    setImmediate(() => {
      this.#considering = false;
      if (this.#pausing !== undefined || !this.#mayPause()) return;
      this.#pausing = this.#pause().finally(() => this.#goOn());
    });
  }

  #goOn(): void {
    this.#pausing = undefined;
    for (const wait of this.#waits) if (wait.over) wait.resolve();
    this.#consider();
  }

  #mayPause(): boolean {
    if (this.#closed || this.#busy > 0 || this.#waits.size === 0) return false;
    return [...this.#waits].every((wait) => wait.impatient && !wait.over);
  }

  async #pause(): Promise<void> {
    try {
      // Once it was sent it may have happened: then only the same request, answered, says whether it did.
      const request = this.#request();
      const outcome = await insist(this.#lease, () => this.#engine.pause(this.#lease.claim, request));
      if (outcome.outcome === 'due') this.#beginAgain();
      else this.#lease.lose(outcome.outcome === 'paused' ? 'paused' : abortCodeFor(outcome));
    } catch (error) {
      // A lost lease has told everybody by its signal; anything else is for the handler to know.
      if (!(error instanceof TaskAborted)) for (const wait of this.#waits) wait.reject(error);
    }
  }

  #request(): PauseRequest {
    const waits = [...this.#waits];
    const dues = waits.flatMap((wait) => wait.dueAt ?? []);
    const families = waits.map((wait) => wait.children).filter((open) => open.size > 0);
    const children = [...new Set(families.flatMap((open) => [...open]))];
    // Several waits at once: any of them may be what the handler goes on with, and none is over sooner than that.
    const needed = Math.min(...families.map((open) => open.size));
    return {
      ...(dues.length === 0
        ? {}
        : { wakeInMs: Math.max(0, Math.ceil(Math.min(...dues) - performance.now())) }),
      ...(children.length === 0 ? {} : { children: { executionIds: children, needed } }),
    };
  }

  /** Children have ended that nobody here has heard of yet: they are waited for once more. */
  #beginAgain(): void {
    for (const wait of this.#waits) {
      if (wait.children.size > 0) this.#calmDown(wait, PATIENCE_MS);
    }
  }
}

/**
 * A handler that begins two things and awaits the first must not end the process when both are taken away from it. What
 * it awaits it still meets.
 */
export function forgiven<Value>(begin: () => Promise<Value>): Promise<Value> {
  const begun = begin();
  begun.catch(() => undefined);
  return begun;
}
