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

interface Wait {
  /** On the monotonic clock; undefined when no time is waited for. */
  dueAt: number | undefined;
  children: readonly string[];
  needed: number;
  impatient: boolean;
  /** What was waited for has happened. */
  over: boolean;
  callOff: (() => void) | undefined;
  resolve(): void;
  reject(error: unknown): void;
}

export class Waits {
  readonly #engine: Engine;
  readonly #lease: HeldLease;
  readonly #waits = new Set<Wait>();
  #busy = 0;
  #pausing = false;
  #closed = false;

  constructor(engine: Engine, lease: HeldLease) {
    this.#engine = engine;
    this.#lease = lease;
  }

  /** Runs something that is work: while it goes on there is no pause. */
  async during<Value>(work: () => Promise<Value>): Promise<Value> {
    this.#busy += 1;
    try {
      return await work();
    } finally {
      this.#busy -= 1;
      this.#consider();
    }
  }

  sleep(ms: number): Promise<void> {
    return this.#add({ dueAt: performance.now() + ms, children: [], needed: 0 }, ms);
  }

  /** Until `happened` says so; the children are what a pause would wait for. */
  children(ids: readonly string[], happened: Promise<unknown>): Promise<void> {
    return this.#add({ dueAt: undefined, children: ids, needed: ids.length }, undefined, happened);
  }

  /** The handler is over: what it left behind is not waited for any more. */
  close(): void {
    this.#closed = true;
    for (const wait of this.#waits) wait.callOff?.();
    this.#waits.clear();
  }

  async #add(
    what: Pick<Wait, 'dueAt' | 'children' | 'needed'>,
    ms: number | undefined,
    happened?: Promise<unknown>,
  ): Promise<void> {
    const { signal } = this.#lease;
    signal.throwIfAborted();
    let onAbort!: () => void;
    let wait!: Wait;
    try {
      await new Promise<void>((resolve, reject) => {
        wait = { ...what, impatient: false, over: false, callOff: undefined, resolve, reject };
        onAbort = () => reject(signal.reason as Error);
        signal.addEventListener('abort', onAbort, { once: true });
        happened?.then(() => this.#end(wait), reject);
        this.#waits.add(wait);
        this.#wait(wait, ms);
      });
    } finally {
      wait.callOff?.();
      signal.removeEventListener('abort', onAbort);
      this.#waits.delete(wait);
      this.#consider();
    }
  }

  /** A long sleep is timed here too: beside work that takes longer, or inside a step, there is no pause to end it. */
  #wait(wait: Wait, ms: number | undefined): void {
    if (ms === undefined) {
      wait.callOff = callAfter(PATIENCE_MS, () => this.#turnImpatient(wait));
      return;
    }
    wait.callOff = callAfter(ms, () => this.#end(wait));
    if (ms > PATIENCE_MS) this.#turnImpatient(wait);
  }

  /** While a pause is under way nobody goes on: it decides whether the work is still this worker's. */
  #end(wait: Wait): void {
    wait.over = true;
    if (!this.#pausing) wait.resolve();
  }

  #turnImpatient(wait: Wait): void {
    wait.impatient = true;
    this.#consider();
  }

  /** Pauses when only long waits are left. Decided a turn later: code that runs now may still begin something. */
  #consider(): void {
    if (this.#pausing || this.#closed || !this.#mayPause()) return;
    setImmediate(() => {
      if (!this.#pausing && !this.#closed && this.#mayPause()) void this.#pause();
    });
  }

  #mayPause(): boolean {
    if (this.#busy > 0 || this.#waits.size === 0) return false;
    return [...this.#waits].every((wait) => wait.impatient && !wait.over);
  }

  async #pause(): Promise<void> {
    this.#pausing = true;
    try {
      // Looked at before each try: what has happened meanwhile needs no pause.
      const outcome = await insist(this.#lease, async () =>
        this.#mayPause() ? this.#engine.pause(this.#lease.claim, this.#request()) : undefined,
      );
      if (outcome?.outcome === 'due') this.#beginAgain();
      else if (outcome !== undefined)
        this.#lease.lose(outcome.outcome === 'paused' ? 'paused' : abortCodeFor(outcome));
    } catch (error) {
      // A lost lease has told everybody by its signal; anything else is for the handler to know.
      if (!(error instanceof TaskAborted)) for (const wait of this.#waits) wait.reject(error);
    } finally {
      this.#pausing = false;
      for (const wait of this.#waits) if (wait.over) wait.resolve();
      this.#consider();
    }
  }

  #request(): PauseRequest {
    const waits = [...this.#waits];
    const dues = waits.flatMap((wait) => wait.dueAt ?? []);
    const children = [...new Set(waits.flatMap((wait) => wait.children))];
    // Several waits at once: any of them may be what the handler goes on with.
    const needed = waits.length === 1 ? waits[0]!.needed : 1;
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
      if (wait.children.length === 0) continue;
      wait.impatient = false;
      wait.callOff = callAfter(PATIENCE_MS, () => this.#turnImpatient(wait));
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
