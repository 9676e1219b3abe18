/**
 * The page about one execution: its state and why, where it is, what it was given, how it failed, its steps and children,
 * and how it ended.
 */
import type { DescribedExecution, DescribePart } from '../../contract/described.ts';
import type { ExecutionEnd, ExecutionSnapshot } from '../../contract/executions.ts';
import type { AttemptRecord } from '../../contract/operations.ts';
import { printable } from '../../contract/secrets.ts';
import type { Shorten } from '../short-ids.ts';
import type { Line, Span } from '../style.ts';
import { column, folded, INDENT_COLUMNS, labelled, Table } from '../table.ts';
import { cutLine, instant, toneOf } from '../wording.ts';
import { allAttemptRows, attemptRows, failureRows, lastFailure } from './attempts.ts';
import { stepLines } from './steps.ts';
import { waitpointText } from './waitpoint.ts';

/** Steps and children listed; the rest is counted. */
const STEPS_SHOWN = 20;
const CHILDREN_SHOWN = 20;
const MESSAGES_SHOWN = 10;

const MESSAGE_COLUMNS = [column('MAILBOX', 'whole'), column('SENT', 'whole'), column('PAYLOAD')];
const CHILD_COLUMNS = [column('ID', 'whole'), column('STATE', 'whole'), column('TASK')];

/** An execution, everything in it, and what the engine says about it. */
export interface Page {
  execution: DescribedExecution<DescribePart>;
  why: string;
  /** How it ended; null while it has not. */
  end: ExecutionEnd | null;
  /** All that are kept, oldest first; null to fold equal ones. */
  attempts: AttemptRecord[] | null;
  nowMs: number;
  short: Shorten;
}

/** `width`: of the terminal; null without one. */
export function pageLines(
  { execution, why, end, attempts, nowMs, short }: Page,
  width: number | null,
): Line[] {
  const { executionId, state, timeline } = execution;
  const room = width === null ? null : Math.max(width - INDENT_COLUMNS, 1);
  const failure = lastFailure(execution, timeline.items);
  const name = short(executionId);
  const lines: Line[] = [
    [
      [`${name}  `, 'strong'],
      [state, toneOf(state)],
    ],
    labelled('why', short(why)),
    ...(name === executionId ? [] : [labelled('id', executionId)]),
    ...waitRows(execution, nowMs),
    labelled('task', printable(execution.kind)),
    ...(execution.key === null ? [] : [labelled('key', printable(execution.key))]),
    labelled('place', placeOf(execution)),
    ...tagRow(execution.tags),
    ...timeRows(execution),
    ...inputRow(execution, room),
    ...leaseRow(execution),
    ...progressRow(execution),
    ...failureRows(failure, room),
    ...runRow(execution),
    ...(execution.replayCount === 0 ? [] : [labelled('replays', String(execution.replayCount))]),
    ...(attempts === null ? attemptRows(execution, timeline, failure) : allAttemptRows(execution, attempts)),
    ...stepRows(execution, name, room),
    ...messageRows(execution, room),
    ...childRows(execution, short, room),
    ...(execution.parentId === null ? [] : [labelled('parent', short(execution.parentId))]),
    ...(execution.flowId === null ? [] : [labelled('flow', short(execution.flowId))]),
    ...execution.setbacks.map(({ reconciler, failures, errorCode }) =>
      labelled('setback', `${reconciler} could not act on it ${failures} times (${errorCode})`, 'bad'),
    ),
    ...(end?.outcome === 'success' ? [labelled('result', printable(JSON.stringify(end.result)))] : []),
  ];
  return folded(lines, width);
}

function waitRows({ waits, state }: Page['execution'], nowMs: number): Line[] {
  if (state !== 'suspended') return [];
  const texts = waits.items.map((waitpoint) => waitpointText(waitpoint, nowMs));
  return texts.map((text, index) => labelled(index === 0 ? 'waits at' : '', text));
}

function placeOf({ lane, namespace, priority }: ExecutionSnapshot): string {
  return `lane ${printable(lane)}, namespace ${printable(namespace)}, priority ${priority}`;
}

function tagRow(tags: Record<string, string>): Line[] {
  const pairs = Object.entries(tags).map(([key, value]) => printable(`${key}=${value}`));
  return pairs.length === 0 ? [] : [labelled('tags', pairs.join(', '))];
}

function timeRows({ createdAtMs, startedAtMs, endedAtMs, deadlineAtMs }: ExecutionSnapshot): Line[] {
  const times = { submitted: createdAtMs, started: startedAtMs, ended: endedAtMs, deadline: deadlineAtMs };
  return Object.entries(times).flatMap(([label, ms]) => (ms === null ? [] : [labelled(label, instant(ms))]));
}

function inputRow({ input }: Page['execution'], room: number | null): Line[] {
  if (input === null) return [];
  const text = JSON.stringify(input);
  return [labelled('input', room === null ? printable(text) : cutLine(text, room))];
}

function leaseRow({ lease }: ExecutionSnapshot): Line[] {
  if (lease === null) return [];
  const holder = `${printable(lease.workerId)} (${printable(lease.workerInstanceId)})`;
  return [
    labelled('lease', `${holder} since ${instant(lease.acquiredAtMs)}, until ${instant(lease.expiresAtMs)}`),
  ];
}

function progressRow({ progress }: ExecutionSnapshot): Line[] {
  if (progress === null) return [];
  const parts = [
    progress.percent === null ? '' : `${progress.percent} %`,
    progress.message === null ? '' : printable(progress.message),
  ].filter((part) => part !== '');
  return [labelled('progress', `${parts.join(', ')} at ${instant(progress.reportedAtMs)}`)];
}

function stepRows({ steps, stepCount }: Page['execution'], name: string, room: number | null): Line[] {
  const shown = steps.items.slice(-STEPS_SHOWN);
  const left = stepCount - shown.length;
  return [
    labelled('steps', String(stepCount)),
    ...(left > 0 ? [labelled('', `… ${left} earlier: flowfabric steps ${name}`, 'dim')] : []),
    ...stepLines(shown, room).map(indented),
  ];
}

function runRow({ runs }: Page['execution']): Line[] {
  const last = runs.items.at(-1);
  return last === undefined ? [] : [labelled('run', `${last.run + 1n}, since ${instant(last.endedAtMs)}`)];
}

/** Those that it has not received; the others are steps. */
function messageRows({ messages }: Page['execution'], room: number | null): Line[] {
  const unread = messages.items.filter(({ handedAtMs }) => handedAtMs === null);
  if (unread.length === 0) return [];
  const rows = unread.slice(0, MESSAGES_SHOWN).map(({ mailbox, sentAtMs, payload }): Span[] => {
    const text = JSON.stringify(payload);
    return [
      [printable(mailbox)],
      [instant(sentAtMs)],
      [room === null ? printable(text) : cutLine(text, room)],
    ];
  });
  const many = messages.truncated ? `at least ${unread.length}` : String(unread.length);
  return [
    labelled('messages', `${many} not received`),
    ...new Table(MESSAGE_COLUMNS, room, [0, 0, 0]).lines(rows).map(indented),
  ];
}

function childRows(
  { children, executionId: parent }: Page['execution'],
  short: Shorten,
  room: number | null,
): Line[] {
  const { items, truncated } = children;
  if (items.length === 0) return [];
  const shown = items.slice(-CHILDREN_SHOWN);
  const rows = shown.map(({ executionId, state, kind }): Span[] => {
    return [[short(executionId)], [state, toneOf(state)], [printable(kind)]];
  });
  const isShort = truncated || items.length > shown.length;
  return [
    labelled('children', truncated ? `more than ${items.length}` : String(items.length)),
    ...(isShort ? [labelled('', `… earlier ones: flowfabric list --parent ${short(parent)}`, 'dim')] : []),
    ...new Table(CHILD_COLUMNS, room, [0, 0, 0]).lines(rows).map(indented),
  ];
}

/** A line of a table below a label. */
function indented(line: Line): Line {
  return [[' '.repeat(INDENT_COLUMNS)], ...line];
}
