/**
 * The screen of `flowfabric top`: totals, then the lanes that are furthest behind, then the workers. Pure: a snapshot and
 * the size of the terminal become lines; what has no room is counted.
 */
import type { LaneSnapshot, WorkerSnapshot } from '../../contract/operations.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import type { Line, Tone } from '../style.ts';
import { cutTo } from '../text-width.ts';
import { counted, thousands, timeOfDay } from '../wording.ts';
import { laneLines } from './lane.ts';
import { workerLines, workerStateOf } from './worker.ts';

export interface TopSnapshot {
  /** The database's clock. */
  atMs: number;
  lanes: LaneSnapshot[];
  workers: WorkerSnapshot[];
}

/** The size of the terminal; null where there is no limit. */
export interface Size {
  columns: number | null;
  rows: number | null;
}

/** Lines that are not rows of a table: totals of lanes and of workers, blank lines, headings, what was left out. */
const FIXED_ROWS = 8;
/** Rows that each table gets on the lowest terminal. */
const ROWS_MIN = 1;

const NO_LANES = 'No lane yet: the first submit creates one. Try: flowfabric submit TASK';
const NO_WORKERS = 'No worker is running: waiting work stays where it is until one starts.';

export function topLines({ atMs, lanes, workers }: TopSnapshot, { columns, rows }: Size): Line[] {
  const room = rows === null ? null : Math.max(rows - FIXED_ROWS, 2 * ROWS_MIN);
  const shownWorkers = room === null ? workers.length : Math.max(room - lanes.length, Math.floor(room / 2));
  const shownLanes = room === null ? lanes.length : room - Math.min(shownWorkers, workers.length);
  const sortedLanes = lanes.toSorted(furthestBehind);
  const sortedWorkers = workers.toSorted(busiest);
  return [
    total(laneTotals(lanes, atMs), columns),
    ...(lanes.length === 0
      ? [note(NO_LANES, columns)]
      : laneLines(sortedLanes.slice(0, shownLanes), atMs, columns)),
    ...rest(lanes.length - shownLanes, 'lane'),
    [['']],
    total(workerTotals(workers), columns),
    ...(workers.length === 0
      ? [note(NO_WORKERS, columns)]
      : workerLines(sortedWorkers.slice(0, shownWorkers), columns)),
    ...rest(workers.length - shownWorkers, 'worker'),
  ];
}

/** What waits longest comes first, then what runs most. */
function furthestBehind(one: LaneSnapshot, other: LaneSnapshot): number {
  return (
    (other.oldestAgeMs ?? -1) - (one.oldestAgeMs ?? -1) ||
    other.running - one.running ||
    (one.lane < other.lane ? -1 : 1)
  );
}

function busiest(one: WorkerSnapshot, other: WorkerSnapshot): number {
  return other.running - one.running || (one.workerInstanceId < other.workerInstanceId ? -1 : 1);
}

function sum<Item>(items: readonly Item[], of: (item: Item) => number): number {
  return items.reduce((before, item) => before + of(item), 0);
}

function laneTotals(lanes: readonly LaneSnapshot[], atMs: number): string {
  const isCapped = lanes.some(({ depthIsCapped }) => depthIsCapped);
  const ages = lanes.flatMap(({ oldestAgeMs }) => (oldestAgeMs === null ? [] : [oldestAgeMs]));
  return [
    timeOfDay(atMs).slice(0, 8),
    counted(lanes.length, 'lane'),
    `${thousands(sum(lanes, ({ depth }) => depth))}${isCapped ? '+' : ''} waiting`,
    `${thousands(sum(lanes, ({ running }) => running))} running`,
    `${sum(lanes, ({ arrivalRate }) => arrivalRate).toFixed(1)}/s in`,
    `${sum(lanes, ({ completionRate }) => completionRate).toFixed(1)}/s out`,
    ...(ages.length === 0 ? [] : [`oldest ${shortDuration(Math.max(...ages))}`]),
  ].join('  ');
}

function workerTotals(workers: readonly WorkerSnapshot[]): string {
  const silent = workers.filter((worker) => workerStateOf(worker) === 'silent').length;
  const live = workers.filter((worker) => workerStateOf(worker) !== 'silent');
  return [
    counted(live.length, 'worker'),
    `${thousands(sum(live, ({ running }) => running))} of ${counted(
      sum(live, ({ concurrency }) => concurrency),
      'slot',
    )} busy`,
    ...(silent === 0 ? [] : [`${silent} silent`]),
  ].join('  ');
}

function total(text: string, columns: number | null): Line {
  return note(text, columns, 'strong');
}

function note(text: string, columns: number | null, tone: Tone = 'plain'): Line {
  return [[columns === null ? text : cutTo(text, columns), tone]];
}

function rest(count: number, noun: string): Line[] {
  return count > 0 ? [[[`… ${counted(count, `more ${noun}`)}`, 'dim']]] : [];
}
