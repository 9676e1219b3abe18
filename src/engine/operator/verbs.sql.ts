/**
 * Calls the SQL functions behind an operator's verbs: replay, change of priority, tags. Arrays in, one row per
 * execution out.
 */
import type { LifecyclePhase } from '../../contract/states.ts';
import type { Database } from '../database/database.ts';
import {
  expectedArrays,
  uuidsOf,
  type ExecutionKey,
  type ExpectedKey,
} from '../executions/executions.sql.ts';
import { runForPerson } from '../database/held.ts';

export interface ReplayAnswer {
  execution_id: string;
  outcome: 'replayed' | 'not_terminal' | 'replays_exhausted' | 'moved' | 'not_found';
  lifecycle_phase: LifecyclePhase;
  route_id: number;
  replay_count: number;
  due_in_ms: number | null;
}

export interface ReplayCall {
  fromStart: boolean;
  reason: string;
  actor: string;
  defaultMaxReplays: number;
}

export function replayExecutions(
  database: Database,
  keys: readonly ExpectedKey[],
  call: ReplayCall,
): Promise<ReplayAnswer[]> {
  return runForPerson<ReplayAnswer>(
    database,
    {
      doing: 'replaying executions',
      text: `SELECT * FROM ${database.prefix}ff_replay($1::uuid[], $2::smallint[], $3::bigint[], $4, $5, $6, $7)`,
      params: [...expectedArrays(keys), call.fromStart, call.reason, call.actor, call.defaultMaxReplays],
      // Sent again after it was done, it would say that the execution has not ended, or replay its next end.
      repeatable: 'no',
    },
    uuidsOf(keys),
  );
}

export interface PriorityAnswer {
  execution_id: string;
  outcome: 'changed' | 'not_eligible' | 'moved' | 'not_found';
  route_id: number;
  old_priority: number;
}

export function changePriorities(
  database: Database,
  keys: readonly ExpectedKey[],
  priority: number,
  actor: string,
): Promise<PriorityAnswer[]> {
  return runForPerson<PriorityAnswer>(
    database,
    {
      doing: 'changing priorities',
      text: `SELECT * FROM ${database.prefix}ff_change_priority($1::uuid[], $2::smallint[], $3::bigint[], $4, $5)`,
      params: [...expectedArrays(keys), priority, actor],
      repeatable: 'yes',
    },
    uuidsOf(keys),
  );
}

export interface TagsCall {
  /** JSON text. */
  set: string;
  removed: readonly string[];
  maxTags: number;
  actor: string;
}

export interface TagsAnswer {
  outcome: 'set' | 'too_many' | 'not_found';
  tags: Record<string, string> | null;
}

export async function setTags(database: Database, key: ExecutionKey, call: TagsCall): Promise<TagsAnswer> {
  const rows = await runForPerson<TagsAnswer>(
    database,
    {
      doing: 'setting tags',
      text: `SELECT * FROM ${database.prefix}ff_set_tags($1, $2, $3::text::jsonb, $4::text[], $5, $6)`,
      params: [key.uuid, key.partition, call.set, call.removed, call.maxTags, call.actor],
      repeatable: 'yes',
    },
    [key.uuid],
  );
  return rows[0]!;
}
