/**
 * `flowfabric top`: lanes, workers and rates, redrawn until q or Ctrl-C is pressed. Without a terminal, and as JSON, it
 * prints one snapshot. Each refresh costs what `lanes list` and `workers list` cost.
 */
import type { Connection } from '../../connect/connection.ts';
import { isOutage } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { CommandSpec } from '../command.ts';
import { topLines, type Size, type TopSnapshot } from '../drawing/top.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { parseDuration } from '../input.ts';
import { isLive, showLive } from '../live-screen.ts';
import { withEngine, type Session } from '../session.ts';
import type { Line } from '../style.ts';
import { cutLine } from '../wording.ts';

interface TopOptions {
  every: string;
}

/** Refreshing faster would only keep the database busy. */
const EVERY_MIN_MS = 500;
const EVERY_MAX_MS = 3_600_000;

export const top: CommandSpec = {
  name: 'top',
  summary: 'watch lanes, workers and rates',
  description:
    'Watch lanes, workers and rates. q or Ctrl-C quits. Without a terminal it prints\none snapshot, and so it does with --json.',
  options: [['--every <duration>', 'how often it is refreshed', { default: '2s' }]],
  examples: ['flowfabric top', 'flowfabric top --json | jq .lanes'],
  action: run,
};

async function run(session: Session, options: TopOptions): Promise<number> {
  const everyMs = parseDuration(options.every, '--every', EVERY_MAX_MS);
  if (everyMs < EVERY_MIN_MS) throw new UsageError(`--every must be at least ${EVERY_MIN_MS}ms.`);
  const { printer } = session;
  return withEngine(session, { listen: 'off' }, async (engine) => {
    if (isLive(printer)) await watch(engine, session, everyMs);
    else {
      const snapshot = await readSnapshot(engine);
      printer.result(snapshot, topLines(snapshot, { columns: printer.columns, rows: null }));
    }
    session.interrupted.throwIfAborted();
    return EXIT.ok;
  });
}

/** The first thousand lanes by name: on a screen there is room for far fewer. */
async function readSnapshot(engine: Connection): Promise<TopSnapshot> {
  const { lanes } = await engine.lanes.list({ limit: LIMITS.listPage });
  return { lanes, workers: await engine.workers.list(), atMs: await engine.upkeep.serverTimeMs() };
}

/** While the database is away, the last picture stays, with the reason below it. */
async function watch(engine: Connection, { printer, interrupted }: Session, everyMs: number): Promise<void> {
  let last = await readSnapshot(engine);
  await showLive({
    output: process.stdout,
    input: process.stdin,
    style: printer.style,
    everyMs,
    interrupted,
    interrupt: () => void process.emit('SIGINT', 'SIGINT'),
    async read() {
      try {
        last = await readSnapshot(engine);
      } catch (error) {
        if (!isOutage(error)) throw error;
        const { message } = error;
        return (size) => [...topLines(last, { ...size, rows: size.rows - 1 }), outage(message, size)];
      }
      return (size) => topLines(last, size);
    },
  });
}

function outage(message: string, { columns }: Size): Line {
  return [[cutLine(`${message} Retrying.`, columns!), 'bad']];
}
