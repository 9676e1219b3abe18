/**
 * `flowfabric events tail`: prints events as they are committed, one line each, until it is interrupted, --limit is reached
 * or, with --no-follow, everything there is was printed. As JSON one object per line, with positions as strings; the
 * command that continues is printed on stderr.
 */
import { once } from 'node:events';
import type { Connection } from '../../connect/connection.ts';
import { isEngineError } from '../../contract/errors.ts';
import { EVENT_FAMILIES, type EventFamily, type FeedEvent } from '../../contract/events.ts';
import type { EventsFilter, EventSubscription } from '../../contract/feed.ts';
import type { CommandSpec } from '../command.ts';
import { eventLines } from '../drawing/event-line.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { placeAsOption, printRefusal, refusedPlace } from '../feed-place.ts';
import { filterWords, inOptions, readFilter, schemaWords, type FilterOptions } from '../filter-options.ts';
import { parseWhole } from '../input.ts';
import { withEngine, type Session } from '../session.ts';
import { checkId, executionIdOf, flowIdOf, shortIds } from '../short-ids.ts';
import { commandLine } from '../wording.ts';

interface TailOptions extends Pick<FilterOptions, 'namespace' | 'tag' | 'kind' | 'lane'> {
  from?: string;
  family?: EventFamily[];
  type?: string[];
  execution?: string;
  flow?: string;
  limit?: string;
  /** False with --no-follow. */
  follow: boolean;
}

const LIMIT = { min: 1, max: 1_000_000_000 };

export const events: CommandSpec = {
  name: 'events',
  summary: 'print events as they happen',
  description: 'The feed of events.',
  examples: ['flowfabric events tail --family completion'],
  commands: [
    {
      name: 'tail',
      summary: 'print events as they are committed',
      description: 'Print the events that match all conditions as they are committed, until\ninterrupted.',
      options: [
        ['--from <cursor>', 'start after this cursor; or now, or beginning (default: now)'],
        ['--namespace <name>', 'of executions of this namespace'],
        ['--tag <key=value>', 'of executions with this tag', { isRepeatable: true }],
        [
          '--family <name>',
          `one of ${EVENT_FAMILIES.join(', ')}`,
          { isRepeatable: true, choices: EVENT_FAMILIES },
        ],
        ['--type <name>', 'of this type, such as success', { isRepeatable: true }],
        ['--kind <task>', 'of executions of this task'],
        ['--lane <name>', 'of executions in this lane'],
        ['--execution <id>', 'of this execution'],
        ['--flow <id>', 'of this flow and its members'],
        ['--limit <n>', 'stop after this many'],
        ['--no-follow', 'stop after everything that was committed before; use with --from'],
      ],
      examples: [
        'flowfabric events tail --family completion --type failed',
        'flowfabric events tail --from beginning --no-follow --json | jq .type',
      ],
      action: tail,
    },
  ],
};

async function tail(session: Session, options: TailOptions): Promise<number> {
  const { from = 'now', execution, flow, family, type, follow: isFollowing } = options;
  const refusal = refusedPlace(from, '--from');
  if (refusal !== null) return printRefusal(refusal, session);
  if (execution !== undefined) checkId(execution, '--execution');
  if (flow !== undefined) checkId(flow, '--flow');
  const limit = options.limit === undefined ? LIMIT.max : parseWhole(options.limit, '--limit', LIMIT);
  return withEngine(session, { listen: isFollowing ? 'on' : 'off' }, async (engine) => {
    const executionId =
      execution === undefined
        ? {}
        : { executionId: await executionIdOf(engine, session, execution, '--execution') };
    const flowId = flow === undefined ? {} : { flowId: await flowIdOf(engine, session, flow, '--flow') };
    const filter: EventsFilter = {
      ...(await readFilter(options, engine, session, null)),
      ...(family === undefined ? {} : { families: family }),
      ...(type === undefined ? {} : { types: type }),
      ...executionId,
      ...flowId,
    };
    const end = isFollowing ? {} : { until: 'now' as const };
    const continueFrom: ContinueFrom = (cursor) =>
      commandLine([...tailWords(options, filter, session), '--from', cursor]);
    try {
      const subscription = await engine.events.subscribe({
        from,
        filter,
        ...end,
        signal: session.interrupted,
      });
      await follow(subscription, limit, { engine, session, continueFrom });
    } catch (error) {
      throw inTail(inOptions(typeAsOption(error)), continueFrom);
    }
    session.interrupted.throwIfAborted();
    return EXIT.ok;
  });
}

/** The engine knows which types each family has. */
function typeAsOption(error: unknown): unknown {
  if (!isEngineError(error) || !error.field?.startsWith('filter.types')) return error;
  return new UsageError(error.message.replace(/^filter\.types(?:\[\d+\])?/, '--type'));
}

/** The command that continues from a cursor. */
type ContinueFrom = (cursor: string) => string;

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
    'events',
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

interface Follow {
  engine: Connection;
  session: Session;
  continueFrom: ContinueFrom;
}

/** However it ends, prints the command that continues without a gap; unless the reader of the output is gone. */
async function follow(
  subscription: EventSubscription<FeedEvent>,
  limit: number,
  { engine, session, continueFrom }: Follow,
): Promise<void> {
  let isRead = true;
  const onGone = (): void => {
    isRead = false;
  };
  process.stdout.once('error', onGone);
  try {
    await printEvents(subscription, limit, { engine, session });
  } catch (error) {
    // Continuing from this cursor is what failed.
    if (isEngineError(error) && error.code === 'cursor_expired') isRead = false;
    throw error;
  } finally {
    process.stdout.off('error', onGone);
    const { cursor } = subscription;
    if (isRead) session.printer.next('continue with', cursor, continueFrom(cursor));
  }
}

async function printEvents(
  subscription: EventSubscription<FeedEvent>,
  limit: number,
  { engine, session }: Pick<Follow, 'engine' | 'session'>,
): Promise<void> {
  const { printer, interrupted } = session;
  const lines = eventLines(printer.columns);
  let left = limit;
  for await (const item of subscription) {
    const json = { ...item, position: String(item.position) };
    if (item.type !== 'disconnected') {
      printer.result(json, lines(item, await shortIds(engine, session, json)));
      left -= 1;
    } else if (printer.format === 'json') printer.result(json, []);
    else printer.note(`${item.reason} Nothing is lost: tail continues when the database is back.`);
    if (left === 0) return;
    // A slow reader of the output slows the reading down, instead of filling the memory.
    if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain', { signal: interrupted });
  }
}

/** When the events after a cursor are gone, what is left can be read from the oldest one. */
function inTail(error: unknown, continueFrom: ContinueFrom): unknown {
  return placeAsOption(error, '--from', (oldest) => `Read what is left with: ${continueFrom(oldest)}`);
}
