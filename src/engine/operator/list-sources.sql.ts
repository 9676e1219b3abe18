/**
 * The sources of lists of executions: one index each, read from a key on, never more than a given number of rows. A
 * source returns pointers to executions; its fence and the conditions of the list select among them by the rows
 * themselves. Names are written s.ff_…, for the schema to be filled in.
 */
import type { PublicState, TerminalOutcome } from '../../contract/states.ts';
import type { Value } from '../database/uncompiled.ts';
import { ENDED } from '../executions/ended.sql.ts';

/** The key of the last row examined, in the order of its source. */
export type SourceKey = readonly (number | string)[];

export type ListSource =
  /** Newest first. */
  | { from: 'created' }
  | { from: 'parent'; parentId: string }
  /** Each followed by what is below it. */
  | { from: 'family'; rootId: string }
  | { from: 'tag'; tag: readonly [key: string, value: string] }
  /** By id, descending: roughly the newest first. */
  | { from: 'child_waits'; state: PublicState }
  | { from: 'join_waits'; state: PublicState }
  | { from: 'suspensions'; state: PublicState }
  /** First what was claimed last. */
  | { from: 'leases'; state: PublicState }
  /** First what becomes claimable next. */
  | { from: 'delays'; state: PublicState }
  /** Delays that are over but whose timer has not fired: they count as waiting. */
  | { from: 'due_delays'; state: PublicState }
  /** Route by route, in the order of the queue. */
  | { from: 'queue'; state: PublicState }
  /** First what finished last, in all these namespaces. */
  | { from: 'ends'; state: PublicState; outcome: TerminalOutcome };

/** What the key of each source consists of. */
export const SOURCE_KEYS: Record<ListSource['from'], readonly ('whole' | 'uuid')[]> = {
  created: ['whole', 'uuid'],
  parent: ['whole', 'uuid'],
  family: ['uuid'],
  tag: ['whole', 'uuid'],
  leases: ['whole', 'whole'],
  child_waits: ['uuid'],
  join_waits: ['uuid'],
  suspensions: ['uuid'],
  delays: ['whole', 'whole'],
  due_delays: ['whole', 'whole'],
  queue: ['whole', 'whole', 'whole'],
  ends: ['whole', 'uuid'],
};

/** The parts of a filter that narrow the range of an index that is read. */
export interface SourceBounds {
  createdFromMs: number | null;
  createdBeforeMs: number | null;
  endedFromMs: number | null;
  endedBeforeMs: number | null;
  lane: string | null;
  kind: string | null;
  namespaces: readonly string[];
}

export interface SourceWindow {
  /** Null: from the beginning. */
  after: SourceKey | null;
  /** Rows to examine. */
  examine: number;
}

/** Adds a value to the parameters of a statement; returns its placeholder. */
export type Bind = (value: Value, type: string) => string;

export interface SourceText {
  /** Named parts that `rows` needs, each followed by a comma. */
  parts: string;
  /** The rows after the key; ordered and limited by the statement. */
  rows: string;
  /** By columns of `rows`. */
  order: string;
  key: string;
  /** Whether the pointer s is still current for the execution e, which is then in the state of the source. */
  fence: string;
  /** Whether there may be more rows; by default, if as many came as were requested. */
  more?: string;
  /** Rows examined; by default, those that came. */
  examined?: string;
}

const NO_UUID = '00000000-0000-0000-0000-000000000000';
/** Later than any time of the engine, and exact as a JavaScript number. */
const END_OF_TIME = Number.MAX_SAFE_INTEGER;
const LAST_BIGINT = '9223372036854775807';

type Build = (bounds: SourceBounds, window: SourceWindow, bind: Bind) => SourceText;

export function sourceText(
  source: ListSource,
  bounds: SourceBounds,
  window: SourceWindow,
  bind: Bind,
): SourceText {
  return builderOf(source)(bounds, window, bind);
}

function builderOf(source: ListSource): Build {
  switch (source.from) {
    case 'created':
      return byCreation;
    case 'parent':
      return byParent(source.parentId);
    case 'family':
      return byFamily(source.rootId);
    case 'tag':
      return byTag(source.tag);
    case 'leases':
      return byClaim;
    case 'child_waits':
      return byId(
        's.ff_child_wait',
        `e.eligibility_state = 'blocked_by_dependencies' AND s.attempt_index = e.attempt_index
          AND s.lease_epoch = e.lease_epoch`,
      );
    case 'join_waits':
      return byId(
        `(SELECT downstream_eid AS execution_id, 0 AS attempt_index, 0 AS lease_epoch FROM s.ff_edge_group
          WHERE group_state = 'pending') g`,
        `e.eligibility_state = 'blocked_by_dependencies'`,
      );
    case 'suspensions':
      return byId('s.ff_suspension', `e.lifecycle_phase = 'suspended'`);
    case 'delays':
      return byDueTime('coming');
    case 'due_delays':
      return byDueTime('due');
    case 'queue':
      return byQueue;
    case 'ends':
      return byEnd(source.outcome);
  }
}

/**
 * A value the planner does not see. If it saw the value, it would estimate how many rows come after it, and if that is
 * no more than requested, it would read and sort all of them, however many there are. For the same reason an index is
 * read from a row on, compared by all its columns at once: the planner then expects a third of the table after any row,
 * and a tenth of that to be requested, so it reads the index in order and no further than needed.
 */
export const hidden = (value: string): string => `(SELECT ${value})`;

/**
 * For indexes that end in a time: many rows may share one, and another column orders those. First the time at the end
 * of the window is found; then, however the rows are sorted, only those of the window are read, and those that share
 * its first or last time.
 */
function byCreation(bounds: SourceBounds, { after, examine }: SourceWindow, bind: Bind): SourceText {
  const at = hidden(bind(after?.[0] ?? bounds.createdBeforeMs ?? END_OF_TIME, 'bigint'));
  const from = hidden(bind(bounds.createdFromMs ?? -END_OF_TIME, 'bigint'));
  return {
    parts: `edge AS MATERIALIZED (
      SELECT created_at_ms AS at FROM s.ff_execution WHERE created_at_ms < ${at}
      ORDER BY created_at_ms DESC OFFSET ${hidden(bind(examine - 1, 'bigint'))} LIMIT 1),`,
    rows: `SELECT created_at_ms, execution_id FROM s.ff_execution
      WHERE created_at_ms >= greatest((SELECT at FROM edge), ${from}) AND created_at_ms <= ${at}
        AND (created_at_ms, execution_id) < (${at}, ${bind(after?.[1] ?? NO_UUID, 'uuid')})`,
    order: 'created_at_ms DESC, execution_id DESC',
    key: 'created_at_ms, execution_id',
    fence: 'true',
  };
}

/** The window may extend into the children of another parent: then it contains all of this one. */
function byParent(parentId: string): Build {
  return (bounds, { after, examine }, bind) => {
    const parent = hidden(bind(parentId, 'uuid'));
    const at = hidden(bind(after?.[0] ?? bounds.createdBeforeMs ?? END_OF_TIME, 'bigint'));
    const from = hidden(bind(bounds.createdFromMs ?? -END_OF_TIME, 'bigint'));
    return {
      parts: `edge AS MATERIALIZED (
        SELECT parent_id, created_at_ms AS at FROM s.ff_execution
        WHERE parent_id IS NOT NULL AND (parent_id, created_at_ms) < (${parent}, ${at})
        ORDER BY parent_id DESC, created_at_ms DESC OFFSET ${hidden(bind(examine - 1, 'bigint'))} LIMIT 1),`,
      // Compared together with the time, so that the planner does not scan an index of times for children of this
      // parent.
      rows: `SELECT parent_id, created_at_ms, execution_id FROM s.ff_execution
        WHERE parent_id IS NOT NULL AND (parent_id, created_at_ms) <= (${parent}, ${at})
          AND (parent_id, created_at_ms) >= (${parent}, greatest(
            (SELECT at FROM edge WHERE parent_id = ${parent}), ${from}))
          AND (created_at_ms, execution_id) < (${at}, ${bind(after?.[1] ?? NO_UUID, 'uuid')})`,
      order: 'parent_id DESC, created_at_ms DESC, execution_id DESC',
      key: 'created_at_ms, execution_id',
      fence: 'true',
    };
  };
}

function byFamily(rootId: string): Build {
  return (_, { after, examine }, bind) => {
    const place = [bind(rootId, 'uuid'), bind(after?.[0] ?? null, 'uuid'), bind(examine, 'bigint')];
    return {
      parts: '',
      rows: `SELECT place, execution_id FROM s.ff_descendants(${place.join(', ')})`,
      order: 'place',
      key: 'execution_id',
      fence: 'true',
    };
  };
}

function byTag([tagKey, tagValue]: readonly [string, string]): Build {
  return (bounds, { after, examine }, bind) => {
    const [key, value] = [hidden(bind(tagKey, 'text')), hidden(bind(tagValue, 'text'))];
    const at = hidden(bind(after?.[0] ?? bounds.createdBeforeMs ?? END_OF_TIME, 'bigint'));
    const id = hidden(bind(after?.[1] ?? NO_UUID, 'uuid'));
    const from = hidden(bind(bounds.createdFromMs ?? -END_OF_TIME, 'bigint'));
    const place = '(tag_key, tag_value, created_at_ms, execution_id)';
    return {
      parts: `edge AS MATERIALIZED (
        SELECT tag_key, tag_value, created_at_ms AS at FROM s.ff_tag WHERE ${place} < (${key}, ${value}, ${at}, ${id})
        ORDER BY tag_key DESC, tag_value DESC, created_at_ms DESC, execution_id DESC
        OFFSET ${hidden(bind(examine - 1, 'bigint'))} LIMIT 1),`,
      rows: `SELECT created_at_ms, execution_id FROM s.ff_tag
        WHERE tag_key = ${key} AND tag_value = ${value} AND (created_at_ms, execution_id) < (${at}, ${id})
          AND created_at_ms >= greatest(
            (SELECT at FROM edge WHERE tag_key = ${key} AND tag_value = ${value}), ${from})`,
      order: 'created_at_ms DESC, execution_id DESC',
      key: 'created_at_ms, execution_id',
      fence: 'true',
    };
  };
}

function byId(table: string, fence: string): Build {
  return (_, { after }, bind) => ({
    parts: '',
    rows: `SELECT execution_id, attempt_index, lease_epoch FROM ${table}
      WHERE ${after === null ? 'true' : `execution_id < ${hidden(bind(after[0] ?? NO_UUID, 'uuid'))}`}`,
    order: 'execution_id DESC',
    key: 'execution_id',
    fence,
  });
}

/**
 * Claim by claim, and within a claim in the order of its list. A claim that is partly over is read whole: it holds no
 * more than a claim call may ask for.
 */
function byClaim(_: SourceBounds, { after, examine }: SourceWindow, bind: Bind): SourceText {
  const [claim, place] = [after?.[0] ?? END_OF_TIME, after?.[1] ?? 0].map((part) =>
    hidden(bind(part, 'bigint')),
  );
  return {
    parts: '',
    rows: `SELECT g.claim_no, x.place, x.execution_id FROM (
        SELECT claim_no, execution_ids FROM s.ff_grant WHERE claim_no <= ${claim}
        ORDER BY claim_no DESC LIMIT ${hidden(bind(examine, 'bigint'))}) g
      CROSS JOIN LATERAL unnest(g.execution_ids) WITH ORDINALITY x(execution_id, place)
      WHERE g.claim_no < ${claim} OR x.place > ${place}`,
    order: 'claim_no DESC, place',
    key: 'claim_no, place',
    fence: 'e.claim_no = s.claim_no',
  };
}

/** The timers include time limits; the fence leaves them out. */
function byDueTime(which: 'coming' | 'due'): Build {
  return (_, { after, examine }, bind) => {
    const at = hidden(bind(after?.[0] ?? -END_OF_TIME, 'bigint'));
    const now = '(SELECT now_ms FROM clock)';
    const [low, high] = which === 'due' ? [at, now] : [`greatest(${at}, ${now} + 1)`, LAST_BIGINT];
    return {
      parts: `edge AS MATERIALIZED (
        SELECT due_at_ms AS at FROM s.ff_timer
        WHERE due_at_ms > ${low}${which === 'due' ? ` AND (due_at_ms, timer_id) <= (${now}, ${LAST_BIGINT})` : ''}
        ORDER BY due_at_ms OFFSET ${hidden(bind(examine - 1, 'bigint'))} LIMIT 1),`,
      rows: `SELECT due_at_ms, timer_id, execution_id, kind, attempt_index, lease_epoch FROM s.ff_timer
        WHERE due_at_ms >= ${low} AND due_at_ms <= least((SELECT at FROM edge), ${high})
          AND (due_at_ms, timer_id) > (${at}, ${bind(after?.[1] ?? 0, 'bigint')})`,
      order: 'due_at_ms, timer_id',
      key: 'due_at_ms, timer_id',
      fence: `s.kind = 'eligible' AND e.eligibility_state = 'not_eligible_until_time'
        AND s.attempt_index = e.attempt_index AND s.lease_epoch = e.lease_epoch`,
    };
  };
}

/**
 * An execution whose priority went up and down again may have several matching rows. Only the one from its last change
 * counts, so that no execution is listed twice.
 */
const QUEUE_FENCE = `e.eligibility_state = 'eligible_now' AND s.attempt_index = e.attempt_index
  AND s.lease_epoch = e.lease_epoch AND s.rank = -e.priority AND s.ready_at_ms = e.changed_at_ms`;
const QUEUE_COLUMNS =
  'q.route_id, -q.priority AS rank, q.seq, q.execution_id, q.attempt_index, q.lease_epoch, q.ready_at_ms';

function byQueue(bounds: SourceBounds, { after, examine }: SourceWindow, bind: Bind): SourceText {
  const [route, rank, seq] = [0, 1, 2].map((place) => hidden(bind(after?.[place] ?? 0, 'bigint')));
  const named = [
    ...(bounds.lane === null ? [] : [`lane = ${bind(bounds.lane, 'text')}`]),
    ...(bounds.kind === null ? [] : [`kind = ${bind(bounds.kind, 'text')}`]),
  ];
  const everywhere = `SELECT ${QUEUE_COLUMNS} FROM s.ff_ready q
    WHERE (q.route_id, -q.priority, q.seq) > (${route}, ${rank}, ${seq})`;
  // Routes in order, each read from its head; the first of them from the key on.
  const someRoutes = () => `SELECT * FROM (
    SELECT q.* FROM (
      SELECT route_id, CASE WHEN route_id = ${route} THEN ${rank} ELSE -${LAST_BIGINT} END AS rank,
             CASE WHEN route_id = ${route} THEN ${seq} ELSE 0 END AS seq
      FROM s.ff_route WHERE ${named.join(' AND ')} AND route_id >= ${route} ORDER BY route_id OFFSET 0) r
    CROSS JOIN LATERAL (
      SELECT ${QUEUE_COLUMNS} FROM s.ff_ready q
      WHERE (q.route_id, -q.priority, q.seq) > (r.route_id, r.rank, r.seq)
        AND (q.route_id, -q.priority, q.seq) <= (r.route_id, ${LAST_BIGINT}, ${LAST_BIGINT})
      ORDER BY q.route_id, -q.priority, q.seq LIMIT ${hidden(bind(examine, 'bigint'))}) q
    LIMIT ${hidden(bind(examine, 'bigint'))}) x`;
  return {
    parts: '',
    rows: named.length === 0 ? everywhere : someRoutes(),
    order: 'route_id, rank, seq',
    key: 'route_id, rank, seq',
    fence: QUEUE_FENCE,
  };
}

/** The fewest rows read per namespace when there are many. */
const LEAST_OF_EACH = 16;

/**
 * The same number of rows is read from each namespace. If one has more, its next row is unknown: executions that
 * finished before its last row read have to wait, because that next one may come first.
 */
function byEnd(outcome: TerminalOutcome): Build {
  return (bounds, { after, examine }, bind) => {
    const { namespaces } = bounds;
    const share = Math.ceil(examine / Math.max(1, namespaces.length));
    const count = Math.max(share, Math.min(examine, LEAST_OF_EACH));
    const ofEach = hidden(bind(count, 'bigint'));
    const at = hidden(bind(after?.[0] ?? bounds.endedBeforeMs ?? END_OF_TIME, 'bigint'));
    const from = hidden(bind(bounds.endedFromMs ?? -END_OF_TIME, 'bigint'));
    const how = hidden(bind(outcome, 's.ff_terminal_outcome'));
    const skipped = hidden(bind(count - 1, 'bigint'));
    const id = bind(after?.[1] ?? NO_UUID, 'uuid');
    // The time of the last row to read is found first: rows that share a time are not in order in the index.
    const newest = (part: string): string => `
      SELECT r.* FROM (SELECT n.namespace OFFSET 0) o
      LEFT JOIN LATERAL (
        SELECT namespace, terminal_outcome, ended_at_ms AS at FROM s.ff_attempt_history
        WHERE ${part} AND (namespace, terminal_outcome, ended_at_ms) < (n.namespace, ${how}, ${at})
        ORDER BY namespace DESC, terminal_outcome DESC, ended_at_ms DESC
        OFFSET ${skipped} LIMIT 1) g ON g.namespace = n.namespace AND g.terminal_outcome = ${how}
      CROSS JOIN LATERAL (
        SELECT ended_at_ms, execution_id, attempt_index FROM s.ff_attempt_history
        WHERE ${part} AND namespace = n.namespace AND terminal_outcome = ${how}
          AND ended_at_ms >= greatest(g.at, ${from}) AND ended_at_ms <= ${at}
          AND (ended_at_ms, execution_id) < (${at}, ${id})
        ORDER BY ended_at_ms DESC, execution_id DESC LIMIT ${ofEach}) r`;
    return {
      parts: `peeked AS MATERIALIZED (
        SELECT q.*, row_number() OVER (
          PARTITION BY n.namespace ORDER BY q.ended_at_ms DESC, q.execution_id DESC) AS place
        FROM unnest(${bind(namespaces, 'text[]')}) n(namespace)
        CROSS JOIN LATERAL (
          (${newest(ENDED.keptByDefault)}) UNION ALL (${newest(ENDED.keptOtherwise)})
          ORDER BY ended_at_ms DESC, execution_id DESC LIMIT ${ofEach}) q),
      edge AS MATERIALIZED (
        SELECT ended_at_ms, execution_id FROM peeked WHERE place = ${ofEach}
        ORDER BY ended_at_ms DESC, execution_id DESC LIMIT 1),`,
      rows: `SELECT ended_at_ms, execution_id, attempt_index FROM peeked p
        WHERE NOT EXISTS (
          SELECT 1 FROM edge g WHERE (p.ended_at_ms, p.execution_id) < (g.ended_at_ms, g.execution_id))`,
      order: 'ended_at_ms DESC, execution_id DESC',
      key: 'ended_at_ms, execution_id',
      fence: `e.lifecycle_phase = 'terminal' AND s.attempt_index = e.attempt_index`,
      examined: '(SELECT count(*) FROM peeked)',
      more: `(SELECT count(*) FROM edge) > 0 OR (SELECT count(*) FROM peeked) > ${bind(examine, 'bigint')}`,
    };
  };
}
