/**
 * What a worker may claim, split so that no limit is exceeded: a task or lane with its own limit is claimed separately,
 * because a claim returns whatever is next in the queue. A worker without such limits has one group.
 */
import type { Claim } from '../../contract/protocol.ts';
import type { TaskHandler } from '../../define/handlers.ts';
import { whole } from '../../contract/shape/kinds.ts';

/** A lane, and how many of its executions one worker runs at once. */
export interface LaneLimit {
  lane: string;
  /** How many executions of this lane one worker runs concurrently. */
  concurrency: number;
}

export interface ClaimGroup {
  kinds: readonly string[];
  /** Undefined: every lane. */
  lanes: readonly string[] | undefined;
  /** The limits it shares with other groups. */
  limits: readonly Limit[];
}

/** Counts what runs under one limit. */
export class Limit {
  readonly #max: number;
  #used = 0;

  constructor(max: number) {
    this.#max = max;
  }

  get free(): number {
    return this.#max - this.#used;
  }

  take(): void {
    this.#used += 1;
  }

  giveBack(): void {
    this.#used -= 1;
  }
}

const NO_LIMITS: readonly Limit[] = [];

export class ClaimGroups {
  readonly groups: readonly ClaimGroup[];
  readonly #kindLimits = new Map<string, Limit>();
  readonly #laneLimits = new Map<string, Limit>();

  constructor(
    handlers: ReadonlyMap<string, TaskHandler>,
    lanes: readonly (string | LaneLimit)[] | undefined,
    max: number,
  ) {
    for (const [name, { concurrency }] of handlers) {
      if (concurrency !== undefined)
        this.#kindLimits.set(name, limitOf(concurrency, `concurrency of task ${name}`, max));
    }
    for (const lane of lanes ?? []) {
      if (typeof lane !== 'string')
        this.#laneLimits.set(lane.lane, limitOf(lane.concurrency, `concurrency of lane ${lane.lane}`, max));
    }
    this.groups = cross(
      split([...handlers.keys()], this.#kindLimits),
      lanes === undefined ? [undefined] : split(lanes.map(nameOf), this.#laneLimits),
      (kinds, laneNames) => ({ kinds, lanes: laneNames, limits: this.#limitsOf(kinds, laneNames) }),
    );
  }

  /** The limits an execution counts against. */
  limitsFor(claim: Claim): readonly Limit[] {
    if (this.#kindLimits.size + this.#laneLimits.size === 0) return NO_LIMITS;
    return [this.#kindLimits.get(claim.kind), this.#laneLimits.get(claim.lane)].filter(
      (limit) => limit !== undefined,
    );
  }

  #limitsOf(kinds: readonly string[], lanes: readonly string[] | undefined): Limit[] {
    const kind = kinds.length === 1 ? this.#kindLimits.get(kinds[0]!) : undefined;
    const lane = lanes?.length === 1 ? this.#laneLimits.get(lanes[0]!) : undefined;
    return [kind, lane].filter((limit) => limit !== undefined);
  }
}

export function nameOf(lane: string | LaneLimit): string {
  return typeof lane === 'string' ? lane : lane.lane;
}

/** Each limited name alone, the others together. */
function split(names: readonly string[], limits: ReadonlyMap<string, Limit>): (readonly string[])[] {
  const free = names.filter((name) => !limits.has(name));
  const limited = names.filter((name) => limits.has(name)).map((name) => [name]);
  return free.length === 0 ? limited : [free, ...limited];
}

function cross<A, B, Made>(some: readonly A[], others: readonly B[], make: (a: A, b: B) => Made): Made[] {
  return some.flatMap((a) => others.map((b) => make(a, b)));
}

function limitOf(concurrency: number, field: string, max: number): Limit {
  return new Limit(whole(1, max).check(concurrency, field));
}
