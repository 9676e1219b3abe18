/**
 * Builds conditions of waits: `atLeast(2).distinctSources()`, `anyOf(…)`, `allOf(…)`. The result is a plain condition;
 * the engine checks it.
 */
import type { CountCondition, CountedBy, SignalCondition } from '../contract/signals.ts';

/** A condition on a number of signals. Each method returns a new one. */
export interface AtLeast extends CountCondition {
  /** Counts distinct sources: two signals from one source count once. */
  distinctSources(): AtLeast;
  /** Counts distinct waitpoints: two signals at one waitpoint count once. */
  distinctWaitpoints(): AtLeast;
  /** Counts signals at these waitpoints. Default: the wait's own waitpoint, named like the wait, or `name:key`. */
  at(...waitpoints: string[]): AtLeast;
  /** Counts only signals of this name. Default: any name. */
  named(signal: string): AtLeast;
}

/** The methods are on the prototype, so that copies and JSON contain nothing but the condition. */
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

/** At least `n` signals, by default at the wait's own waitpoint. */
export function atLeast(n: number): AtLeast {
  return new Count({ n, by: 'signals', waitpoints: [] });
}

/** All of these conditions. Nested at most 4 deep. */
export function allOf(...conditions: SignalCondition[]): SignalCondition {
  return Object.freeze({ kind: 'all', of: Object.freeze(conditions) });
}

/** Any of these conditions. Nested at most 4 deep. */
export function anyOf(...conditions: SignalCondition[]): SignalCondition {
  return Object.freeze({ kind: 'any', of: Object.freeze(conditions) });
}
