/**
 * Workers as a table: what each runs, and how long ago it was heard of. Used by `workers list` and `top`.
 */
import type { WorkerSnapshot } from '../../contract/operations.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { printable } from '../../contract/secrets.ts';
import type { Line, Span, Tone } from '../style.ts';
import { column, tableOf } from '../table.ts';

/** Three missed heartbeats: it was killed, or cannot reach the database. Its leases lapse by themselves. */
const SILENT_AFTER_MS = 30_000;

type WorkerState = 'working' | 'stopping' | 'silent';

const TONES: Record<WorkerState, Tone> = { working: 'plain', stopping: 'warn', silent: 'bad' };

const COLUMNS = [
  column('WORKER', 'text', { isOptional: true }),
  column('INSTANCE'),
  column('STATE', 'whole'),
  column('RUNNING', 'number'),
  column('SEEN', 'number'),
  column('VERSION', 'text', { isOptional: true }),
  column('TASKS'),
  column('LANES'),
];

export function workerStateOf(worker: WorkerSnapshot): WorkerState {
  if (worker.silentForMs > SILENT_AFTER_MS) return 'silent';
  return worker.stopping ? 'stopping' : 'working';
}

export function workerLines(workers: readonly WorkerSnapshot[], width: number | null): Line[] {
  return tableOf(COLUMNS, workers.map(cellsOf), width);
}

/** A worker that is gone is dimmed, but for the word that says so. */
function cellsOf(worker: WorkerSnapshot): Span[] {
  const state = workerStateOf(worker);
  const tone: Tone = state === 'silent' ? 'dim' : 'plain';
  const { workerId, workerInstanceId, running, concurrency, silentForMs, version, kinds, lanes } = worker;
  return [
    [printable(workerId), tone],
    [printable(workerInstanceId), tone],
    [state, TONES[state]],
    [`${running}/${concurrency}`, tone],
    [shortDuration(silentForMs), tone],
    [printable(version ?? '-'), tone],
    [printable(kinds.join(',')), tone],
    [lanes === null ? 'all' : printable(lanes.join(',')), tone],
  ];
}
