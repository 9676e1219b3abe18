/**
 * `flowfabric workers list`: the registered workers, what they run, and when they last reported. A list, so one object per
 * line as JSON.
 */
import type { WorkerSnapshot } from '../../contract/operations.ts';
import type { CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import type { Line } from '../style.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';

const HEADINGS = ['WORKER', 'INSTANCE', 'RUNNING', 'LAST SEEN', 'STATE', 'VERSION', 'TASKS', 'LANES'];
const GAP = '  ';

export const workers: CommandSpec = {
  name: 'workers',
  summary: 'list the workers',
  description: 'The registered workers.',
  examples: ['flowfabric workers list'],
  commands: [
    {
      name: 'list',
      summary: 'list the workers',
      description:
        'List the registered workers, newest first. A live worker reports about\nevery 10 seconds.',
      examples: ['flowfabric workers list', 'flowfabric workers list --json | jq .workerId'],
      action: list,
    },
  ],
};

async function list(session: Session): Promise<number> {
  const { printer } = session;
  const found = await withEngine(session, { listen: 'off' }, (engine) => engine.workers.list());
  if (found.length === 0) printer.note('no worker is registered.');
  const lines = tableOf(found.map(cellsOf));
  if (printer.format === 'json') for (const worker of found) printer.result(worker, []);
  else if (found.length > 0) printer.result(found, lines);
  return EXIT.ok;
}

/** Three missed heartbeats: it was killed, or cannot reach the database. Its leases lapse by themselves. */
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
    worker.lanes === null ? 'all' : worker.lanes.join(','),
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
