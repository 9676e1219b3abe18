/**
 * The state of an execution in words: why it is where it is, and what it waits for; and how times, spans and counts are
 * spelled. Pure text from values.
 */
import type { ExecutionEnd, ExecutionSnapshot } from '../contract/engine.ts';
import type { BlockingReason, PublicState } from '../contract/states.ts';
import type { Tone } from './look.ts';
import { printable } from './secrets.ts';

/** An instant, in the one spelling that needs no time zone. */
export function instant(ms: number): string {
  return new Date(ms).toISOString();
}

const UNITS = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
] as const;

/** How long, in the two largest units: `2h04m`. Below a second, milliseconds; a clock that ran back gives none. */
export function span(ms: number): string {
  const first = UNITS.findIndex(([, unitMs]) => ms >= unitMs);
  if (first < 0) return `${Math.max(Math.round(ms), 0)}ms`;
  const [[name, unitMs], next] = [UNITS[first]!, UNITS[first + 1]];
  const whole = `${Math.floor(ms / unitMs)}${name}`;
  if (next === undefined) return whole;
  const rest = Math.floor((ms % unitMs) / next[1]);
  return rest === 0 ? whole : `${whole}${String(rest).padStart(2, '0')}${next[0]}`;
}

/** `12,500`, whatever the locale. */
export function thousands(count: number): string {
  return count.toLocaleString('en-US');
}

/** On one line of at most so many characters. */
export function cutLine(text: string, most: number): string {
  const characters = [...printable(text)];
  return characters.length > most ? `${characters.slice(0, most - 1).join('')}…` : characters.join('');
}

const PLAIN_WORD = /^[\w@%+=:,./-]+$/;

/** A command as it can be pasted into a shell. */
export function commandLine(words: readonly string[]): string {
  return words
    .map((word) => (PLAIN_WORD.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`))
    .join(' ');
}

const TONES: Partial<Record<PublicState, Tone>> = {
  completed: 'good',
  failed: 'bad',
  expired: 'bad',
  cancelled: 'warn',
};

export function toneOf(state: PublicState): Tone {
  return TONES[state] ?? 'plain';
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
  const wait = TIMED_OUT_WAIT.exec(end.message ?? '')?.[1];
  if (wait !== undefined)
    return `It ${ENDED_AS[end.outcome]} ${after}: nobody ended its wait for ${printable(wait)} in time.`;
  const inFlow = IN_FLOWS[end.by === 'engine' ? (end.message ?? '') : ''];
  if (inFlow !== undefined) return `It ${ENDED_AS[end.outcome]}: ${inFlow} (${end.message}).`;
  if (end.outcome === 'failed') return `It failed ${after}${because}${category}.`;
  if (end.outcome === 'cancelled') return `It was cancelled${by}${because}.`;
  if (end.outcome === 'skipped') return `It was skipped${because}.`;
  if (end.message === 'execution_deadline') return `Its deadline was over ${after}.`;
  if (end.message === 'attempt_time_limit') return `It took too long ${after} and no retry was left.`;
  return `Its lease lapsed ${after} and no retry was left${because}.`;
}

/** How the end of an execution is worded whose wait ran out of time. */
const TIMED_OUT_WAIT = /^suspension_timeout:(.*)$/s;
/** What the engine does to members of flows, by the word it is stored under. */
const IN_FLOWS: Readonly<Record<string, string>> = {
  sibling_quorum_satisfied: 'the join it ran for was satisfied without it',
  sibling_quorum_impossible: 'the join it ran for had become impossible',
  dependency_impossible: 'its join became impossible, `flowfabric why` says by whom',
  input_too_large: 'what it was to be handed is too large',
};
const ENDED_AS = {
  failed: 'failed',
  cancelled: 'was cancelled',
  expired: 'expired',
  skipped: 'was skipped',
} as const;

type Words = string | ((snapshot: ExecutionSnapshot) => string);

const WAITING: Record<BlockingReason, Words> = {
  none: 'It is between two states; look again.',
  waiting_for_worker: ({ kind, lane, capabilities }) => {
    const offers = capabilities.length === 0 ? '' : ` and offers ${capabilities.join(', ')}`;
    return `It waits for a worker that handles ${kind} on lane ${lane}${offers}; \`flowfabric why\` says more.`;
  },
  waiting_for_retry_backoff: (snapshot) => {
    const failure = snapshot.attempts.at(-1)?.failureMessage ?? null;
    const because = failure === null ? '' : ` (${printable(failure)})`;
    return `The last attempt failed${because}; it is tried again at ${eligible(snapshot)}.`;
  },
  waiting_for_resume_delay: (snapshot) => `Its wait is over; it rests and goes on at ${eligible(snapshot)}.`,
  waiting_for_delay: (snapshot) =>
    snapshot.state.attemptState === 'pending_first_attempt'
      ? `It was submitted to start no sooner than ${eligible(snapshot)}.`
      : `It sleeps until ${eligible(snapshot)}.`,
  waiting_for_children: ({ state }) =>
    state.attemptState === 'attempt_interrupted'
      ? 'It waits for executions it spawned to end.'
      : 'It waits for members of its flow that it comes after; `flowfabric why` says for which.',
  waiting_for_signal: 'It is suspended and waits for a signal; `flowfabric why` says what is missing.',
  waiting_for_approval: 'It is suspended and waits for an approval; `flowfabric why` says what is missing.',
  waiting_for_callback: 'It is suspended and waits for a callback; `flowfabric why` says what is missing.',
  waiting_for_tool_result:
    'It is suspended and waits for the result of a tool; `flowfabric why` says what is missing.',
  waiting_for_budget: 'Its budget is used up.',
  waiting_for_quota: 'Its quota is used up.',
  waiting_for_capable_worker: 'No worker offers the capabilities it needs.',
  waiting_for_locality_match: 'No worker is where it needs to run.',
  paused_by_operator: ({ state }) =>
    state.lifecyclePhase === 'suspended'
      ? 'It is suspended and waits for an operator; `flowfabric why` says what is missing.'
      : 'An operator holds it back.',
  paused_by_policy: 'A policy holds it back.',
  paused_by_flow_cancel: 'The flow it belongs to is being cancelled.',
};

function eligible({ eligibleAtMs }: ExecutionSnapshot): string {
  return eligibleAtMs === null ? 'an unknown time' : instant(eligibleAtMs);
}
