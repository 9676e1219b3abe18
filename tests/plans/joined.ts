/**
 * The part of the walk about flows: whole ones and those built step by step, joins that are satisfied or impossible,
 * losers, growth, replays, cancels and retention, through the store's own calls.
 */
import { randomUUID } from 'node:crypto';
import type { JoinKind } from '../../src/contract/flows.ts';
import type { Database } from '../../src/engine/database/database.ts';
import { readForExplain } from '../../src/engine/operator/explain.sql.ts';
import type { ExecutionKey, LeaseKey } from '../../src/engine/executions/executions.sql.ts';
import { submitExecutions } from '../../src/engine/executions/submitting/submits.sql.ts';
import {
  cancelFlow,
  cancelMembers,
  cancelSiblings,
  listPendingGroups,
  reconcileSiblings,
  tellEnds,
  tellLostEnds,
} from '../../src/engine/flows/work.sql.ts';
import {
  adoptMembers,
  applyEdges,
  createFlow,
  growFlow,
  sealFlow,
  setJoin,
  stageEdges,
  submitFlow,
  unstageEdges,
  type EdgeRow,
  type Growth,
  type JoinRow,
} from '../../src/engine/flows/flows.sql.ts';
import { replayExecutions } from '../../src/engine/operator/verbs.sql.ts';
import { forgetExecutions } from '../../src/engine/upkeep/retention.sql.ts';
import type { Recorder } from './plan-recorder.ts';
import { callsOn, claimBatch, makeKnown, PARTITION, submitCall, unknownLeases } from './workload.ts';

const NO_UUID = '00000000-0000-0000-0000-000000000000';
const join = (kind: JoinKind, needed = 0): JoinRow => ({ kind, needed, cancelsRest: kind !== 'all' });

/** Members, each of its own kind. */
interface Cast {
  uuids: Record<string, string>;
  kindOf(name: string): string;
  growth: Growth;
}

function castOf(
  members: Record<string, JoinRow | null>,
  edges: readonly [from: string, to: string, input?: string][],
  known: Record<string, string> = {},
): Cast {
  const prefix = `flow-${randomUUID().slice(0, 8)}`;
  const names = Object.keys(members);
  const call = submitCall({ kinds: names.map((name) => `${prefix}-${name}`), count: names.length });
  const uuids = { ...known, ...Object.fromEntries(names.map((name, at) => [name, call.rows[at]!.uuid])) };
  return {
    uuids,
    kindOf: (name) => `${prefix}-${name}`,
    growth: {
      call,
      members: names.map((name) => ({ name, join: members[name]! })),
      edges: edges.map(([from, to, input]) => edgeRow(uuids[from]!, uuids[to]!, input)),
    },
  };
}

/** The call's members, with their routes interned. */
async function ready(database: Database, { growth }: Cast): Promise<Growth> {
  await makeKnown(database, growth.call);
  return growth;
}

function edgeRow(upstream: string, downstream: string, inputName?: string): EdgeRow {
  return {
    edgeId: randomUUID(),
    upstream,
    downstream,
    condition: 'success',
    inputName: inputName ?? null,
    inputPlace: null,
  };
}

function newFlow() {
  return { uuid: randomUUID(), partition: PARTITION, name: 'walk', namespace: 'default', tags: '{}' };
}

async function claimOf(database: Database, client: Recorder['client'], kind: string): Promise<LeaseKey> {
  const found = await client.query<{ id: number }>('SELECT route_id AS id FROM ff_route WHERE kind = $1', [
    kind,
  ]);
  // Asked for several, they are granted by the statements for several.
  const [row] = await claimBatch(database, [found.rows[0]!.id], 2);
  if (row === undefined) throw new Error(`${kind} cannot be claimed`);
  return row;
}

async function expectRefused(code: string, refused: Promise<unknown>): Promise<void> {
  const said = await refused.then(
    () => 'nothing',
    (error: { cause?: { message?: string } }) => error.cause?.message,
  );
  if (said !== code) throw new Error(`the walk was refused with ${said}, not ${code}`);
}

/** How lately a worker that counts was heard of. */
const LIVE_MS = 30_000;

const keysOf = ({ uuids }: Cast): ExecutionKey[] =>
  Object.values(uuids).map((uuid) => ({ uuid, partition: PARTITION }));

/** One of three wins; the others are stopped one by one. */
async function walkWon(database: Database, client: Recorder['client']): Promise<void> {
  const flow = newFlow();
  const cast = castOf({ x: null, y: null, z: null, best: join('any', 1), end: join('all') }, [
    ['x', 'best', 'x'],
    ['y', 'best', 'y'],
    ['z', 'best', 'z'],
    ['best', 'end', 'best'],
  ]);
  await submitFlow(database, flow, await ready(database, cast));
  await submitFlow(database, flow, await ready(database, cast));
  for (const key of keysOf(cast)) await readForExplain(database, key, LIVE_MS);
  const calls = callsOn(database);
  await calls.complete([await claimOf(database, client, cast.kindOf('x'))]);
  const [group] = await listPendingGroups(database, 10);
  await cancelSiblings(database, group!, 1);
  await cancelSiblings(database, group!, 1);
  await cancelSiblings(database, group!, 1);
  await tellEnds(database, 1_000, 1_000);
  for (const name of ['best', 'end'])
    await calls.complete([await claimOf(database, client, cast.kindOf(name))]);
  await tellEnds(database, 1_000, 1_000);
  await tellLostEnds(database, { flow: NO_UUID, execution: NO_UUID }, 10);
  await client.query('INSERT INTO ff_pending_cancel_groups VALUES ($1, $2, $3, 0)', [
    PARTITION,
    flow.uuid,
    cast.uuids['best'],
  ]);
  await reconcileSiblings(database, 10);
  await forgetExecutions(
    database,
    keysOf(cast).map((key) => ({ ...key, hadSetback: false })),
    -1,
    0,
  );
}

/** A failure skips what comes after it, and a replay makes that wait again. */
async function walkLost(database: Database, client: Recorder['client']): Promise<void> {
  const flow = newFlow();
  const cast = castOf({ a: null, b: join('all'), c: join('all') }, [
    ['a', 'b'],
    ['b', 'c'],
  ]);
  await submitFlow(database, flow, await ready(database, cast));
  await callsOn(database).fail([await claimOf(database, client, cast.kindOf('a'))]);
  for (let level = 0; level < 3; level += 1) await tellEnds(database, 1_000, 1_000);
  await replayExecutions(database, [{ uuid: cast.uuids['a']!, partition: PARTITION, leaseEpoch: null }], {
    fromStart: false,
    reason: 'why',
    actor: 'me',
    defaultMaxReplays: 10,
  });
  const lease = await claimOf(database, client, cast.kindOf('a'));
  const more = castOf({ d: join('all') }, [['a', 'd']], cast.uuids);
  await growFlow(database, flow, await ready(database, more), { lease });
  await growFlow(database, flow, await ready(database, more), { lease });
  const late = castOf({ e: join('all') }, [['a', 'e']], cast.uuids);
  await expectRefused(
    'lease_lost',
    growFlow(database, flow, await ready(database, late), { lease: unknownLeases(1)[0]! }),
  );
  const request = { reason: 'why', by: 'me' };
  await cancelFlow(database, flow, { ...request, policy: 'cancel_pending' });
  await cancelMembers(database, flow.uuid, 1);
  await cancelFlow(database, flow, { ...request, policy: 'cancel_all' });
  for (let chunk = 0; chunk < 6; chunk += 1) await cancelMembers(database, flow.uuid, 1);
  for (let level = 0; level < 3; level += 1) await tellEnds(database, 1_000, 1_000);
}

/** A flow built step by step, and a cycle that is refused. */
async function walkBuilt(database: Database): Promise<void> {
  const flow = newFlow();
  await createFlow(database, flow);
  const cast = castOf({ a: join('all'), b: join('all') }, []);
  await growFlow(database, flow, await ready(database, cast), { revision: 0 });
  const { a, b } = cast.uuids as { a: string; b: string };
  const stranger = submitCall({ kinds: [`stranger-${randomUUID()}`], count: 1 }).rows[0]!.uuid;
  await expectRefused(
    'execution_not_found',
    adoptMembers(database, flow, null, [{ uuid: stranger, name: 'stranger' }]),
  );
  await setJoin(database, flow, b, join('any', 1));
  const edge = edgeRow(a, b);
  await stageEdges(database, flow, null, [edge]);
  await expectRefused('cycle', stageEdges(database, flow, null, [edgeRow(b, a)]));
  await applyEdges(database, flow, [edge.edgeId]);
  await unstageEdges(database, flow, [edge.edgeId]);
  await sealFlow(database, flow, null);
  const open = newFlow();
  await createFlow(database, open);
  await cancelFlow(database, open, { policy: 'let_finish', reason: 'why', by: 'me' });
}

/** An existing execution is added. */
async function walkAdopted(database: Database): Promise<void> {
  const flow = newFlow();
  await createFlow(database, flow);
  const call = submitCall({ kinds: [`adopted-${randomUUID().slice(0, 8)}`], count: 1 });
  await submitExecutions(database, await makeKnown(database, call));
  await adoptMembers(database, flow, null, [{ uuid: call.rows[0]!.uuid, name: 'adopted' }]);
}

export async function walkJoined(database: Database, client: Recorder['client']): Promise<void> {
  await walkWon(database, client);
  await walkLost(database, client);
  await walkBuilt(database);
  await walkAdopted(database);
}
