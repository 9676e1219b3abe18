/**
 * Steps as rows of a table: their names, how long they took and what they returned. Values are cut to the width of the
 * terminal; the JSON has more of them.
 */
import type { ListedStep } from '../../contract/steps.ts';
import { printable } from '../../contract/secrets.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import type { Line, Span } from '../style.ts';
import { column, Table, tableOf } from '../table.ts';
import { instant, thousands } from '../wording.ts';

const COLUMNS = [
  column('STEP'),
  column('KIND', 'whole', { isOptional: true }),
  column('ATTEMPT', 'number', { isOptional: true }),
  column('RECORDED', 'whole', { isOptional: true }),
  column('TOOK', 'number'),
  column('VALUE', 'text', { least: 20 }),
];
const SHORT_COLUMNS = [COLUMNS[0]!, COLUMNS[4]!, COLUMNS[5]!];

/** All that is known about each. */
export function stepTable(steps: readonly ListedStep[], width: number | null): Line[] {
  const rows = steps.map((step): Span[] => {
    const { kind, attemptIndex, recordedAtMs } = step;
    const known: Span[] = [[kind], [String(attemptIndex + 1)], [instant(recordedAtMs), 'dim']];
    return [[nameOf(step)], ...known, [tookOf(step)], [valueOf(step)]];
  });
  return tableOf(COLUMNS, rows, width);
}

/** For the page about an execution: without a heading. */
export function stepLines(steps: readonly ListedStep[], width: number | null): Line[] {
  const rows = steps.map((step): Span[] => [[nameOf(step)], [tookOf(step), 'dim'], [valueOf(step)]]);
  return new Table(SHORT_COLUMNS, width, [0, 0, 0]).lines(rows);
}

function nameOf({ name, key }: ListedStep): string {
  return printable(key === '' ? name : `${name} [${key}]`);
}

function tookOf({ durationMs }: ListedStep): string {
  return durationMs === null ? '-' : shortDuration(durationMs);
}

function valueOf({ kind, value, end, dueInMs, valueStart, valueBytes }: ListedStep): string {
  if (valueStart !== null) return printable(`(${thousands(valueBytes)} bytes) ${valueStart}…`);
  if (kind === 'sleep') return dueInMs === 0 ? 'slept' : `sleeps for another ${shortDuration(dueInMs ?? 0)}`;
  if (kind === 'wait') return end === null ? 'waits' : printable(JSON.stringify(end));
  return printable(JSON.stringify(value));
}
