/**
 * `flowfabric tail`: events as they are committed, one line each, until it is interrupted, has printed as many as were
 * asked for, or is not to follow. As JSON one object a line, positions as text; how to go on from there is said on stderr.
 * Also how a place in the feed is read from the command line and how a refusal of one is told, for whoever takes one.
 */
import { once } from 'node:events';
import type { Command } from 'commander';
import { decodeCursor } from '../../contract/cursor.ts';
import { EngineError, isEngineError, type ErrorCode } from '../../contract/errors.ts';
import { EVENT_FAMILIES, type EventFamily, type FeedEvent } from '../../contract/events.ts';
import type { EventsFilter, EventSubscription } from '../../contract/feed.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { eventCells } from '../drawing/event-line.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import {
  collect,
  filterWords,
  inOptions,
  readFilter,
  schemaWords,
  type FilterOptions,
} from '../filter-options.ts';
import { parseWhole } from '../input.ts';
import { tableRows } from '../printer.ts';
import { withEngine, type Session } from '../session.ts';
import { commandLine } from '../wording.ts';

export interface TailOptions extends Pick<FilterOptions, 'namespace' | 'tag' | 'kind' | 'lane'> {
  from?: string;
  family?: string[];
  type?: string[];
  execution?: string;
  flow?: string;
  limit?: string;
  /** False with --no-follow. */
  follow: boolean;
}

const STARTS = ['now', 'beginning'];
const CURSOR_CODES: readonly ErrorCode[] = ['cursor_expired', 'cursor_ahead'];
const CURSOR_HINT =
  'a cursor is the word that tail printed or event.cursor gave you; or say now or beginning';
const LIMIT = { min: 1, max: 1_000_000_000 };
/** What most events need of each column but the last; a longer one moves those after it. */
const WIDTHS = [24, 25, 45, 12, 8];

export function describeTail(command: Command): Command {
  return command
    .summary('print what happens, as it happens')
    .description('Print events as they are committed, those that fit all conditions, until interrupted.')
    .option('--from <cursor>', 'go on after this cursor; or now, or beginning (default: now)')
    .option('--namespace <name>', 'of executions of this namespace')
    .option('--tag <key=value>', 'of executions with this tag; may be given more than once', collect)
    .option('--family <name>', `one of ${EVENT_FAMILIES.join(', ')}; may be given more than once`, collect)
    .option('--type <name>', 'of this type, such as success; may be given more than once', collect)
    .option('--kind <task>', 'of executions of this task')
    .option('--lane <name>', 'of executions in this lane')
    .option('--execution <id>', 'of this execution')
    .option('--flow <id>', 'of this flow and its members')
    .option('--limit <n>', 'end after so many')
    .option('--no-follow', 'end when all that was committed before is printed; goes with --from');
}

export async function tailCommand(options: TailOptions, session: Session): Promise<number> {
  const { from = 'now', execution, flow, family, type, follow: isFollowing } = options;
  const refusal = refusedPlace(from, '--from');
  if (refusal !== null) return sayRefusal(refusal, session);
  if (execution !== undefined) parseExecutionId(execution, '--execution');
  if (flow !== undefined) parseExecutionId(flow, '--flow');
  const families = family?.map(parseFamily);
  const limit = options.limit === undefined ? LIMIT.max : parseWhole(options.limit, '--limit', LIMIT);
  return withEngine(session, { listen: isFollowing ? 'on' : 'off' }, async (engine) => {
    const filter: EventsFilter = {
      ...(await readFilter(options, engine, null)),
      ...(families === undefined ? {} : { families }),
      ...(type === undefined ? {} : { types: type }),
      ...(execution === undefined ? {} : { executionId: execution }),
      ...(flow === undefined ? {} : { flowId: flow }),
    };
    const end = isFollowing ? {} : { until: 'now' as const };
    const goOn: GoOn = (cursor) => commandLine([...tailWords(options, filter, session), '--from', cursor]);
    try {
      const subscription = await engine.subscribeEvents({ from, filter, ...end, signal: session.signal });
      await follow(subscription, limit, { session, goOn });
    } catch (error) {
      throw inTail(inOptions(typeAsOption(error)), goOn);
    }
    session.signal.throwIfAborted();
    return EXIT.ok;
  });
}

function parseFamily(name: string): EventFamily {
  const family = EVENT_FAMILIES.find((known) => known === name);
  if (family !== undefined) return family;
  throw new UsageError(`--family must be one of ${EVENT_FAMILIES.join(', ')}.`);
}

/** Why a place was refused, and what helps. */
interface Refusal {
  message: string;
  hint: string;
}

/** Null when the text names a place. An empty one is a variable that was not set, never a wish. */
export function refusedPlace(text: string, option: string): Refusal | null {
  if (STARTS.includes(text)) return null;
  if (text === '') return { message: `${option} is empty: say now or beginning.`, hint: CURSOR_HINT };
  if (/^\d+$/.test(text)) {
    const hint = `this is a position, not a cursor; ${CURSOR_HINT}`;
    return { message: `${option} has digits only.`, hint };
  }
  try {
    decodeCursor(text, option);
    return null;
  } catch (error) {
    if (isEngineError(error)) return { message: error.message, hint: CURSOR_HINT };
    throw error;
  }
}

/** As every error is told, with a hint of its own. */
export function sayRefusal({ message, hint }: Refusal, { printer }: Session): number {
  const code: ErrorCode = 'invalid_cursor';
  printer.aside({ error: { code, message, hint } }, [
    [[`flowfabric: ${message} [${code}]`]],
    [[`hint: ${hint}`]],
  ]);
  return EXIT.usage;
}

/** The engine knows which types the asked families have. */
function typeAsOption(error: unknown): unknown {
  if (!isEngineError(error) || !error.field?.startsWith('filter.types')) return error;
  return new UsageError(error.message.replace(/^filter\.types(?:\[\d+\])?/, '--type'));
}

/** The command that reads on from a cursor. */
type GoOn = (cursor: string) => string;

function tailWords(options: TailOptions, filter: EventsFilter, session: Session): string[] {
  const { families = [], types = [], executionId, flowId, namespace, lane, kind, tags } = filter;
  const shared = {
    ...(namespace === undefined ? {} : { namespace }),
    ...(lane === undefined ? {} : { lane }),
    ...(kind === undefined ? {} : { kind }),
    ...(tags === undefined ? {} : { tags }),
  };
  return [
    'flowfabric',
    'tail',
    ...schemaWords(session),
    ...families.flatMap((family) => ['--family', family]),
    ...types.flatMap((type) => ['--type', type]),
    ...filterWords(shared),
    ...(executionId === undefined ? [] : ['--execution', executionId]),
    ...(flowId === undefined ? [] : ['--flow', flowId]),
    ...(options.limit === undefined ? [] : ['--limit', options.limit]),
    ...(options.follow ? [] : ['--no-follow']),
  ];
}

/** Whatever ends it, the place is said from which nothing is missed; not to a reader who has gone away. */
async function follow(
  subscription: EventSubscription<FeedEvent>,
  limit: number,
  { session, goOn }: { session: Session; goOn: GoOn },
): Promise<void> {
  let isRead = true;
  const onGone = (): void => {
    isRead = false;
  };
  process.stdout.once('error', onGone);
  try {
    await printEvents(subscription, limit, session);
  } catch (error) {
    // Then going on from there is what is impossible.
    if (isEngineError(error) && error.code === 'cursor_expired') isRead = false;
    throw error;
  } finally {
    process.stdout.off('error', onGone);
    if (isRead) sayRest(subscription.cursor, goOn, session);
  }
}

function sayRest(cursor: string, goOn: GoOn, { printer }: Session): void {
  const command = goOn(cursor);
  printer.aside({ cursor, command }, [[['go on with', 'dim']], [[`  ${command}`]]]);
}

async function printEvents(
  subscription: EventSubscription<FeedEvent>,
  limit: number,
  { printer, signal }: Session,
): Promise<void> {
  const widths = [...WIDTHS];
  let left = limit;
  for await (const item of subscription) {
    const json = { ...item, position: String(item.position) };
    if (item.type !== 'disconnected') {
      printer.result(json, tableRows([eventCells(item)], widths));
      left -= 1;
    } else if (printer.format === 'json') printer.result(json, []);
    else printer.note(`${item.reason} Nothing is lost: tail continues when the database is back.`);
    if (left === 0) return;
    // A reader that is slow slows the reading, instead of filling the memory.
    if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain', { signal });
  }
}

/** Where the events of a refused cursor are gone, what is left can be read from the oldest one. */
function inTail(error: unknown, goOn: GoOn): unknown {
  return placeAsOption(error, '--from', (oldest) => `Read what is left with: ${goOn(oldest)}`);
}

/** A refused cursor in the words of the command line; `remedy` says what to do when its events are gone. */
export function placeAsOption(error: unknown, option: string, remedy: (oldest: string) => string): unknown {
  if (!isEngineError(error) || !CURSOR_CODES.includes(error.code)) return error;
  const { code, message, oldest } = error;
  // What the engine advises is for programs.
  const named = message.replace(/^(?:from|to) /, `${option} `).replace(/: go on from error\.oldest.*$/s, '.');
  if (oldest === undefined) return new EngineError(code, named, { cause: error });
  return new EngineError(code, `${named} ${remedy(oldest)}`, { oldest, cause: error });
}
