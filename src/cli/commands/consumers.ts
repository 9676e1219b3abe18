/**
 * `flowfabric consumers`: who follows the event feed under a name, where each is and who reads for it; and moving or forgetting
 * one. A list, so one object per line as JSON, positions as text.
 */
import type { Command } from 'commander';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import type { ConsumerSnapshot } from '../../contract/feed.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import type { Span } from '../look.ts';
import { tableRows } from '../printer.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { placeAsOption, refusedPlace, sayRefusal } from './tail.ts';
import { commandLine, instant, span } from '../wording.ts';

export interface ConsumersOptions {
  forget?: string;
  move?: string;
  to?: string;
}

const HEADINGS = ['CONSUMER', 'POSITION', 'CURSOR', 'LAG', 'BEHIND', 'MOVED', 'HOLDER', 'FAILURES', 'ERROR'];

export function describeConsumers(command: Command): Command {
  return command
    .summary('list who follows the events; move or forget one')
    .description('List the consumers of events: where each is, how far behind, who reads, what failed.')
    .option('--move <name>', 'move it, past events it cannot handle or back to handle them again; needs --to')
    .option('--to <cursor>', 'with --move: after this cursor; or now, or beginning')
    .option('--forget <name>', 'forget its place; events are no longer kept for it');
}

export async function consumersCommand(options: ConsumersOptions, session: Session): Promise<number> {
  const { forget: forgotten, move: moved, to } = options;
  if (moved !== undefined && forgotten !== undefined)
    throw new UsageError('Either --move or --forget, not both.');
  if (moved !== undefined && to === undefined)
    throw new UsageError('--move needs --to: now, beginning or a cursor.');
  if (moved === undefined && to !== undefined) throw new UsageError('--to needs --move.');
  if (forgotten !== undefined) return forget(forgotten, session);
  if (moved !== undefined && to !== undefined) return move(moved, to, session);
  return list(session);
}

async function list(session: Session): Promise<number> {
  const { printer } = session;
  const consumers = await withEngine(session, { listen: 'off' }, (engine) => engine.listConsumers());
  if (consumers.length === 0) printer.note('there is no consumer.');
  if (printer.format === 'json') {
    for (const consumer of consumers) printer.result(asJson(consumer), []);
  } else if (consumers.length > 0) {
    const heading = HEADINGS.map((text): Span => [text, 'dim']);
    printer.result(consumers, tableRows([heading, ...consumers.map(cellsOf)], []));
  }
  return EXIT.ok;
}

async function move(name: string, to: string, session: Session): Promise<number> {
  const refusal = refusedPlace(to, '--to');
  if (refusal !== null) return sayRefusal(refusal, session);
  const words = ['flowfabric', 'consumers', ...schemaWords(session), '--move', name, '--to', 'beginning'];
  const consumer = await withEngine(session, { listen: 'off' }, (engine) =>
    engine.moveConsumer(name, to),
  ).catch((error: unknown) => {
    const named = nameAsOption(error, '--move');
    throw placeAsOption(named, '--to', () => `Move it to what is left with: ${commandLine(words)}`);
  });
  const { cursor, position, lag } = consumer;
  const rest = `  to position ${position} (${cursor}), ${events(lag)} behind`;
  session.printer.result({ ...asJson(consumer), outcome: 'moved' }, [
    [[`${printable(name)}  `], ['moved', 'good'], [rest]],
  ]);
  return EXIT.ok;
}

async function forget(name: string, session: Session): Promise<number> {
  const isForgotten = await withEngine(session, { listen: 'off' }, (engine) =>
    engine.forgetConsumer(name),
  ).catch((error: unknown) => {
    throw nameAsOption(error, '--forget');
  });
  if (!isForgotten) throw new EngineError('not_found', `There is no consumer ${printable(name)}.`);
  session.printer.result({ name, outcome: 'forgotten' }, [[[`${printable(name)}  `], ['forgotten', 'good']]]);
  return EXIT.ok;
}

/** A refused name in the words of the command line. */
function nameAsOption(error: unknown, option: string): unknown {
  if (!isEngineError(error) || error.code !== 'invalid_input' || error.field !== 'name') return error;
  return new UsageError(error.message.replace(/^name /, `${option} `));
}

function events(count: bigint): string {
  return count === 1n ? '1 event' : `${count.toLocaleString('en-US')} events`;
}

/** Positions as text: they may be larger than a JSON number holds. */
function asJson({ position, lag, ...rest }: ConsumerSnapshot): object {
  return { ...rest, position: String(position), lag: String(lag) };
}

function cellsOf(consumer: ConsumerSnapshot): Span[] {
  const { name, position, cursor, lag, lagMs, movedAtMs, holder, failures, errorCode } = consumer;
  return [
    [printable(name)],
    [String(position)],
    [cursor],
    [lag.toLocaleString('en-US')],
    [lag === 0n ? '-' : span(lagMs)],
    [instant(movedAtMs)],
    [printable(holder ?? '-')],
    failures === 0 ? ['0'] : [String(failures), 'bad'],
    [printable(errorCode ?? '')],
  ];
}
