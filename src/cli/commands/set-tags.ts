/**
 * `flowfabric set-tags`: adds, replaces and removes tags of an execution, and prints the tags it has afterwards. With --json
 * it prints one object.
 */
import { EngineError } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import type { TagsRequest } from '../../contract/operations.ts';
import { AN_ID, BY_OPTION, ID_ARGUMENT, type CommandSpec } from '../command.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { parseTags } from '../input.ts';
import type { Line } from '../style.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';

interface TagOptions {
  remove?: string[];
  by?: string;
}

export const setTags: CommandSpec = {
  name: 'set-tags',
  alias: 'tag',
  summary: 'change the tags of an execution',
  description: 'Add, replace and remove tags of an execution, and print its tags.',
  arguments: [ID_ARGUMENT, ['[key=value...]', 'tags to add or replace']],
  options: [['--remove <key>', 'a tag to remove', { repeatable: true }], BY_OPTION],
  examples: [`flowfabric set-tags ${AN_ID} ticket=4711 --remove draft`],
  action: run,
};

async function run(
  session: Session,
  options: TagOptions,
  id: string,
  given: readonly string[],
): Promise<number> {
  parseExecutionId(id, 'id');
  const request = readRequest(given, options);
  const answer = await withEngine(session, { listen: 'off' }, (engine) =>
    engine.executions.setTags(id, request),
  );
  if (answer.outcome === 'not_found')
    throw new EngineError('not_found', `There is no execution ${printable(id)}.`);
  const pairs = Object.entries(answer.tags).map(([key, value]) => printable(`${key}=${value}`));
  const lines = pairs.toSorted().map((pair): Line => [[pair]]);
  session.printer.result({ executionId: id, ...answer }, lines);
  return EXIT.ok;
}

function readRequest(pairs: readonly string[], { remove = [], by }: TagOptions): TagsRequest {
  if (pairs.length === 0 && remove.length === 0)
    throw new UsageError('Give key=value, or --remove with a key.');
  const odd = pairs.find((pair) => pair.indexOf('=') < 1);
  if (odd !== undefined) throw new UsageError(`A tag must be key=value, not ${JSON.stringify(odd)}.`);
  const set = parseTags(pairs);
  const both = remove.find((key) => Object.hasOwn(set, key));
  if (both !== undefined) throw new UsageError(`${JSON.stringify(both)} is both set and removed.`);
  return {
    ...(pairs.length === 0 ? {} : { set }),
    ...(remove.length === 0 ? {} : { remove }),
    ...(by === undefined ? {} : { by }),
  };
}
