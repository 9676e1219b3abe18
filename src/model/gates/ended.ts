/**
 * How an execution finished, as facts and as a sentence: its outcome, how long ago, by whom and why. Reason codes of
 * the engine are spelled out. Other gates are judged elsewhere.
 */
import type { Json } from '../../contract/json.ts';
import type { TerminalOutcome } from '../../contract/states.ts';
import { joinFacts, tellSkip, type JoinFacts } from './blocked.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { quoted } from '../wording.ts';

export interface EndFacts {
  outcome: TerminalOutcome;
  endedAtMs: number;
  endedAgoMs: number;
  message: string | null;
  /** Who ended it: an operator, a worker's instance, or `engine`. */
  by: string | null;
}

const ENDED: Record<TerminalOutcome, string> = {
  none: 'finished',
  success: 'completed',
  failed: 'failed',
  cancelled: 'was cancelled',
  expired: 'expired',
  skipped: 'was skipped',
};

const ENGINE = 'engine';
const TIMED_OUT_WAIT = /^suspension_timeout:(.*)$/s;
const ENGINE_REASONS: Readonly<Record<string, string>> = {
  sibling_quorum_satisfied: 'the join it ran for was satisfied without it',
  sibling_quorum_impossible: 'the join it ran for became impossible',
  dependency_impossible: 'its join became impossible',
  execution_deadline: 'its deadline passed',
  attempt_time_limit: 'an attempt took too long and no retry was left',
  attempt_timeout: 'its lease expired and no retry was left',
};

export function tellEnd(outcome: TerminalOutcome, end: EndFacts | null, join: JoinFacts | null): string {
  const ago = end === null ? '' : ` ${shortDuration(end.endedAgoMs)} ago`;
  return `It ${ENDED[outcome]}${ago}${byWhom(outcome, end)}${reasonOf(outcome, end, join)}; replay it to run it again.`;
}

/** Named only for a cancellation: otherwise it is the worker, which the attempts name. */
function byWhom(outcome: TerminalOutcome, end: EndFacts | null): string {
  const by = outcome === 'cancelled' ? (end?.by ?? null) : null;
  return by === null || by === ENGINE ? '' : ` by ${quoted(by)}`;
}

function reasonOf(outcome: TerminalOutcome, end: EndFacts | null, join: JoinFacts | null): string {
  const message = messageOf(end);
  const skip = outcome === 'skipped' ? tellSkip(join, message) : null;
  if (skip !== null) return `: ${skip}`;
  if (message === null || message === '') return '';
  if (end?.by !== ENGINE) return ` (${message})`;
  const wait = TIMED_OUT_WAIT.exec(message)?.[1];
  if (wait !== undefined) return `: its wait for ${wait} timed out`;
  const reason = ENGINE_REASONS[message];
  return reason === undefined ? ` (${message})` : `: ${reason} (${message})`;
}

/** The same for programs. */
export function endFacts(
  outcome: TerminalOutcome,
  end: EndFacts | null,
  join: JoinFacts | null,
): Record<string, Json> {
  return {
    outcome,
    endedAtMs: end?.endedAtMs ?? null,
    message: messageOf(end),
    by: end?.by ?? null,
    ...(outcome === 'skipped' ? joinFacts(join) : {}),
  };
}

function messageOf(end: EndFacts | null): string | null {
  return end === null || end.message === null ? null : quoted(end.message);
}
