/**
 * Lists of executions, and of the attempts of one. One statement examines a bounded number of rows of one source,
 * whatever the filter, and returns those that match. There are no counts and no offsets: a list resumes from a key.
 * Plain statements without locks; every lookup is by a primary key.
 */
import type { AttemptRecord, ExecutionSummary } from '../../contract/operations.ts';
import type { PublicState } from '../../contract/states.ts';
import { columns, columnsOf, idText, inSchema, partOf, withColumns } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import { ENDED } from '../executions/ended.sql.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import {
  hidden,
  sourceText,
  type Bind,
  type ListSource,
  type SourceKey,
  type SourceWindow,
} from './list-sources.sql.ts';
import { readUncompiled, type Value } from '../database/uncompiled.ts';

/** All must be met; null means no condition. */
export interface ListConditions {
  states: readonly PublicState[] | null;
  namespace: string | null;
  lane: string | null;
  kind: string | null;
  tags: readonly (readonly [key: string, value: string])[] | null;
  parent: ExecutionKey | null;
  /** Of the parent: everything below it. */
  descendants: true | null;
  createdFromMs: number | null;
  createdBeforeMs: number | null;
  endedFromMs: number | null;
  endedBeforeMs: number | null;
  failureCategory: string | null;
  failureContains: string | null;
  /** Not of this priority. */
  exceptPriority: number | null;
}

export interface ListScan extends SourceWindow {
  source: ListSource;
  conditions: ListConditions;
  /** For sources that are read namespace by namespace. */
  namespaces: readonly string[];
  /** Rows to return at most. */
  need: number;
}

export interface Listed {
  execution: ExecutionSummary;
  /** Its key in the source. */
  key: SourceKey;
}

export interface ListAnswer {
  /** In the order of the source. */
  rows: Listed[];
  /** Rows examined. */
  examined: number;
  /** The key of the last row of the window. */
  last: SourceKey | null;
  /** Whether the source may have rows after that. */
  more: boolean;
}

const PUBLIC_STATE_OF_E = `s.ff_public_state(e.lifecycle_phase, e.eligibility_state, e.terminal_outcome, e.eligible_at_ms,
  (SELECT now_ms FROM clock))`;
export const OUTCOME_OF_E = `LEFT JOIN LATERAL (
  SELECT ended_at_ms, terminal_outcome, outcome, failure_message, failure_category FROM s.ff_attempt_history
  WHERE e.lifecycle_phase = 'terminal' AND execution_id = e.execution_id AND partition_key = e.partition_key
    AND attempt_index = e.attempt_index OFFSET 0) o ON true`;
export const ROUTE_OF_E = `LEFT JOIN LATERAL (
  SELECT lane, kind FROM s.ff_route WHERE route_id = e.route_id OFFSET 0) r ON true`;
export const LEASE_OF_E = `LEFT JOIN LATERAL (
  SELECT worker_instance_id FROM s.ff_grant WHERE claim_no = e.claim_no OFFSET 0) l ON true`;

/** What a filter does not find cannot be found out by trying. */
const SHOWN_MESSAGE = 's.ff_shown_text(e.traits, o.outcome, o.failure_message)';

export const SUMMARY = columns<ExecutionSummary>({
  executionId: idText('e.partition_key', 'e.execution_id'),
  state: PUBLIC_STATE_OF_E,
  kind: 'r.kind',
  lane: 'r.lane',
  namespace: 'e.namespace',
  priority: 'e.priority',
  tags: 'e.tags',
  createdAtMs: 'e.created_at_ms',
  changedAtMs: 'e.changed_at_ms',
  eligibleAtMs: 'e.eligible_at_ms',
  endedAtMs: 'o.ended_at_ms',
  attemptIndex: 'e.attempt_index',
  leaseEpoch: 'e.lease_epoch',
  retryCount: 'e.retry_count',
  replayCount: 'e.replay_count',
  workerInstanceId: 'l.worker_instance_id',
  failure: `CASE WHEN o.terminal_outcome <> 'success'
    THEN jsonb_build_object('message', ${SHOWN_MESSAGE}, 'category', o.failure_category) END`,
  parentId: idText('e.partition_key', 'e.parent_id'),
});

export async function scanList(database: Database, scan: ListScan): Promise<ListAnswer> {
  const params: Value[] = [];
  const bind: Bind = (value, type) => `$${params.push(value)}::${type}`;
  const statement = scanStatement(scan, bind);
  const rows = await readUncompiled(database, {
    ...statement,
    doing: 'listing executions',
    text: inSchema(database, statement.text),
    params,
    repeatable: 'yes',
  });
  const { examined, last, more } = rows[0]!;
  const found = rows.filter((row) => row.executionId !== null);
  return {
    rows: found.map((row) => ({ key: row.key, execution: partOf(SUMMARY, row) })),
    examined,
    last,
    more,
  };
}

/** The window, in every row; without an execution when none matches. */
type Window = Omit<ListAnswer, 'rows'> & Pick<Listed, 'key'>;

function scanStatement(scan: ListScan, bind: Bind) {
  const source = sourceText(scan.source, { ...scan.conditions, namespaces: scan.namespaces }, scan, bind);
  const { joins, wheres } = conditionsText(scan, bind);
  const examine = hidden(bind(scan.examine, 'bigint'));
  const window = columns<Window>({
    examined: source.examined ?? 't.scanned',
    more: source.more ?? `t.scanned = ${examine}`,
    last: 't.last',
    key: 'e.key',
  });
  const answered = withColumns(window, SUMMARY);
  const text = `
WITH clock AS MATERIALIZED (SELECT s.ff_now_ms() AS now_ms),
${source.parts}
scanned AS MATERIALIZED (
  SELECT row_number() OVER (ORDER BY ${source.order}) AS ord,
         jsonb_build_array(${source.key}) AS key, x.*
  FROM (${source.rows} ORDER BY ${source.order} LIMIT ${examine}) x),
fitting AS MATERIALIZED (
  SELECT s.ord, s.key, e.*
  FROM scanned s
  CROSS JOIN LATERAL (
    SELECT execution_id, partition_key, route_id, namespace, priority, created_at_ms, changed_at_ms, eligible_at_ms,
           attempt_index, lease_epoch, retry_count, replay_count, lifecycle_phase, eligibility_state, terminal_outcome,
           parent_id, claim_no, traits, tags
    FROM s.ff_execution WHERE execution_id = s.execution_id OFFSET 0) e
  ${joins.join('\n  ')}
  WHERE ${[source.fence, ...wheres].join('\n    AND ')}
  ORDER BY s.ord LIMIT ${bind(scan.need, 'bigint')})
SELECT ${answered.list}
FROM (SELECT count(*) AS scanned, (SELECT key FROM scanned ORDER BY ord DESC LIMIT 1) AS last FROM scanned) t
LEFT JOIN fitting e ON true
${ROUTE_OF_E}
${LEASE_OF_E}
${OUTCOME_OF_E}
ORDER BY e.ord`;
  return { columns: answered, text };
}

/** The joins needed to decide whether an execution matches, and the conditions on them. */
function conditionsText({ source, conditions }: ListScan, bind: Bind): { joins: string[]; wheres: string[] } {
  const c = conditions;
  // The source covers the first tag, and the parent.
  const tags = c.tags?.slice(source.from === 'tag' ? 1 : 0) ?? [];
  const parent = source.from === 'family' ? null : c.parent;
  const isAsked = (value: unknown): boolean => value !== null;
  const compare = (column: string, operator: string, value: Value, type: string): string[] =>
    value === null ? [] : [`${column} ${operator} ${bind(value, type)}`];
  const routes =
    source.from === 'queue'
      ? []
      : [...compare('lane', '=', c.lane, 'text'), ...compare('kind', '=', c.kind, 'text')];
  const asksForEnds = [c.endedFromMs, c.endedBeforeMs, c.failureCategory, c.failureContains].some(isAsked);
  const joins = asksForEnds ? [OUTCOME_OF_E] : [];
  const wheres = [
    ...(c.states === null || 'state' in source
      ? []
      : [`${PUBLIC_STATE_OF_E} = ANY (${bind(c.states, 'text[]')})`]),
    ...compare('e.namespace', '=', c.namespace, 'text'),
    ...compare('e.parent_id', '=', parent?.uuid ?? null, 'uuid'),
    ...compare('e.partition_key', '=', c.parent?.partition ?? null, 'smallint'),
    ...compare('e.created_at_ms', '>=', c.createdFromMs, 'bigint'),
    ...compare('e.created_at_ms', '<', c.createdBeforeMs, 'bigint'),
    ...compare('e.priority', '<>', c.exceptPriority, 'integer'),
    ...(routes.length === 0 ? [] : [routeText(routes)]),
    ...(tags.length === 0 ? [] : [`e.tags @> ${bind(JSON.stringify(Object.fromEntries(tags)), 'jsonb')}`]),
    ...compare('o.ended_at_ms', '>=', c.endedFromMs, 'bigint'),
    ...compare('o.ended_at_ms', '<', c.endedBeforeMs, 'bigint'),
    ...compare('o.failure_category', '=', c.failureCategory, 'text'),
    ...(c.failureContains === null
      ? []
      : [`strpos(${SHOWN_MESSAGE}, ${bind(c.failureContains, 'text')}) > 0`]),
  ];
  return { joins, wheres };
}

/** CASE keeps it a hashed lookup: the routes are read once, not for each row. */
function routeText(conditions: readonly string[]): string {
  return `CASE WHEN e.route_id IN (SELECT route_id FROM s.ff_route WHERE ${conditions.join(' AND ')})
    THEN true ELSE false END`;
}

/** $1 is the limit. */
const namespacesOf = (part: string): string => `
WITH RECURSIVE found AS (
  (SELECT namespace FROM s.ff_attempt_history WHERE ${part} ORDER BY namespace LIMIT 1)
  UNION ALL
  SELECT n.namespace FROM found f
  CROSS JOIN LATERAL (
    SELECT namespace FROM s.ff_attempt_history WHERE ${part} AND namespace > f.namespace ORDER BY namespace LIMIT 1) n)
SELECT namespace FROM found LIMIT $1::bigint`;

/** The namespaces with finished executions, up to a limit, each found by one or two index lookups. */
export async function listNamespaces(database: Database, limit: number): Promise<string[]> {
  const rows = await run<{ namespace: string }>(database, {
    doing: 'listing namespaces',
    text: inSchema(
      database,
      `(${namespacesOf(ENDED.keptByDefault)}) UNION (${namespacesOf(ENDED.keptOtherwise)}) LIMIT $1::bigint`,
    ),
    params: [limit],
    repeatable: 'yes',
  });
  return rows.map((row) => row.namespace);
}

const ATTEMPT = columnsOf<AttemptRecord>('a')(
  'attemptIndex',
  'outcome',
  'interruptedBy',
  'leaseEpoch',
  'workerId',
  'workerInstanceId',
  'startedAtMs',
  'endedAtMs',
  'retryAtMs',
  'failureMessage',
  'failureCategory',
  'failureDetail',
  'pauses',
  'leases',
);

/** Of `given_up`, without the mark that the oldest were forgotten. */
const PAUSES = `ARRAY(SELECT (ARRAY['released', 'paused', 'suspended'])[1 + g % 4]
    FROM unnest(given_up) WITH ORDINALITY u(g, n) WHERE g % 4 < 3 ORDER BY n)`;

/** Of an attempt that was never paused, the one it had. */
const LEASES = `coalesce(leases, CASE WHEN worker_instance_id IS NOT NULL THEN jsonb_build_array(
    s.ff_lease_span(lease_epoch, worker_instance_id, started_at_ms, ended_at_ms, renewals)) END, '[]')`;

/** The running attempt is read from its lease: its entry in the history, from an earlier pause, is older. */
const ATTEMPTS = `
WITH e AS MATERIALIZED (
  SELECT execution_id, partition_key, attempt_index, lease_epoch, attempt_started_at_ms, claim_no, renewals
  FROM s.ff_execution WHERE execution_id = $1::uuid AND partition_key = $2::smallint),
running AS MATERIALIZED (
  SELECT e.*, g.* FROM e CROSS JOIN LATERAL (
    SELECT worker_id, worker_instance_id, acquired_at_ms FROM s.ff_grant WHERE claim_no = e.claim_no OFFSET 0) g),
ended AS MATERIALIZED (
  SELECT h.* FROM e CROSS JOIN LATERAL (
    SELECT * FROM s.ff_attempt_history
    WHERE execution_id = e.execution_id AND partition_key = e.partition_key AND attempt_index < $3::bigint
      AND started_at_ms IS NOT NULL
    ORDER BY attempt_index DESC LIMIT $4::bigint) h)
SELECT ${ATTEMPT.list} FROM e LEFT JOIN LATERAL (
  SELECT attempt_index, NULL::s.ff_attempt_outcome AS outcome, NULL AS interrupted_by, lease_epoch, worker_id,
         worker_instance_id, attempt_started_at_ms AS started_at_ms, NULL::bigint AS ended_at_ms,
         NULL::bigint AS retry_at_ms, NULL AS failure_message, NULL AS failure_category,
         NULL::jsonb AS failure_detail,
         coalesce((SELECT ${PAUSES} FROM ended h WHERE h.attempt_index = running.attempt_index), '{}') AS pauses,
         coalesce((SELECT leases FROM ended h WHERE h.attempt_index = running.attempt_index), '[]') || s.ff_lease_span(
           lease_epoch, worker_instance_id, acquired_at_ms, NULL, renewals) AS leases
  FROM running WHERE attempt_index < $3::bigint
  UNION ALL
  SELECT attempt_index, outcome, interrupted_by, lease_epoch, worker_id, worker_instance_id, started_at_ms, ended_at_ms,
         CASE WHEN outcome IS NOT NULL THEN retry_at_ms END, failure_message, failure_category,
         failure_detail, ${PAUSES}, ${LEASES}
  FROM ended WHERE NOT EXISTS (SELECT 1 FROM running l WHERE l.attempt_index = ended.attempt_index)) a ON true
ORDER BY a.attempt_index DESC LIMIT $4::bigint`;

/** Attempts before one, newest first. Undefined when there is no such execution. */
export async function listAttemptRows(
  database: Database,
  key: ExecutionKey,
  page: { before: number; limit: number },
): Promise<AttemptRecord[] | undefined> {
  const rows = await run(database, {
    doing: 'listing attempts',
    columns: ATTEMPT,
    text: inSchema(database, ATTEMPTS),
    params: [key.uuid, key.partition, page.before, page.limit],
    repeatable: 'yes',
  });
  if (rows.length === 0) return undefined;
  // An execution that never started has one row, without an attempt.
  return rows.filter((row) => row.attemptIndex !== null);
}
