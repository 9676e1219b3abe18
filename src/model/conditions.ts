/**
 * Conditions of waits: which ones are well-formed, and when signals satisfy one. Pure; a test compares the SQL function
 * of the same meaning with this one.
 */
import { LIMITS } from '../contract/limits.ts';
import type { CountCondition, CountedBy, Signal, SignalCondition } from '../contract/signals.ts';

export type ConditionFault =
  | 'too_deep'
  | 'too_many_leaves'
  | 'too_long'
  | 'no_parts'
  | 'too_many_parts'
  | 'no_waitpoints'
  | 'too_many_waitpoints'
  | 'count_not_positive'
  | 'count_too_high'
  | 'count_exceeds_waitpoints'
  | 'empty_match';

/** What is wrong with a condition, or undefined. */
export function conditionFault(condition: SignalCondition): ConditionFault | undefined {
  const fault = nodeFault(condition, 1);
  if (fault !== undefined) return fault;
  if (leavesOf(condition).length > LIMITS.conditionLeaves) return 'too_many_leaves';
  const isLong = new TextEncoder().encode(JSON.stringify(condition)).length > LIMITS.conditionBytes;
  return isLong ? 'too_long' : undefined;
}

function nodeFault(condition: SignalCondition, depth: number): ConditionFault | undefined {
  if (depth > LIMITS.conditionDepth) return 'too_deep';
  if (condition.kind === 'count') return leafFault(condition);
  if (condition.of.length === 0) return 'no_parts';
  if (condition.of.length > LIMITS.conditionParts) return 'too_many_parts';
  return condition.of.map((part) => nodeFault(part, depth + 1)).find((fault) => fault !== undefined);
}

function leafFault({ n, by, waitpoints, match }: CountCondition): ConditionFault | undefined {
  if (waitpoints.length === 0) return 'no_waitpoints';
  if (waitpoints.length > LIMITS.conditionWaitpoints) return 'too_many_waitpoints';
  if (!Number.isInteger(n) || n < 1) return 'count_not_positive';
  if (n > LIMITS.conditionCount) return 'count_too_high';
  if (by === 'waitpoints' && n > new Set(waitpoints).size) return 'count_exceeds_waitpoints';
  return match === '' ? 'empty_match' : undefined;
}

type Said = Pick<Signal, 'signalId' | 'waitpoint' | 'name' | 'source'>;

/** Whether the signals satisfy the condition. */
export function isMet(condition: SignalCondition, signals: readonly Said[]): boolean {
  switch (condition.kind) {
    case 'count':
      return satisfiersOf(condition, signals).size >= condition.n;
    case 'all':
      return condition.of.every((part) => isMet(part, signals));
    case 'any':
      return condition.of.some((part) => isMet(part, signals));
  }
}

/** The distinct things a leaf counts. */
function satisfiersOf({ by, waitpoints, match }: CountCondition, signals: readonly Said[]): Set<string> {
  const fitting = signals.filter(
    ({ waitpoint, name }) => waitpoints.includes(waitpoint) && (match === undefined || name === match),
  );
  return new Set(fitting.map((signal) => countedAs(by, signal)));
}

function countedAs(by: CountedBy, { signalId, waitpoint, source }: Said): string {
  if (by === 'signals') return signalId;
  return by === 'waitpoints' ? waitpoint : JSON.stringify([source.type, source.identity]);
}

/** The leaves of a condition, in the order they are written. */
export function leavesOf(condition: SignalCondition): CountCondition[] {
  return condition.kind === 'count' ? [condition] : condition.of.flatMap(leavesOf);
}

/** The waitpoints a condition names, each once. */
export function waitpointsOf(condition: SignalCondition): string[] {
  return [...new Set(leavesOf(condition).flatMap((leaf) => leaf.waitpoints))];
}
