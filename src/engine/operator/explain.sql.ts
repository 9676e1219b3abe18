/**
 * Reads the facts that decide whether an execution runs, with `ff_explain`. The model interprets them.
 */
import { formatExecutionId } from '../../contract/ids.ts';
import type { PublicState } from '../../contract/states.ts';
import type { JoinFacts, Upstream } from '../../model/gates/blocked.ts';
import type { GateFacts } from '../../model/gates/gates.ts';
import { columns } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';

/** As `ff_explain` refers to other executions: by uuid, in the partition of their flow. */
type StoredUpstream = Omit<Upstream, 'executionId'> & Pick<ExecutionKey, 'uuid'>;
type StoredJoin = Omit<JoinFacts, 'pending' | 'unmet' | 'flowId'> &
  ExecutionKey & { pending: StoredUpstream[]; unmet: StoredUpstream[] };
type Children = NonNullable<GateFacts['children']>;
type StoredChildren = Omit<Children, 'firstOpen'> & { firstOpen: ExecutionKey[] };

/** All except the sessions that lock it, which are read separately. */
type Facts = Omit<GateFacts, 'sessions'>;

const FACTS = columns<
  Omit<Facts, 'children' | 'join'> & {
    publicState: PublicState;
    children: StoredChildren | null;
    join: StoredJoin | null;
  }
>({
  publicState: "x -> 'public_state'",
  state: "x -> 'state'",
  attemptIndex: "x -> 'attempt_index'",
  route: `jsonb_build_object('routeId', x -> 'route_id', 'lane', x -> 'lane', 'kind', x -> 'kind',
    'capabilities', x -> 'capabilities')`,
  lanePause: "x -> 'lane_pause'",
  lease: "x -> 'lease'",
  eligibleInMs: "x -> 'eligible_in_ms'",
  deadlineInMs: "x -> 'deadline_in_ms'",
  lastFailure: "x -> 'last_failure'",
  children: "x -> 'children'",
  join: "x -> 'join'",
  suspension: "x -> 'suspension'",
  setbacks: "x -> 'setbacks'",
  end: "x -> 'ended'",
  workers: "x -> 'workers'",
  queue: "x -> 'queue'",
});

/** A worker with a heartbeat within `liveMs` counts as alive. */
export async function readForExplain(
  database: Database,
  key: ExecutionKey,
  liveMs: number,
): Promise<(Facts & { publicState: PublicState }) | undefined> {
  const [found] = await run(database, {
    doing: 'explaining an execution',
    columns: FACTS,
    text: `SELECT ${FACTS.list} FROM ${database.prefix}ff_explain($1, $2, $3) x WHERE x IS NOT NULL`,
    params: [key.uuid, key.partition, liveMs],
    repeatable: 'yes',
  });
  return (
    found && {
      ...found,
      children: found.children && toChildren(found.children),
      join: found.join && toJoin(found.join),
    }
  );
}

function toChildren(children: StoredChildren): Children {
  const firstOpen = children.firstOpen.map(({ partition, uuid }) => formatExecutionId(partition, uuid));
  return { ...children, firstOpen };
}

function toJoin({ partition, uuid, pending, unmet, ...join }: StoredJoin): JoinFacts {
  const named = (upstreams: readonly StoredUpstream[]): Upstream[] =>
    upstreams.map(({ uuid: id, ...upstream }) => ({
      ...upstream,
      executionId: formatExecutionId(partition, id),
    }));
  return {
    ...join,
    flowId: formatExecutionId(partition, uuid),
    pending: named(pending),
    unmet: named(unmet),
  };
}
