/**
 * `flowfabric workers`: who is registered, what they run, and when they were last heard of. A list, so one object per
 * line as JSON.
 */
import type { WorkerSnapshot } from '../../contract/engine.ts';
import { EXIT } from '../exit-codes.ts';
import type { Line } from '../look.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';

const HEADINGS = ['WORKER', 'INSTANCE', 'RUNNING', 'LAST HEARD OF', 'STATE', 'VERSION', 'TASKS', 'LANES'];
const GAP = '  ';

export async function workersCommand(session: Session): Promise<number> {
  const { printer } = session;
  const workers = await withEngine(session, { listen: 'off' }, (engine) => engine.listWorkers());
  if (workers.length === 0) printer.note('no worker is registered.');
  const lines = tableOf(workers.map(cellsOf));
  if (printer.format === 'json') for (const worker of workers) printer.result(worker, []);
  else if (workers.length > 0) printer.result(workers, lines);
  return EXIT.ok;
}

/** Three missed words: it was killed, or cannot reach the database. Its leases lapse by themselves. */
const SILENT_AFTER_MS = 30_000;

function stateOf(worker: WorkerSnapshot): string {
  if (worker.silentForMs > SILENT_AFTER_MS) return 'silent';
  return worker.stopping ? 'stopping' : 'working';
}

function cellsOf(worker: WorkerSnapshot): string[] {
  return [
    worker.workerId,
    worker.workerInstanceId,
    `${worker.running}/${worker.concurrency}`,
    `${Math.round(worker.silentForMs / 1_000)} s ago`,
    stateOf(worker),
    worker.version ?? '-',
    worker.kinds.join(','),
    worker.lanes === null ? 'every' : worker.lanes.join(','),
  ].map(printable);
}

function tableOf(rows: readonly string[][]): Line[] {
  const widths = HEADINGS.map((heading, column) =>
    Math.max(heading.length, ...rows.map((cells) => cells[column]!.length)),
  );
  const lineOf = (cells: readonly string[]): string =>
    cells
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join(GAP)
      .trimEnd();
  return [[[lineOf(HEADINGS), 'dim']], ...rows.map((cells): Line => [[lineOf(cells)]])];
}
