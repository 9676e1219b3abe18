/**
 * A waitpoint as the cells of a table row, or as one line beside the execution that waits at it. Text from values; what
 * others wrote is kept to one line without control characters. Tokens appear only as fingerprints.
 */
import type { PendingWaitpoint } from '../../contract/signals.ts';
import { printable } from '../../contract/secrets.ts';
import type { Shorten } from '../short-ids.ts';
import type { Line, Span } from '../style.ts';
import { column, tableOf } from '../table.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { counted, cutLine } from '../wording.ts';

const COLUMNS = [
  column('ID', 'whole'),
  column('TASK'),
  column('WAITPOINT'),
  column('REASON', 'text', { isOptional: true }),
  column('WAITING', 'number'),
  column('LEFT', 'number'),
  column('SIGNALS', 'number'),
  column('TAKES', 'text', { isOptional: true }),
  column('TOKEN', 'whole', { isOptional: true }),
];
/** Of the signal names beside an execution; the rest is in the JSON. */
const TAKES_COLUMNS = 40;

export function waitpointLines(
  waitpoints: readonly PendingWaitpoint[],
  { nowMs, short, width }: { nowMs: number; short: Shorten; width: number | null },
): Line[] {
  return tableOf(
    COLUMNS,
    waitpoints.map((waitpoint) => cellsOf(waitpoint, nowMs, short)),
    width,
  );
}

function cellsOf(waitpoint: PendingWaitpoint, nowMs: number, short: Shorten): Span[] {
  const { executionId, kind, name, state, reason, waitingSinceMs, signalCount, tokenFingerprint } = waitpoint;
  return [
    [short(executionId)],
    [printable(kind)],
    [printable(name)],
    state === 'pending' ? ['not yet', 'dim'] : [reason ?? '-'],
    [waitingSinceMs === null ? '-' : shortDuration(nowMs - waitingSinceMs)],
    leftOf(waitpoint, nowMs),
    [String(signalCount)],
    [printable(takesOf(waitpoint))],
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
  const takes = matches.length === 0 ? '' : `, takes ${cutLine(matches.join(', '), TAKES_COLUMNS)}`;
  const [left] = leftOf(waitpoint, nowMs);
  const rest = left === '-' ? '' : `, ${left === 'over' ? 'timed out' : `${left} left`}`;
  return `${printable(name)}: ${soFar}${takes}${rest}`;
}
