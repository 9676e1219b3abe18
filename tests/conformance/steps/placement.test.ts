/**
 * Where children and members live: in the partition of their parent or their flow, whoever submits them. Ending one
 * wakes the others in the same transaction, so they may never be in different partitions.
 */
import { describe, expect, it } from 'vitest';
import { parseExecutionId, uuidV7 } from '../../../src/contract/ids.ts';
import type { ExecutionId } from '../../../src/index.ts';
import type { LeaseRef } from '../../../src/protocol/index.ts';
import { expectRefused } from '../../engine/refused.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();

function idIn(partition: number): ExecutionId {
  return `{fp:${partition}}:${uuidV7(1_700_000_000_000, crypto.getRandomValues(new Uint8Array(10)))}`;
}

const partitionOf = (id: ExecutionId): number => parseExecutionId(id).partition;

async function spawn(lease: LeaseRef, kind: string, count = 1): Promise<ExecutionId[]> {
  const requests = Array.from({ length: count }, () => ({ kind }));
  const spawned = await bench.port.spawn(lease, requests);
  if (spawned.outcome !== 'spawned') throw new Error('the parent lost its lease');
  return spawned.children.map(({ executionId }) => executionId);
}

describe('a child', () => {
  it('is minted in the partition of its parent, as are its own children', async () => {
    const kind = newKind();
    const parent = await bench.running({ executionId: idIn(201) });
    const children = await spawn(parent, kind, 20);
    expect(children.map(partitionOf)).toEqual(Array(20).fill(201));
    const child = await bench.claimOne(kind);
    expect((await spawn(child, newKind(), 3)).map(partitionOf)).toEqual([201, 201, 201]);
  });

  it('of a member lives where the flow does', async () => {
    const [name, kind] = ['m', newKind()];
    const flow = await bench.engine.flows.submit({ name: 'f', members: [{ name, kind }] });
    const member = await bench.claimOne(kind);
    const [child] = await spawn(member, newKind());
    const { partition } = parseExecutionId(flow.flowId);
    expect([partitionOf(member.executionId), partitionOf(child!)]).toEqual([partition, partition]);
  });

  it('may be given an id in that partition, and in no other', async () => {
    const parent = await bench.running({ executionId: idIn(17) });
    const [here, elsewhere] = [idIn(17), idIn(18)];
    const kind = newKind();
    const both = [
      { kind, executionId: here },
      { kind, executionId: elsewhere },
    ];
    await expectRefused(bench.database, () => bench.port.spawn(parent, both), {
      code: 'invalid_id',
      field: 'requests[1].executionId',
      says: /partition 17/,
    });
    expect(await bench.port.spawn(parent, both.slice(0, 1))).toEqual({
      outcome: 'spawned',
      children: [{ executionId: here, outcome: 'submitted' }],
    });
  });

  it('cannot be put elsewhere by SQL either', async () => {
    const parent = await bench.running({ executionId: idIn(17) });
    const child = parseExecutionId(idIn(18)).uuid;
    const spawning = bench.database.query(
      `SELECT FROM ff_spawn($1, 17::smallint, 0, 1, '[]', '[]', ARRAY[$2::uuid], '{18}', '{1}', '{0}', '{null}')`,
      [parseExecutionId(parent.executionId).uuid, child],
    );
    await expect(spawning).rejects.toMatchObject({ code: 'FF004' });
  });
});

it('a flow keeps its graph, its members and its progress in one partition', async () => {
  const kind = newKind();
  const members = [
    { name: 'a', kind },
    { name: 'b', kind, after: ['a'] },
  ];
  const flow = await bench.engine.flows.submit({ name: 'f', members });
  const { partition, uuid } = parseExecutionId(flow.flowId);
  const tables = ['ff_flow', 'ff_flow_progress', 'ff_member', 'ff_edge', 'ff_edge_group', 'ff_execution'];
  const found = await bench.database.query(
    tables
      .map((table) => `SELECT DISTINCT '${table}' AS name, partition_key FROM ${table} WHERE flow_id = $1`)
      .join(' UNION ALL '),
    [uuid],
  );
  expect(found.rows).toEqual(tables.map((name) => ({ name, partition_key: partition })));
});
