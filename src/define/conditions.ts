/**
 * How a wait says which signals end it: `atLeast(2).distinctSources()`, `anyOf(…)`, `allOf(…)`. What is built is a plain
 * condition as the engine takes it; which conditions make sense is the engine's to say.
 */
import type { CountCondition, CountedBy, SignalCondition } from '../contract/signals.ts';

/** A condition on a number of signals. Each method answers a new one. */
export interface AtLeast extends CountCondition {
  /** Counts who said it: the same person twice is one. */
  distinctSources(): AtLeast;
  /** Counts where it was said: two signals at one waitpoint are one. */
  distinctWaitpoints(): AtLeast;
  /** Takes signals at these waitpoints. Default: at the wait's own, which has its name, or `name:key`. */
  at(...waitpoints: string[]): AtLeast;
  /** Takes only signals of this name. */
  named(signal: string): AtLeast;
}

/** The methods are the prototype's, so that nothing but the condition is seen by whoever copies it or makes JSON of it. */
class Count implements AtLeast {
  readonly kind = 'count';
  readonly n: number;
  readonly by: CountedBy;
  readonly waitpoints: readonly string[];
  declare readonly match?: string;

  constructor({ n, by, waitpoints, match }: Omit<CountCondition, 'kind'>) {
    this.n = n;
    this.by = by;
    this.waitpoints = Object.freeze([...waitpoints]);
    if (match !== undefined) this.match = match;
    Object.freeze(this);
  }

  distinctSources(): AtLeast {
    return new Count({ ...this, by: 'sources' });
  }

  distinctWaitpoints(): AtLeast {
    return new Count({ ...this, by: 'waitpoints' });
  }

  at(...waitpoints: string[]): AtLeast {
    return new Count({ ...this, waitpoints });
  }

  named(signal: string): AtLeast {
    return new Count({ ...this, match: signal });
  }
}

/** At least so many signals, at the wait's own waitpoint unless told otherwise. */
export function atLeast(n: number): AtLeast {
  return new Count({ n, by: 'signals', waitpoints: [] });
}

/** All of these. Nested at most 4 deep. */
export function allOf(...conditions: SignalCondition[]): SignalCondition {
  return Object.freeze({ kind: 'all', of: Object.freeze(conditions) });
}

/** Any of these. Nested at most 4 deep. */
export function anyOf(...conditions: SignalCondition[]): SignalCondition {
  return Object.freeze({ kind: 'any', of: Object.freeze(conditions) });
}
