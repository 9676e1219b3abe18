/**
 * `flowfabric tag`: adds, replaces and removes tags of an execution, and prints the tags it has then.
 */
import { EngineError } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import type { TagsRequest } from '../../contract/operations.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { parseTags } from '../input.ts';
import type { Line } from '../look.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';

export interface TagOptions {
  remove?: string[];
  by?: string;
}

export async function tagCommand(
  id: string,
  given: readonly string[],
  options: TagOptions,
  session: Session,
): Promise<number> {
  parseExecutionId(id, 'id');
  const request = readRequest(given, options);
  const answer = await withEngine(session, { listen: 'off' }, (engine) => engine.setTags(id, request));
  if (answer.outcome === 'not_found')
    throw new EngineError('not_found', `There is no execution ${printable(id)}.`);
  const pairs = Object.entries(answer.tags).map(([key, value]) => printable(`${key}=${value}`));
  const lines = pairs.toSorted().map((pair): Line => [[pair]]);
  session.printer.result({ executionId: id, ...answer }, lines);
  return EXIT.ok;
}

function readRequest(pairs: readonly string[], { remove = [], by }: TagOptions): TagsRequest {
  if (pairs.length === 0 && remove.length === 0)
    throw new UsageError('Which tags? Give key=value, or --remove with a key.');
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
