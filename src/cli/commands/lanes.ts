/**
 * `flowfabric lanes`: the queues, how much waits in each and how fast it is processed; pausing one and resuming it. The
 * list is one object per line as JSON.
 */
import type { Connection } from '../../connect/connection.ts';
import { LIMITS } from '../../contract/limits.ts';
import { LANE_EVENTS, type LaneEvents, type LaneSnapshot } from '../../contract/operations.ts';
import { BY_OPTION, type CommandSpec } from '../command.ts';
import { laneLines } from '../drawing/lane.ts';
import { EXIT } from '../exit-codes.ts';
import { printable } from '../../contract/secrets.ts';
import { withEngine, type Session } from '../session.ts';

const NO_LANES =
  'there is no lane yet: the first submit creates one. Try: flowfabric submit TASK --lane mail';
/** Pages of lanes that are listed; a longer table is of no use. */
const PAGES_MAX = 100;

const LANE_ARGUMENT = ['<lane>', 'its name'] as const;

export const lanes: CommandSpec = {
  name: 'lanes',
  summary: 'list, pause and resume lanes',
  description: 'The lanes: how much waits in each, and how fast it is processed.',
  examples: ['flowfabric lanes list', 'flowfabric lanes pause mail'],
  commands: [
    {
      name: 'list',
      summary: 'list the lanes',
      description: 'List the lanes: how much waits, since when, and how fast it is processed.',
      examples: ['flowfabric lanes list', 'flowfabric lanes list --json'],
      action: list,
    },
    {
      name: 'pause',
      summary: 'stop giving out work of a lane',
      description: 'Stop giving out work of a lane. What is running continues.',
      arguments: [LANE_ARGUMENT],
      options: [['--reason <text>', 'why'], BY_OPTION],
      examples: [`flowfabric lanes pause mail --reason 'the mail server is down'`],
      action: pause,
    },
    {
      name: 'resume',
      summary: 'give out work of a lane again',
      description: 'Give out work of a lane again.',
      arguments: [LANE_ARGUMENT],
      examples: ['flowfabric lanes resume mail'],
      action: resume,
    },
    {
      name: 'set-events',
      summary: 'write all events about what is submitted to a lane, or the usual ones',
      description:
        'Set which events are written about executions that are submitted to a lane from now on: all of them, or the ' +
        'usual ones. All includes submits, steps, progress and results.',
      arguments: [LANE_ARGUMENT, ['<events>', 'all or usual', LANE_EVENTS]],
      examples: ['flowfabric lanes set-events mail all'],
      action: setEvents,
    },
  ],
};

async function list(session: Session): Promise<number> {
  const { printer } = session;
  const { all, nowMs } = await withEngine(session, { listen: 'off' }, async (engine) => ({
    all: await readLanes(engine, session),
    nowMs: await engine.upkeep.serverTimeMs(),
  }));
  if (all.length === 0) printer.note(NO_LANES);
  printer.list(all, laneLines(all, nowMs, printer.columns));
  return EXIT.ok;
}

/** All lanes, page by page, up to a limit that is noted. */
async function readLanes(engine: Connection, { printer }: Session): Promise<LaneSnapshot[]> {
  const found: LaneSnapshot[] = [];
  let cursor: string | null = null;
  for (let pages = 0; pages < PAGES_MAX; pages += 1) {
    const page = await engine.lanes.list({
      limit: LIMITS.listPage,
      ...(cursor === null ? {} : { cursor: cursor as string }),
    });
    found.push(...page.lanes);
    cursor = page.cursor;
    if (cursor === null) return found;
  }
  printer.note(`only the first ${found.length} lanes are listed.`);
  return found;
}

interface PauseOptions {
  reason?: string;
  by?: string;
}

async function pause(session: Session, options: PauseOptions, lane: string): Promise<number> {
  const { printer } = session;
  const answer = await withEngine(session, { listen: 'off' }, (engine) => engine.lanes.pause(lane, options));
  printResult(session, lane, answer, 'was already paused');
  if (answer.outcome === 'paused' && answer.isNew)
    printer.note(`No work was ever submitted to lane ${printable(lane)}.`);
  return EXIT.ok;
}

async function resume(session: Session, _options: object, lane: string): Promise<number> {
  const answer = await withEngine(session, { listen: 'off' }, (engine) => engine.lanes.resume(lane));
  printResult(session, lane, answer, 'was not paused');
  return EXIT.ok;
}

async function setEvents(session: Session, _options: object, lane: string, events: string): Promise<number> {
  const answer = await withEngine(session, { listen: 'off' }, (engine) =>
    engine.lanes.setEvents(lane, events as LaneEvents),
  );
  printResult(session, lane, { ...answer, outcome: `events: ${events}` }, `had events: ${events} already`);
  return EXIT.ok;
}

function printResult(
  { printer }: Session,
  lane: string,
  answer: { outcome: string; repeated: boolean },
  unchanged: string,
): void {
  printer.result({ lane, ...answer }, [
    [[`${printable(lane)}  `], answer.repeated ? [unchanged] : [answer.outcome, 'good']],
  ]);
}
