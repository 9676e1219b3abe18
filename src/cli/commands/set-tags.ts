/**
 * `flowfabric set-tags`: adds, replaces and removes tags of an execution, and prints the tags it has afterwards. With --json
 * it prints one object.
 */
import type { TagsRequest } from '../../contract/operations.ts';
import { AN_ID, BY_OPTION, ID_ARGUMENT, type CommandSpec } from '../command.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { parseTags } from '../input.ts';
import type { Line } from '../style.ts';
import { printable } from '../../contract/secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { checkId, executionIdOf, noExecution } from '../short-ids.ts';

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
  options: [['--remove <key>', 'a tag to remove', { isRepeatable: true }], BY_OPTION],
  examples: [`flowfabric set-tags ${AN_ID} ticket=4711 --remove draft`],
  action: run,
};

async function run(
  session: Session,
  options: TagOptions,
  given: string,
  pairs: readonly string[],
): Promise<number> {
  checkId(given);
  const request = readRequest(pairs, options);
  return withEngine(session, { listen: 'off' }, async (engine) => {
    const executionId = await executionIdOf(engine, session, given);
    const answer = await engine.executions.setTags(executionId, request);
    if (answer.outcome === 'not_found') throw await noExecution(engine, given);
    const tags = Object.entries(answer.tags).map(([key, value]) => printable(`${key}=${value}`));
    session.printer.result(
      { executionId, ...answer },
      tags.toSorted().map((tag): Line => [[tag]]),
    );
    if (tags.length === 0) session.printer.note('it has no tags.');
    return EXIT.ok;
  });
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
