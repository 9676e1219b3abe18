/**
 * The end of the demo: the closing table, one sentence with the verdict, and where to go from here. Text only; the
 * numbers come from the audit.
 */
import type { Audit } from './audit.ts';
import { count, seconds } from './screen.ts';
import type { Line, Tone } from '../style.ts';

/** What the verdict needs besides the audit. */
export interface Observed {
  readonly durationMs: number;
  readonly progress: { readonly total: number; readonly foreign: number; readonly reportedTwice: number };
}

const LABEL_COLUMNS = 14;
const VALUE_COLUMNS = 9;

/** True when every execution was completed, once, with its own result. */
export function isClean(audit: Audit, { progress }: Observed): boolean {
  return audit.completed === progress.total && audit.lost === 0 && audit.wrong + progress.reportedTwice === 0;
}

export function verdict(audit: Audit, observed: Observed): Line[] {
  const { durationMs, progress } = observed;
  const zero = (value: number): Tone => (value === 0 ? 'good' : 'bad');
  const perSecond = durationMs > 0 ? Math.round((audit.completed / durationMs) * 1_000) : 0;
  const wrong = audit.wrong + progress.reportedTwice;
  const lines: Line[] = [
    [['']],
    row('submitted', count(audit.submitted), ''),
    row(
      'completed',
      count(audit.completed),
      wrong === 0 ? 'each exactly once' : '',
      audit.completed === audit.submitted ? 'good' : 'bad',
    ),
    row('retried', count(audit.retried), 'attempts that failed and were tried again'),
    row('taken over', count(audit.takenOver), 'executions a dead worker held, finished by another'),
    row('failed', count(audit.failed), '', zero(audit.failed)),
    row('duration', seconds(durationMs), ''),
    row('throughput', `${count(perSecond)}/s`, 'of work that mostly waits; not a benchmark'),
    ...(wrong > 0 ? [row('doubled', count(wrong), 'completed twice or with a foreign result', 'bad')] : []),
    row('lost', count(audit.lost), 'submitted and not ended', zero(audit.lost)),
    [['']],
  ];
  if (progress.foreign > 0)
    lines.push([
      [`${count(progress.foreign)} executions left by an interrupted run were completed as well.`],
    ]);
  lines.push(sentence(audit, observed));
  return lines;
}

function sentence(audit: Audit, observed: Observed): Line {
  if (isClean(audit, observed))
    return [['A worker died in the middle of its work, and nothing was lost.', 'good']];
  const { total } = observed.progress;
  const parts = [
    audit.submitted < total ? `only ${count(audit.submitted)} of ${count(total)} were submitted` : '',
    audit.lost > 0 ? `${count(audit.lost)} executions have not ended` : '',
    audit.failed > 0 ? `${count(audit.failed)} failed` : '',
    audit.wrong + observed.progress.reportedTwice > 0 ? 'some were completed more than once' : '',
  ].filter((part) => part !== '');
  return [[`The demo went wrong: ${parts.join(', ')}.`, 'bad']];
}

function row(label: string, value: string, note: string, tone: Tone = 'plain'): Line {
  return [
    [`  ${label.padEnd(LABEL_COLUMNS)}`],
    [value.padStart(VALUE_COLUMNS), tone === 'plain' ? 'strong' : tone],
    [note === '' ? '' : `   ${note}`, 'dim'],
  ];
}

export function nextSteps(place: string, schema: string): Line[] {
  return [
    [['']],
    [['Next', 'strong']],
    [['  README.md      "Quickstart": your first worker; "Guarantees": what you just saw']],
    [['  examples/      one small program for each capability']],
    [['  DATABASE_URL   set it to run this on a Postgres of yours, in a schema of its own']],
    [['']],
    [[`The executions are kept: schema ${schema} in ${place}.`, 'dim']],
  ];
}
