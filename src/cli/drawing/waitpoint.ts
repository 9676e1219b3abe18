/**
 * A waitpoint as the cells of a table row, or as one line beside the execution that waits at it. Text from values; what
 * others wrote is kept to one line without control characters. Tokens appear only as fingerprints.
 */
import type { PendingWaitpoint } from '../../contract/signals.ts';
import { printable } from '../secrets.ts';
import type { Span } from '../style.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { counted, cutLine } from '../wording.ts';

export const WAITPOINT_HEADINGS = [
  'ID',
  'TASK',
  'WAITPOINT',
  'REASON',
  'WAITING',
  'LEFT',
  'SIGNALS',
  'TAKES',
  'TOKEN',
];
/** Of the signal names; the rest is in the JSON. */
const TAKES_CHARACTERS = 40;

export function waitpointCells(waitpoint: PendingWaitpoint, nowMs: number): Span[] {
  const { executionId, kind, name, state, reason, waitingSinceMs, signalCount, tokenFingerprint } = waitpoint;
  return [
    [executionId],
    [printable(kind)],
    [printable(name)],
    state === 'pending' ? ['not yet', 'dim'] : [reason ?? '-'],
    [waitingSinceMs === null ? '-' : shortDuration(nowMs - waitingSinceMs)],
    leftOf(waitpoint, nowMs),
    [String(signalCount)],
    [cutLine(takesOf(waitpoint), TAKES_CHARACTERS)],
    [tokenFingerprint ?? '-'],
  ];
}

/** How long it still accepts signals. */
function leftOf({ timeoutAtMs, expiresAtMs, state }: PendingWaitpoint, nowMs: number): Span {
  const endMs = state === 'waiting' ? timeoutAtMs : expiresAtMs;
  if (endMs === null) return ['-'];
  return endMs > nowMs ? [shortDuration(endMs - nowMs)] : ['over', 'warn'];
}

function takesOf({ matches }: PendingWaitpoint): string {
  return matches.length === 0 ? 'any' : matches.join(',');
}

export function waitpointText(waitpoint: PendingWaitpoint, nowMs: number): string {
  const { name, signalCount, matches } = waitpoint;
  const soFar = `${counted(signalCount, 'signal')} so far`;
  const takes = matches.length === 0 ? '' : `, takes ${cutLine(matches.join(', '), TAKES_CHARACTERS)}`;
  const [left] = leftOf(waitpoint, nowMs);
  const rest = left === '-' ? '' : `, ${left === 'over' ? 'timed out' : `${left} left`}`;
  return `${printable(name)}: ${soFar}${takes}${rest}`;
}
