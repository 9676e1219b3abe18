/**
 * `flowfabric consumers`: who follows the event feed under a name, how far behind each is and who reads for it; and forgetting
 * one. A list, so one object per line as JSON, positions as text.
 */
import { EngineError } from '../contract/errors.ts';
import type { ConsumerSnapshot } from '../contract/feed.ts';
import { EXIT } from './exit-codes.ts';
import type { Span } from './look.ts';
import { tableRows } from './printer.ts';
import { printable } from './secrets.ts';
import { withEngine, type Session } from './session.ts';
import { instant, span } from './wording.ts';

export interface ConsumersOptions {
  forget?: string;
}

const HEADINGS = ['CONSUMER', 'LAG', 'BEHIND', 'MOVED', 'HOLDER', 'FAILURES', 'ERROR'];

export async function consumersCommand(options: ConsumersOptions, session: Session): Promise<number> {
  if (options.forget !== undefined) return forget(options.forget, session);
  const { printer } = session;
  const consumers = await withEngine(session, { listen: 'off' }, (engine) => engine.listConsumers());
  if (consumers.length === 0) printer.note('there is no consumer.');
  if (printer.format === 'json') {
    for (const { position, lag, ...rest } of consumers)
      printer.result({ ...rest, position: String(position), lag: String(lag) }, []);
  } else if (consumers.length > 0) {
    const heading = HEADINGS.map((text): Span => [text, 'dim']);
    printer.result(consumers, tableRows([heading, ...consumers.map(cellsOf)], []));
  }
  return EXIT.ok;
}

async function forget(name: string, session: Session): Promise<number> {
  const isForgotten = await withEngine(session, { listen: 'off' }, (engine) => engine.forgetConsumer(name));
  if (!isForgotten) throw new EngineError('not_found', `There is no consumer ${printable(name)}.`);
  session.printer.result({ name, outcome: 'forgotten' }, [[[`${printable(name)}  `], ['forgotten', 'good']]]);
  return EXIT.ok;
}

function cellsOf(consumer: ConsumerSnapshot): Span[] {
  const { name, lag, lagMs, movedAtMs, holder, failures, errorCode } = consumer;
  return [
    [printable(name)],
    [lag.toLocaleString('en-US')],
    [lag === 0n ? '-' : span(lagMs)],
    [instant(movedAtMs)],
    [printable(holder ?? '-')],
    failures === 0 ? ['0'] : [String(failures), 'bad'],
    [printable(errorCode ?? '')],
  ];
}
