/**
 * `flowfabric workers list`: the registered workers, what they run, and when they last reported. A list, so one object per
 * line as JSON.
 */
import type { CommandSpec } from '../command.ts';
import { workerLines } from '../drawing/worker.ts';
import { EXIT } from '../exit-codes.ts';
import { withEngine, type Session } from '../session.ts';

const NO_WORKERS =
  'no worker is running. Start one in your application: startWorker(connection, { handlers })';

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
  if (found.length === 0) printer.note(NO_WORKERS);
  printer.list(found, workerLines(found, printer.columns));
  return EXIT.ok;
}
