/**
 * Lanes as a table: how much waits in each, since when, and how fast it is processed. Used by `lanes list` and `top`.
 */
import type { LaneSnapshot } from '../../contract/operations.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { printable } from '../../contract/secrets.ts';
import type { Line, Span } from '../style.ts';
import { column, tableOf } from '../table.ts';
import { ago } from '../wording.ts';

const COLUMNS = [
  column('LANE'),
  column('STATE', 'whole'),
  column('DEPTH', 'number'),
  column('RUNNING', 'number'),
  column('OLDEST', 'number'),
  column('IN/S', 'number'),
  column('OUT/S', 'number'),
  column('PAUSED'),
];

export function laneLines(lanes: readonly LaneSnapshot[], nowMs: number, width: number | null): Line[] {
  return tableOf(
    COLUMNS,
    lanes.map((lane) => cellsOf(lane, nowMs)),
    width,
  );
}

function cellsOf(lane: LaneSnapshot, nowMs: number): Span[] {
  return [
    [printable(lane.lane)],
    lane.paused ? ['paused', 'warn'] : ['open'],
    [`${lane.depth}${lane.depthIsCapped ? '+' : ''}`],
    [String(lane.running)],
    [lane.oldestAgeMs === null ? '-' : shortDuration(lane.oldestAgeMs)],
    [lane.arrivalRate.toFixed(1)],
    [lane.completionRate.toFixed(1)],
    [printable(pauseOf(lane, nowMs))],
  ];
}

function pauseOf({ pausedAtMs, pausedBy, pauseReason }: LaneSnapshot, nowMs: number): string {
  if (pausedAtMs === null) return '';
  const by = pausedBy === null ? '' : ` by ${pausedBy}`;
  return `${ago(nowMs - pausedAtMs)}${by}${pauseReason === null ? '' : `: ${pauseReason}`}`;
}
