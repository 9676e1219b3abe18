/**
 * What happened to which flow, and when: one desk per process. Knows no engine and no shape.
 *
 * @typedef {'sent' | 'begun' | 'go' | 'over' | 'end' | 'stopped'} What `begun`: a branch began. `go`: the winner may
 * win.   `over`: the handler of the root, or of the winner, is done. `end`: the handler of the last member began.
 * `stopped`: a   loser's AbortSignal fired.
 *
 * @typedef {object} Shape What every flow of a sample looks like.
 * @property {'chain' | 'all' | 'any'} kind `chain`: one after the other. `all`: a root, branches, and a join of all of
 *   them. `any`: branches that begin at once, and a join of whichever is first: branch 0.
 * @property {number} size Members of the chain, or branches.
 *
 * @typedef {object} Flows An engine that runs flows of one shape: a worker, and separate connections to submit over.
 * @property {(n: number) => Promise<void>} submit One flow; awaited means durable.
 * @property {number | null} perFlow What the contender's probe counts for a finished flow; null when it keeps nothing.
 * @property {() => Promise<void>} stop
 */

const QUIET_LIMIT_MS = 120_000;

/** Milliseconds by a clock that all processes of a machine share, finer than the wall clock's. */
export function hostNow() {
  return performance.timeOrigin + performance.now();
}

/** Resolves when the signal fires. */
export function fired(signal) {
  if (signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}

export class Desk {
  #notes = new Map();
  #listener;

  /** @param {(n: number, what: What, at: number) => void} [listener] Called for every note. */
  constructor(listener = () => undefined) {
    this.#listener = listener;
  }

  /** @param {What} what */
  tell(n, what, at = hostNow()) {
    const note = this.#note(n, what);
    note.times.push(at);
    note.waiting = note.waiting.filter(({ times, resolve }) => note.times.length < times || resolve());
    this.#listener(n, what, at);
  }

  /** When it last happened. */
  at(n, what) {
    return Math.max(...this.#note(n, what).times);
  }

  /** Waits until it has happened, or has happened this many times. */
  async seen(n, what, times = 1) {
    const note = this.#note(n, what);
    if (note.times.length >= times) return;
    let timer;
    const happened = new Promise((resolve, reject) => {
      const complain = () => reject(new Error(`Flow ${n}: ${note.times.length} of ${times} ${what}.`));
      timer = setTimeout(complain, QUIET_LIMIT_MS);
      note.waiting.push({ times, resolve });
    });
    await happened.finally(() => clearTimeout(timer));
  }

  #note(n, what) {
    const key = `${n} ${what}`;
    const found = this.#notes.get(key);
    if (found !== undefined) return found;
    const note = { times: [], waiting: [] };
    this.#notes.set(key, note);
    return note;
  }
}
