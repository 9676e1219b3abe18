/**
 * The rules of joins: how an upstream outcome resolves an edge, and how resolved edges decide a join. Pure; a test
 * compares them with the SQL functions of the same names.
 */
import type { EdgeCondition, EdgeState, GroupState, JoinPolicy } from '../contract/flows.ts';
import type { TerminalOutcome } from '../contract/states.ts';

type End = Exclude<TerminalOutcome, 'none'>;
export type ResolvedEdge = Exclude<EdgeState, 'staged' | 'pending'>;

/** A `success` edge fails with its upstream; an unmet edge of any other condition counts as skipped. */
export function edgeResult(condition: EdgeCondition, outcome: End): ResolvedEdge {
  switch (condition) {
    case 'always':
      return 'satisfied';
    case 'success':
      if (outcome === 'success') return 'satisfied';
      return outcome === 'skipped' ? 'skipped' : 'failed';
    case 'failure':
      return outcome === 'failed' || outcome === 'cancelled' || outcome === 'expired'
        ? 'satisfied'
        : 'skipped';
    case 'skipped':
      return outcome === 'skipped' ? 'satisfied' : 'skipped';
  }
}

export interface HeardEdges {
  edges: number;
  satisfied: number;
  /** Failed or skipped. */
  unmet: number;
}

export function joinState(policy: JoinPolicy, { edges, satisfied, unmet }: HeardEdges): GroupState {
  if (policy.kind === 'all') {
    if (unmet > 0) return 'impossible';
    return satisfied === edges ? 'satisfied' : 'pending';
  }
  const needed = neededOf(policy);
  if (satisfied >= needed) return 'satisfied';
  return unmet > edges - needed ? 'impossible' : 'pending';
}

/** How many edges a join needs; 0 for `all`, where it is not used. */
export function neededOf(policy: JoinPolicy): number {
  if (policy.kind === 'quorum') return policy.k;
  return policy.kind === 'any' ? 1 : 0;
}

/** Whether a decided join cancels the upstreams it no longer needs. */
export function cancelsRest(policy: JoinPolicy): boolean {
  return policy.kind !== 'all' && (policy.onSatisfied ?? 'cancel_remaining') === 'cancel_remaining';
}
