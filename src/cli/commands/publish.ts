/**
 * `flowfabric publish`: publishes to a topic, for executions that wait for it now or later.
 */
import { LIMITS } from '../../contract/limits.ts';
import type { CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import { parseDuration, readInput } from '../input.ts';
import { withEngine, type Session } from '../session.ts';
import { printable } from '../../contract/secrets.ts';

interface PublishOptions {
  namespace?: string;
  keep?: string;
}

export const publish: CommandSpec = {
  name: 'publish',
  summary: 'publish to a topic',
  description:
    'Publish to a topic. Executions that wait for it resume; the latest is kept for those\nthat wait later.',
  arguments: [
    ['<topic>', 'the name of the topic'],
    ['[payload]', 'what to publish: JSON, @file, or - for stdin (default: null)'],
  ],
  options: [
    ['--namespace <name>', 'the namespace (default: default)'],
    ['--keep <duration>', 'how long it is kept for later waits (default: 7d)'],
  ],
  examples: [
    `flowfabric publish shipment.packed:42 '{"parcel":7}'`,
    'flowfabric publish prices.changed @prices.json --keep 1h',
  ],
  action: run,
};

async function run(
  session: Session,
  { namespace, keep }: PublishOptions,
  topic: string,
  payload: string | undefined,
): Promise<number> {
  const keepMs = keep === undefined ? undefined : parseDuration(keep, '--keep', LIMITS.delayMs);
  const data = payload === undefined ? null : await readInput(payload, 'payload');
  return withEngine(session, { listen: 'off' }, async (engine) => {
    const published = await engine.publish(topic, data, {
      ...(namespace === undefined ? {} : { namespace }),
      ...(keepMs === undefined ? {} : { keep: keepMs }),
    });
    session.printer.result(published, [[['published to '], [printable(topic), 'strong']]]);
    return EXIT.ok;
  });
}
