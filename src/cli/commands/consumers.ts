/**
 * `flowfabric consumers`: the named consumers of the event feed, where each is and who reads for it; moving one and
 * forgetting one. The list is one object per line as JSON, with positions as strings.
 */
import { EngineError, isEngineError } from '../../contract/errors.ts';
import type { ConsumerSnapshot } from '../../contract/feed.ts';
import type { CommandSpec } from '../command.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { placeAsOption, printRefusal, refusedPlace } from '../feed-place.ts';
import { schemaWords } from '../filter-options.ts';
import type { Span } from '../style.ts';
import { printable } from '../../contract/secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { column, tableOf } from '../table.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import { commandLine } from '../wording.ts';

interface MoveOptions {
  to?: string;
}

const NO_CONSUMERS = "there is no consumer yet. One is created by connection.events.consume('name', handler)";

const COLUMNS = [
  column('CONSUMER'),
  column('POSITION', 'number'),
  column('CURSOR', 'whole'),
  column('LAG', 'number'),
  column('BEHIND', 'number'),
  column('MOVED', 'number'),
  column('HOLDER', 'text', { isOptional: true }),
  column('FAILURES', 'number'),
  column('ERROR'),
];

const NAME_ARGUMENT = ['<name>', 'its name'] as const;

export const consumers: CommandSpec = {
  name: 'consumers',
  summary: 'list, move and forget consumers of events',
  description: 'The named consumers of the event feed.',
  examples: ['flowfabric consumers list', 'flowfabric consumers move billing --to now'],
  commands: [
    {
      name: 'list',
      summary: 'list the consumers',
      description:
        'List the consumers of events: their positions, their lag, who reads for them\nand what failed.',
      examples: ['flowfabric consumers list', 'flowfabric consumers list --json'],
      action: list,
    },
    {
      name: 'move',
      summary: 'move a consumer to another position',
      description: 'Move a consumer past events it cannot handle, or back to handle them again.',
      arguments: [NAME_ARGUMENT],
      options: [['--to <cursor>', 'after this cursor; or now, or beginning (required)']],
      examples: ['flowfabric consumers move billing --to now'],
      action: move,
    },
    {
      name: 'forget',
      summary: 'forget a consumer',
      description: 'Forget a consumer and its position. Events are no longer kept for it.',
      arguments: [NAME_ARGUMENT],
      examples: ['flowfabric consumers forget billing'],
      action: forget,
    },
  ],
};

async function list(session: Session): Promise<number> {
  const { printer } = session;
  const { found, nowMs } = await withEngine(session, { listen: 'off' }, async (engine) => ({
    found: await engine.consumers.list(),
    nowMs: await engine.upkeep.serverTimeMs(),
  }));
  if (found.length === 0) printer.note(NO_CONSUMERS);
  const rows = found.map((consumer) => cellsOf(consumer, nowMs));
  printer.list(found.map(asJson), tableOf(COLUMNS, rows, printer.columns));
  return EXIT.ok;
}

async function move(session: Session, { to }: MoveOptions, name: string): Promise<number> {
  if (to === undefined) throw new UsageError(`Required option '--to <cursor>' not specified.`);
  const refusal = refusedPlace(to, '--to');
  if (refusal !== null) return printRefusal(refusal, session);
  const words = ['flowfabric', 'consumers', 'move', name, ...schemaWords(session), '--to', 'beginning'];
  const consumer = await withEngine(session, { listen: 'off' }, (engine) =>
    engine.consumers.move(name, to),
  ).catch((error: unknown) => {
    const command = commandLine(words);
    throw placeAsOption(asUsage(error), '--to', () => `Move it to what is left with: ${command}`);
  });
  const { cursor, position, lag } = consumer;
  const rest = `  to position ${position} (${cursor}), ${events(lag)} behind`;
  session.printer.result({ ...asJson(consumer), outcome: 'moved' }, [
    [[`${printable(name)}  `], ['moved', 'good'], [rest]],
  ]);
  return EXIT.ok;
}

async function forget(session: Session, _options: object, name: string): Promise<number> {
  const isForgotten = await withEngine(session, { listen: 'off' }, (engine) =>
    engine.consumers.forget(name),
  ).catch((error: unknown) => {
    throw asUsage(error);
  });
  if (!isForgotten) throw new EngineError('not_found', `There is no consumer ${printable(name)}.`);
  session.printer.result({ name, outcome: 'forgotten' }, [[[`${printable(name)}  `], ['forgotten', 'good']]]);
  return EXIT.ok;
}

/** A refused name is a mistake in the arguments. */
function asUsage(error: unknown): unknown {
  if (!isEngineError(error) || error.code !== 'invalid_input' || error.field !== 'name') return error;
  return new UsageError(error.message);
}

function events(count: bigint): string {
  return count === 1n ? '1 event' : `${count.toLocaleString('en-US')} events`;
}

/** Positions as strings: they may be larger than a JSON number can hold. */
function asJson({ position, lag, ...rest }: ConsumerSnapshot): object {
  return { ...rest, position: String(position), lag: String(lag) };
}

function cellsOf(consumer: ConsumerSnapshot, nowMs: number): Span[] {
  const { name, position, cursor, lag, lagMs, movedAtMs, holder, failures, errorCode } = consumer;
  return [
    [printable(name)],
    [String(position)],
    [cursor],
    [lag.toLocaleString('en-US')],
    [lag === 0n ? '-' : shortDuration(lagMs)],
    [shortDuration(nowMs - movedAtMs)],
    [printable(holder ?? '-')],
    failures === 0 ? ['0'] : [String(failures), 'bad'],
    [printable(errorCode ?? '')],
  ];
}
