/**
 * `flowfabric lanes`: the queues, how much waits in each and how fast it goes; and holding one and letting it go. A list,
 * so one object per line as JSON.
 */
import { LIMITS } from '../../contract/limits.ts';
import type { LaneSnapshot } from '../../contract/operations.ts';
import { EXIT } from '../exit-codes.ts';
import type { Span } from '../look.ts';
import { tableRows } from '../printer.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { cutLine, instant, span } from '../wording.ts';

const HEADINGS = ['LANE', 'STATE', 'DEPTH', 'RUNNING', 'OLDEST', 'ARRIVALS/S', 'COMPLETIONS/S', 'PAUSED'];
/** Who paused a lane and why: the rest is in the JSON. */
const PAUSE_CHARACTERS = 100;
/** Pages of lanes that are listed: beyond that nobody reads a table. */
const PAGES_MAX = 100;

export async function lanesCommand(session: Session): Promise<number> {
  const { printer } = session;
  const lanes = await withEngine(session, { listen: 'off' }, async (engine) => {
    const found: LaneSnapshot[] = [];
    let cursor: string | null = null;
    for (let pages = 0; pages < PAGES_MAX; pages += 1) {
      const page = await engine.listLanes({
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
  if (lanes.length === 0) printer.note('there is no lane yet: the first submit makes one.');
  if (printer.format === 'json') for (const lane of lanes) printer.result(lane, []);
  else if (lanes.length > 0) {
    const heading = HEADINGS.map((text): Span => [text, 'dim']);
    printer.result(lanes, tableRows([heading, ...lanes.map(cellsOf)], []));
  }
  return EXIT.ok;
}

function cellsOf(lane: LaneSnapshot): Span[] {
  return [
    [printable(lane.lane)],
    lane.paused ? ['paused', 'warn'] : ['open'],
    [`${lane.depth}${lane.depthIsCapped ? '+' : ''}`],
    [String(lane.running)],
    [lane.oldestAgeMs === null ? '-' : span(lane.oldestAgeMs)],
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

export type LaneVerb = 'pause' | 'resume';

export interface LaneOptions {
  reason?: string;
  by?: string;
}

export async function laneCommand(
  verb: LaneVerb,
  lane: string,
  options: LaneOptions,
  session: Session,
): Promise<number> {
  const { printer } = session;
  const answer = await withEngine(session, { listen: 'off' }, (engine) =>
    verb === 'pause' ? engine.pauseLane(lane, options) : engine.resumeLane(lane),
  );
  const was = verb === 'pause' ? 'was paused before' : 'was not paused';
  printer.result({ lane, ...answer }, [
    [[`${printable(lane)}  `], answer.repeated ? [was] : [answer.outcome, 'good']],
  ]);
  if (answer.outcome === 'paused' && answer.isNew)
    printer.note(`No work was ever submitted to lane ${printable(lane)}.`);
  return EXIT.ok;
}
