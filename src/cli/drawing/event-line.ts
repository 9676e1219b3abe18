/**
 * An event as the cells of one line: when, what, for which execution, flow, worker or lane, and what matters most about
 * it. Text from values; what others wrote is kept to one line without control characters.
 */
import type {
  CompletionEvent,
  ExecutionEvent,
  FeedEvent,
  FlowEvent,
  LeaseHistoryEvent,
  OperatorEvent,
  SignalEvent,
} from '../../contract/events.ts';
import type { Line, Span, Tone } from '../style.ts';
import { printable } from '../../contract/secrets.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import type { Shorten } from '../short-ids.ts';
import { column, Table } from '../table.ts';
import { instant, timeOfDay } from '../wording.ts';

const TONES: Readonly<Record<string, Tone>> = {
  'lease.renewed': 'dim',
  'lease.expired': 'warn',
  'lease.reclaimed': 'warn',
  'completion.success': 'good',
  'completion.failed': 'bad',
  'completion.expired': 'bad',
  'completion.cancelled': 'warn',
  'signal.escalated': 'warn',
  'signal.timed_out': 'warn',
  'signal.waitpoints_expired': 'warn',
  'worker.lost': 'bad',
  'flow.completed': 'good',
  'flow.failed': 'bad',
  'flow.cancelled': 'warn',
  'flow.cancel_requested': 'warn',
};

const COLUMNS = [
  column('TIME', 'whole'),
  column('EVENT', 'whole'),
  column('SUBJECT', 'text', { least: 18 }),
  column('TASK', 'text', { least: 10 }),
  column('LANE', 'text', { isOptional: true }),
  column('DETAIL', 'text', { least: 16 }),
];
/** What most events need in each column but the last; a longer value widens its column. */
const WIDTHS = { terminal: [12, 18, 13, 10, 8, 16], elsewhere: [24, 25, 45, 12, 8, 0] };

/** Prints events one by one in columns: on a terminal with the time of the day and short ids. */
export function eventLines(width: number | null): (event: FeedEvent, short: Shorten) => Line[] {
  const table = new Table(COLUMNS, width, width === null ? WIDTHS.elsewhere : WIDTHS.terminal);
  const time = width === null ? instant : timeOfDay;
  return (event, short) => table.lines([cellsOf(event, time, short)]);
}

function cellsOf(event: FeedEvent, time: (ms: number) => string, short: Shorten): Span[] {
  const name = `${event.family}.${event.type}`;
  const { subject, kind, lane } = subjectOf(event);
  return [
    [time(event.occurredAtMs), 'dim'],
    [name, TONES[name] ?? 'plain'],
    [short(printable(subject))],
    [printable(kind)],
    [printable(lane)],
    [short(printable(detailOf(event)))],
  ];
}

function subjectOf(event: FeedEvent): { subject: string; kind: string; lane: string } {
  if ('executionId' in event) return { subject: event.executionId, kind: event.kind, lane: event.lane };
  if (event.family === 'flow') return { subject: event.flowId, kind: '', lane: '' };
  const subject = event.family === 'worker' ? event.workerInstanceId : event.lane;
  return { subject, kind: '', lane: '' };
}

function detailOf(event: FeedEvent): string {
  switch (event.family) {
    case 'lease':
      return leaseDetail(event);
    case 'completion':
      return completionDetail(event);
    case 'signal':
      return signalDetail(event);
    case 'operator':
      return operatorDetail(event);
    case 'flow':
      return flowDetail(event);
    case 'tag': {
      const set = Object.entries(event.set).map(([key, value]) => `${key}=${value}`);
      const removed = event.removed.map((key) => `-${key}`);
      return `${[...set, ...removed].join(' ')}${by(event.by)}`;
    }
    case 'worker':
      return `${event.workerId}${event.version === null ? '' : ` ${event.version}`}`;
    case 'execution':
      return executionDetail(event);
  }
}

function executionDetail(event: ExecutionEvent): string {
  switch (event.type) {
    case 'submitted': {
      const { eligibleAtMs, occurredAtMs, parentId } = event;
      const delay =
        eligibleAtMs === null ? '' : `, delayed for ${shortDuration(eligibleAtMs - occurredAtMs)}`;
      return `priority ${event.priority}${delay}${parentId === null ? '' : `, by ${parentId}`}`;
    }
    case 'step_finished': {
      const key = event.key === '' ? '' : ` (${event.key})`;
      return `${event.name}${key}${event.durationMs === null ? '' : `, took ${shortDuration(event.durationMs)}`}`;
    }
    case 'progress_reported':
      return [event.percent === null ? null : `${event.percent} %`, event.message]
        .filter((part) => part !== null)
        .join(', ');
  }
}

function leaseDetail(event: LeaseHistoryEvent): string {
  switch (event.type) {
    case 'acquired':
      return `attempt ${event.attemptIndex + 1} on ${event.workerInstanceId}`;
    case 'renewed':
      return `on ${event.workerInstanceId}`;
    case 'reclaimed': {
      const from = event.previousOwner === null ? '' : `, from ${event.previousOwner}`;
      return `attempt ${event.attemptIndex + 1} on ${event.newOwner}${from}`;
    }
    case 'expired':
    case 'released':
      return `from ${event.previousOwner}: ${event.transition}`;
    case 'revoked':
      return `from ${event.previousOwner}${by(event.revokedBy)}: ${event.transition}`;
  }
}

function completionDetail({ workerInstanceId, attemptIndex, end }: CompletionEvent): string {
  const where = workerInstanceId === null ? '' : `attempt ${attemptIndex + 1} on ${workerInstanceId}`;
  if (end === null || 'omitted' in end) return where;
  return `${where}: ${'result' in end ? JSON.stringify(end.result) : (end.message ?? '')}`;
}

function signalDetail(event: SignalEvent): string {
  switch (event.type) {
    case 'suspended': {
      const { timeoutAtMs, occurredAtMs } = event;
      const until = timeoutAtMs === null ? '' : `, for ${shortDuration(timeoutAtMs - occurredAtMs)}`;
      return `waits for ${event.waits.join(', ')}${until}`;
    }
    case 'delivered':
      return `${event.name} at ${event.waitpoint}, by ${event.source.type}:${event.source.identity}: ${event.effect}`;
    case 'resumed': {
      const key = event.key === null ? '' : ` (${event.key})`;
      return `${event.wait === null ? '' : `${event.wait}${key}: `}${event.outcome}${by(event.by)}`;
    }
    case 'escalated':
      return `${event.wait} waits for an operator`;
    case 'continued':
      return `run ${event.run} ended, run ${event.run + 1n} begins`;
    case 'timed_out':
      return `${event.wait}: ${event.onTimeout}`;
    case 'waitpoints_expired':
      return event.waitpoints.join(', ');
  }
}

function operatorDetail(event: OperatorEvent): string {
  switch (event.type) {
    case 'priority_changed':
      return `${event.oldPriority} -> ${event.newPriority}${by(event.by)}`;
    case 'replayed': {
      const after = `after ${event.previousOutcome}, from ${event.from}`;
      return `replay ${event.replayCount} ${after}${by(event.by)}${because(event.reason)}`;
    }
    case 'lane_paused':
      return [event.by === null ? null : `by ${event.by}`, event.reason]
        .filter((part) => part !== null)
        .join(': ');
    case 'lane_resumed':
      return '';
  }
}

function flowDetail(event: FlowEvent): string {
  switch (event.type) {
    case 'submitted':
      return event.name;
    case 'cancel_requested':
      return `${event.policy}${by(event.by)}${because(event.reason)}`;
    default:
      return '';
  }
}

function by(name: string | null): string {
  return name === null ? '' : `, by ${name}`;
}

function because(reason: string | null): string {
  return reason === null ? '' : `: ${reason}`;
}
