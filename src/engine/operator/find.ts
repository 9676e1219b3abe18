/**
 * Short ids, as people read and type them: executions by the beginning of their ids, and the shortest beginning that
 * tells an id from all others. A short id is unique only as of now; what is stored and sent is always the whole one.
 */
import { parseExecutionId, parseIdPrefix, shortestPrefix } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { FoundExecutions } from '../../contract/operations.ts';
import { list, parsed } from '../../contract/shape/kinds.ts';
import type { EngineContext } from '../kit/context.ts';
import { findExecutions, readNeighbours } from './find.sql.ts';

const idList = list(parsed, LIMITS.idBatch);

export async function find(context: EngineContext, prefix: string): Promise<FoundExecutions> {
  const range = parseIdPrefix(prefix);
  const found = await findExecutions(context.database, range, LIMITS.idCandidates + 1);
  return {
    executions: found.slice(0, LIMITS.idCandidates),
    hasMore: found.length > LIMITS.idCandidates,
  };
}

export async function shorten(context: EngineContext, ids: readonly string[]): Promise<string[]> {
  idList.check(ids, 'ids');
  const uuids = ids.map((id, index) => parseExecutionId(id, `ids[${index}]`).uuid);
  if (uuids.length === 0) return [];
  const rows = await readNeighbours(context.database, [...new Set(uuids)]);
  const short = new Map(
    rows
      .filter(({ isKnown }) => isKnown)
      .map(({ uuid, neighbours }) => [uuid, shortestPrefix(uuid, neighbours)]),
  );
  return ids.map((id, index) => short.get(uuids[index]!) ?? id);
}
