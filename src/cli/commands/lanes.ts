/**
 * `flowfabric lanes`: the queues, how much waits in each and how fast it is processed; pausing one and resuming it. The
 * list is one object per line as JSON.
 */
import { LIMITS } from '../../contract/limits.ts';
import type { LaneSnapshot } from '../../contract/operations.ts';
import { BY_OPTION, type CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import type { Span } from '../style.ts';
import { tableRows } from '../printer.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { cutLine, instant } from '../wording.ts';

const HEADINGS = ['LANE', 'STATE', 'DEPTH', 'RUNNING', 'OLDEST', 'ARRIVALS/S', 'COMPLETIONS/S', 'PAUSED'];
/** Of the note on a pause; the rest is in the JSON. */
const PAUSE_CHARACTERS = 100;
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
  ],
};

async function list(session: Session): Promise<number> {
  const { printer } = session;
  const all = await withEngine(session, { listen: 'off' }, async (engine) => {
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
  });
  if (all.length === 0) printer.note('there is no lane yet: the first submit creates one.');
  if (printer.format === 'json') for (const lane of all) printer.result(lane, []);
  else if (all.length > 0) {
    const heading = HEADINGS.map((text): Span => [text, 'dim']);
    printer.result(all, tableRows([heading, ...all.map(cellsOf)], []));
  }
  return EXIT.ok;
}

function cellsOf(lane: LaneSnapshot): Span[] {
  return [
    [printable(lane.lane)],
    lane.paused ? ['paused', 'warn'] : ['open'],
    [`${lane.depth}${lane.depthIsCapped ? '+' : ''}`],
    [String(lane.running)],
    [lane.oldestAgeMs === null ? '-' : shortDuration(lane.oldestAgeMs)],
    [lane.arrivalRate.toFixed(1)],
    [lane.completionRate.toFixed(1)],
    [cutLine(pauseOf(lane), PAUSE_CHARACTERS)],
  ];
}

function pauseOf({ pausedAtMs, pausedBy, pauseReason }: LaneSnapshot): string {
  if (pausedAtMs === null) return '';
  const by = pausedBy === null ? '' : ` by ${pausedBy}`;
  return `since ${instant(pausedAtMs)}${by}${pauseReason === null ? '' : `: ${pauseReason}`}`;
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
