/**
 * Calls the SQL functions behind the operator's verbs: replay, change priority, set tags. Arrays in, one row per
 * execution out.
 */
import type {
  ExecutionSummary,
  PriorityOutcome,
  ReplayOutcome,
  TagsOutcome,
} from '../../contract/operations.ts';
import type { StepKey } from '../../contract/steps.ts';
import { columns, columnsOf, withColumns, type RowOf } from '../database/columns.ts';
import type { Database } from '../database/database.ts';
import type { Answered } from '../executions/answered.sql.ts';
import {
  expectedArrays,
  uuidsOf,
  type ExecutionKey,
  type ExpectedKey,
} from '../executions/executions.sql.ts';
import { runForPerson } from '../database/held.ts';

/** The timer is the new deadline: the execution may run at once. */
const REPLAYED = withColumns(
  columnsOf<Answered<ReplayOutcome['outcome']> & Pick<ExecutionSummary, 'replayCount'>>()(
    'uuid',
    'outcome',
    'lifecyclePhase',
    'routeId',
    'replayCount',
  ),
  columns<Pick<Answered, 'deadlineInMs'>>({ deadlineInMs: 'due_in_ms' }),
);
export type ReplayAnswer = RowOf<typeof REPLAYED>;

export interface ReplayCall {
  fromStart: boolean;
  fromStep?: StepKey | undefined;
  reason: string;
  actor: string;
  defaultMaxReplays: number;
}

export function replayExecutions(
  database: Database,
  keys: readonly ExpectedKey[],
  call: ReplayCall,
): Promise<ReplayAnswer[]> {
  return runForPerson(
    database,
    {
      doing: 'replaying executions',
      columns: REPLAYED,
      text: `SELECT ${REPLAYED.list} FROM ${database.prefix}ff_replay($1::uuid[], $2::smallint[], $3::bigint[], $4, $5, $6, $7, $8, $9)`,
      params: [
        ...expectedArrays(keys),
        call.fromStart,
        call.reason,
        call.actor,
        call.defaultMaxReplays,
        call.fromStep?.name ?? null,
        call.fromStep === undefined ? null : (call.fromStep.key ?? ''),
      ],
      // Sent again after it succeeded, it would report that the execution is not finished, or replay its next outcome.
      repeatable: 'no',
    },
    uuidsOf(keys),
  );
}

const MOVED = columnsOf<Answered<PriorityOutcome['outcome']> & { oldPriority: number }>()(
  'uuid',
  'outcome',
  'routeId',
  'oldPriority',
);
export type PriorityAnswer = RowOf<typeof MOVED>;

export function changePriorities(
  database: Database,
  keys: readonly ExpectedKey[],
  priority: number,
  actor: string,
): Promise<PriorityAnswer[]> {
  return runForPerson(
    database,
    {
      doing: 'changing priorities',
      columns: MOVED,
      text: `SELECT ${MOVED.list} FROM ${database.prefix}ff_change_priority($1::uuid[], $2::smallint[], $3::bigint[], $4, $5)`,
      params: [...expectedArrays(keys), priority, actor],
      repeatable: 'yes',
    },
    uuidsOf(keys),
  );
}

export interface TagsCall {
  /** As JSON. */
  set: string;
  removed: readonly string[];
  maxTags: number;
  actor: string;
}

const TAGGED = columnsOf<
  Answered<TagsOutcome['outcome'] | 'too_many'> & { tags: ExecutionSummary['tags'] | null }
>()('outcome', 'tags');

export async function setTags(
  database: Database,
  key: ExecutionKey,
  call: TagsCall,
): Promise<RowOf<typeof TAGGED>> {
  const rows = await runForPerson(
    database,
    {
      doing: 'setting tags',
      columns: TAGGED,
      text: `SELECT ${TAGGED.list} FROM ${database.prefix}ff_set_tags($1, $2, $3::text::jsonb, $4::text[], $5, $6)`,
      params: [key.uuid, key.partition, call.set, call.removed, call.maxTags, call.actor],
      repeatable: 'yes',
    },
    [key.uuid],
  );
  return rows[0]!;
}
