/**
 * The state of an execution in words: why it is where it is, and what it waits for. Pure text from a snapshot.
 */
import type { ExecutionEnd, ExecutionSnapshot } from '../contract/engine.ts';
import type { BlockingReason } from '../contract/states.ts';
import { printable } from './secrets.ts';

/** An instant, in the one spelling that needs no time zone. */
export function instant(ms: number): string {
  return new Date(ms).toISOString();
}

/** One sentence. `end` is given for an execution that has ended. */
export function why(snapshot: ExecutionSnapshot, end: ExecutionEnd | null): string {
  if (end !== null) return whyEnded(snapshot, end);
  const { lease } = snapshot;
  if (lease !== null)
    return `Worker ${printable(lease.workerId)} runs it and holds it until ${instant(lease.expiresAtMs)}.`;
  const words = WAITING[snapshot.state.blockingReason];
  return typeof words === 'function' ? words(snapshot) : words;
}

function whyEnded(snapshot: ExecutionSnapshot, end: ExecutionEnd): string {
  const tries = snapshot.attempts.length;
  const after = tries === 0 ? 'before its first attempt' : `in attempt ${snapshot.attemptIndex + 1}`;
  if (end.outcome === 'success') return `It succeeded ${after}.`;
  const by = end.by === null ? '' : ` by ${printable(end.by)}`;
  const because = end.message === null ? '' : `: ${printable(end.message)}`;
  const category = end.category === null ? '' : ` (${printable(end.category)})`;
  if (end.outcome === 'failed') return `It failed ${after}${because}${category}.`;
  if (end.outcome === 'cancelled') return `It was cancelled${by}${because}.`;
  if (end.outcome === 'expired') return `Its lease lapsed ${after} and no retry was left${because}.`;
  return `It was skipped${because}.`;
}

type Words = string | ((snapshot: ExecutionSnapshot) => string);

const WAITING: Record<BlockingReason, Words> = {
  none: 'It is between two states; look again.',
  waiting_for_worker: ({ kind, lane, capabilities }) => {
    const offers = capabilities.length === 0 ? '' : ` and offers ${capabilities.join(', ')}`;
    return `It can run now and waits for a worker that handles ${kind} on lane ${lane}${offers}.`;
  },
  waiting_for_retry_backoff: (snapshot) => {
    const failure = snapshot.attempts.at(-1)?.failureMessage ?? null;
    const because = failure === null ? '' : ` (${printable(failure)})`;
    return `The last attempt failed${because}; it is tried again at ${eligible(snapshot)}.`;
  },
  waiting_for_resume_delay: (snapshot) => `It was paused and goes on at ${eligible(snapshot)}.`,
  waiting_for_delay: (snapshot) =>
    snapshot.state.attemptState === 'pending_first_attempt'
      ? `It was submitted to start no sooner than ${eligible(snapshot)}.`
      : `It sleeps until ${eligible(snapshot)}.`,
  waiting_for_children: 'It waits for executions it spawned to end.',
  waiting_for_signal: 'It waits for a signal.',
  waiting_for_approval: 'It waits for an approval.',
  waiting_for_callback: 'It waits for a callback.',
  waiting_for_tool_result: 'It waits for the result of a tool.',
  waiting_for_budget: 'Its budget is used up.',
  waiting_for_quota: 'Its quota is used up.',
  waiting_for_capable_worker: 'No worker offers the capabilities it needs.',
  waiting_for_locality_match: 'No worker is where it needs to run.',
  paused_by_operator: 'An operator holds it back.',
  paused_by_policy: 'A policy holds it back.',
  paused_by_flow_cancel: 'The flow it belongs to is being cancelled.',
};

function eligible({ eligibleAtMs }: ExecutionSnapshot): string {
  return eligibleAtMs === null ? 'an unknown time' : instant(eligibleAtMs);
}
