/**
 * Flows built step by step, flows that grow while they run, and refused requests.
 */
import { describe, expect, it } from 'vitest';
import type { FlowRequest, JoinPolicy, MemberRequest } from '../../../src/contract/flows.ts';
import { LIMITS } from '../../../src/contract/limits.ts';
import { formatExecutionId, parseExecutionId } from '../../../src/contract/ids.ts';
import { openFlow as open, submitFlow } from './kit.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();

const openFlow = (names: readonly string[] = ['a', 'b', 'c']) => open(bench, names);

describe('a flow built step by step', () => {
  it('starts nothing before it is sealed, and then everything', async () => {
    const flow = await openFlow();
    const { a, b, c } = flow.members as { a: string; b: string; c: string };
    const { edgeIds } = await bench.engine.flows.stageEdges(flow.flowId, [
      { upstream: a, downstream: c, as: 'left' },
      { upstream: b, downstream: c, as: 'right' },
    ]);
    expect(await flow.state()).toBe('open');
    expect(await bench.engine.flows.applyEdges(flow.flowId, edgeIds)).toEqual({ applied: 2 });
    expect(await bench.engine.flows.applyEdges(flow.flowId, edgeIds)).toEqual({ applied: 0 });
    expect(await flow.states()).toEqual({
      a: 'waiting_children',
      b: 'waiting_children',
      c: 'waiting_children',
    });
    await bench.engine.flows.seal(flow.flowId);
    expect(await flow.states()).toEqual({ a: 'waiting', b: 'waiting', c: 'waiting_children' });
    await flow.complete('a', 1);
    await flow.complete('b', 2);
    expect((await flow.claim('c')).payload).toEqual({ left: 1, right: 2 });
  });

  it('adopts existing executions of its partition, including finished ones', async () => {
    const { flowId } = await bench.engine.flows.create({ name: 'adopting' });
    const { partition } = parseExecutionId(flowId);
    const idOf = (last: string) => formatExecutionId(partition, `018f0000-0000-7000-8000-0000000000${last}`);
    const kinds = [newKind(), newKind()] as const;
    for (const [index, kind] of kinds.entries())
      await bench.engine.executions.submit({ kind, executionId: idOf(`0${index}`) });
    const ended = await bench.claimOne(kinds[0]);
    await bench.port.complete(ended, 'early');
    await bench.engine.flows.addMembers(flowId, [
      { name: 'up', executionId: idOf('00') },
      { name: 'down', executionId: idOf('01') },
    ]);
    const { edgeIds } = await bench.engine.flows.stageEdges(flowId, [
      { upstream: idOf('00'), downstream: idOf('01'), as: 'early' },
    ]);
    await bench.engine.flows.applyEdges(flowId, edgeIds);
    expect(await bench.claim({ kinds: [kinds[1]], limit: 1 })).toEqual([]);
    await bench.engine.flows.seal(flowId);
    const [down] = await bench.claim({ kinds: [kinds[1]], limit: 1 });
    expect(down?.payload).toEqual({ early: 'early' });
  });

  it('does not decide a join before all its edges are applied', async () => {
    const flow = await openFlow();
    const { a, b, c } = flow.members as { a: string; b: string; c: string };
    await bench.engine.flows.setJoin(flow.flowId, c, { kind: 'quorum', k: 2 });
    const stage = (upstream: string) =>
      bench.engine.flows.stageEdges(flow.flowId, [{ upstream, downstream: c }]);
    await bench.engine.flows.applyEdges(flow.flowId, (await stage(a)).edgeIds);
    await bench.engine.cancel(a, { reason: 'why' });
    await bench.port.fireTimers();
    expect((await flow.states())['c']).toBe('waiting_children');
    await bench.engine.flows.applyEdges(flow.flowId, (await stage(b)).edgeIds);
    await bench.engine.flows.seal(flow.flowId);
    await bench.port.fireTimers();
    expect((await flow.states())['c']).toBe('skipped');
  });

  it('has a revision that counts its changes, and refuses a caller that expected another', async () => {
    const { flowId } = await bench.engine.flows.create({ name: 'revised' });
    const add = (name: string, expectedRevision: number) =>
      bench.engine.flows.addMembers(flowId, [{ name, kind: newKind() }], { expectedRevision });
    expect((await add('a', 0)).revision).toBe(1);
    await expect(add('b', 0)).rejects.toMatchObject({
      code: 'stale_revision',
      field: 'options.expectedRevision',
      message: expect.stringContaining('revision 1'),
    });
    expect((await add('b', 1)).revision).toBe(2);
    expect((await bench.engine.flows.describe(flowId))!.nodeCount).toBe(2);
  });
});

describe('a running member', () => {
  it('extends its flow with members, edges from itself, and edges into open joins', async () => {
    const flow = await submitFlow(bench, [{ name: 'plan' }, { name: 'end', after: ['plan'] }]);
    const plan = await flow.claim('plan');
    const grow = () =>
      bench.port.extendFlow(plan, [
        { name: 'part-1', kind: flow.kindOf('part-1'), after: ['plan'] },
        { name: 'part-2', kind: flow.kindOf('part-2'), after: ['plan'] },
        { name: 'sum', kind: flow.kindOf('sum'), after: ['part-1', 'part-2'] },
      ]);
    expect(await grow()).toMatchObject({ outcome: 'submitted' });
    // As after a crash: members are identified by their names.
    expect(await grow()).toMatchObject({ outcome: 'duplicate' });
    await bench.port.complete(plan);
    expect(await flow.states()).toEqual({
      plan: 'completed',
      end: 'waiting',
      'part-1': 'waiting',
      'part-2': 'waiting',
      sum: 'waiting_children',
    });
    await flow.complete('end');
    expect(await flow.state()).toBe('running');
    for (const name of ['part-1', 'part-2', 'sum']) await flow.complete(name);
    expect(await flow.state()).toBe('completed');
  });

  it('cannot extend it without its lease', async () => {
    const flow = await submitFlow(bench, [{ name: 'plan' }]);
    const plan = await flow.claim('plan');
    await bench.port.complete(plan);
    await expect(bench.port.extendFlow(plan, [{ name: 'late', kind: newKind() }])).rejects.toMatchObject({
      code: 'flow_ended',
    });
    const other = await submitFlow(bench, [{ name: 'plan' }, { name: 'open' }]);
    const held = await other.claim('plan');
    await bench.engine.executions.revokeLease(held.executionId, { reason: 'why' });
    await expect(bench.port.extendFlow(held, [{ name: 'late', kind: newKind() }])).rejects.toMatchObject({
      code: 'lease_lost',
    });
    expect((await other.describe()).nodeCount).toBe(2);
  });
});

type Refused = [string, Partial<FlowRequest> | { members: unknown }, object];
const member = (name: string, more: Partial<MemberRequest> = {}) => ({ name, kind: 'k', ...more });
const REFUSED: Refused[] = [
  ['no members', { members: [] }, { code: 'invalid_input', field: 'members' }],
  ['a duplicate name', { members: [member('a'), member('a')] }, { field: 'members[1].name' }],
  ['an edge to itself', { members: [member('a', { after: ['a'] })] }, { code: 'cycle' }],
  [
    'a circle',
    {
      members: [member('a', { after: ['c'] }), member('b', { after: ['a'] }), member('c', { after: ['b'] })],
    },
    { code: 'cycle', message: 'The edges form a cycle: b → c → a → b.' },
  ],
  ['an unknown member', { members: [member('a', { after: ['x'] })] }, { code: 'not_a_member' }],
  [
    'a quorum of 0',
    { members: [member('a'), member('b', { after: ['a'], join: { kind: 'quorum', k: 0 } })] },
    { code: 'invalid_input', field: 'members[1].join.k' },
  ],
  [
    'a quorum of more than there are edges',
    { members: [member('a'), member('b', { after: ['a'], join: { kind: 'quorum', k: 2 } })] },
    { code: 'invalid_input', field: 'members[1].join', message: 'members[1].join needs 2 edges but has 1.' },
  ],
  [
    'any of no edges',
    { members: [member('a', { join: { kind: 'any' } })] },
    { code: 'invalid_input', field: 'members[0].join' },
  ],
  [
    'two edges from one member',
    { members: [member('a'), member('b', { after: ['a', { from: 'a', on: 'failure' }] })] },
    { field: 'members[1].after[1].from' },
  ],
  [
    'one input used twice',
    {
      members: [
        member('a'),
        member('b'),
        member('c', {
          after: [
            { from: 'a', as: 'x' },
            { from: 'b', as: 'x' },
          ],
        }),
      ],
    },
    { field: 'members[2].after[1].as' },
  ],
  [
    'a payload that cannot take an input',
    { members: [member('a'), member('b', { after: [{ from: 'a', as: 'x' }], payload: 'text' })] },
    { field: 'members[1].payload' },
  ],
  [
    'an unknown condition',
    { members: [member('a'), member('b', { after: [{ from: 'a', on: 'later' as 'always' }] })] },
    { field: 'members[1].after[0].on' },
  ],
  [
    'an unknown join',
    { members: [member('a', { join: { kind: 'most' } as unknown as JoinPolicy })] },
    { field: 'members[0].join.kind' },
  ],
  ['an unknown fallback', { members: [member('a', { fallback: 'x' })] }, { code: 'not_a_member' }],
  [
    'a namespace of its own',
    { members: [{ ...member('a'), namespace: 'x' }] },
    { field: 'members[0].namespace' },
  ],
  [
    'too many members',
    { members: Array.from({ length: LIMITS.flowMembers + 1 }, (_, n) => member(`m${n}`)) },
    { code: 'too_many', field: 'members' },
  ],
  ['an invalid id', { flowId: 'x', members: [member('a')] }, { code: 'invalid_id' }],
];

describe('a flow is refused, and nothing is written, with', () => {
  it.each(REFUSED)('%s', async (_, request, expected) => {
    const before = (await bench.engine.flows.list()).flows.length;
    const asked = { name: 'refused', ...request } as FlowRequest;
    await expect(bench.engine.flows.submit(asked)).rejects.toMatchObject(expected);
    expect((await bench.engine.flows.list()).flows).toHaveLength(before);
  });
});

describe('a change is refused', () => {
  it('of a sealed flow, a finished one, and one that does not exist', async () => {
    const flow = await submitFlow(bench, [{ name: 'a' }]);
    const add = (id: string) => bench.engine.flows.addMembers(id, [{ name: 'b', kind: newKind() }]);
    await expect(add(flow.flowId)).rejects.toMatchObject({ code: 'flow_sealed' });
    await flow.complete('a');
    await expect(add(flow.flowId)).rejects.toMatchObject({ code: 'flow_ended' });
    const { partition } = parseExecutionId(flow.flowId);
    const nobody = formatExecutionId(partition, '018f0000-0000-7000-8000-00000000ffff');
    await expect(add(nobody)).rejects.toMatchObject({ code: 'not_found' });
  });

  it('that would close a cycle, naming its members', async () => {
    const flow = await openFlow();
    const { a, b, c } = flow.members as { a: string; b: string; c: string };
    const stage = (upstream: string, downstream: string) =>
      bench.engine.flows.stageEdges(flow.flowId, [{ upstream, downstream }]);
    await stage(a, b);
    await stage(b, c);
    await expect(stage(c, a)).rejects.toMatchObject({
      code: 'cycle',
      message: 'The edges form a cycle: c → a → … → c.',
    });
    await expect(stage(a, a)).rejects.toMatchObject({ code: 'cycle' });
    await expect(stage(a, b)).rejects.toMatchObject({ code: 'invalid_input', field: 'edges' });
    expect((await flow.describe()).edgeCount).toBe(2);
  });

  it('that names a member of another flow, an unknown execution, or another partition', async () => {
    const [one, other] = [await openFlow(['a']), await openFlow(['b'])];
    const stage = (downstream: string) =>
      bench.engine.flows.stageEdges(one.flowId, [{ upstream: one.members['a']!, downstream }]);
    const { partition } = parseExecutionId(one.flowId);
    const foreign = formatExecutionId((partition + 1) % 256, parseExecutionId(one.members['a']!).uuid);
    const there = formatExecutionId(partition, parseExecutionId(other.members['b']!).uuid);
    for (const id of [foreign, there])
      await expect(stage(id)).rejects.toMatchObject({ code: 'not_a_member' });
    const adopt = (executionId: string) =>
      bench.engine.flows.addMembers(one.flowId, [{ name: 'x', executionId }]);
    await expect(adopt(one.members['a']!)).rejects.toMatchObject({ code: 'not_a_member' });
    await expect(adopt(foreign)).rejects.toMatchObject({ code: 'not_a_member' });
  });

  it('of a join that has edges, and of a member that has started', async () => {
    const flow = await openFlow(['a', 'b']);
    const { a, b } = flow.members as { a: string; b: string };
    expect(await bench.engine.flows.setJoin(flow.flowId, b, { kind: 'any' })).toBe('set');
    expect(await bench.engine.flows.setJoin(flow.flowId, b, { kind: 'any' })).toBe('already_set');
    const { edgeIds } = await bench.engine.flows.stageEdges(flow.flowId, [{ upstream: a, downstream: b }]);
    await expect(bench.engine.flows.setJoin(flow.flowId, b, { kind: 'all' })).rejects.toMatchObject({
      code: 'join_fixed',
    });
    await expect(bench.engine.flows.seal(flow.flowId)).rejects.toMatchObject({ code: 'invalid_input' });
    await bench.engine.flows.applyEdges(flow.flowId, edgeIds);
    await bench.engine.flows.seal(flow.flowId);
    const begun = await flow.claim('a');
    await expect(
      bench.port.extendFlow(begun, [{ name: 'late', kind: newKind(), fallback: 'a' }]),
    ).rejects.toMatchObject({ code: 'not_a_member' });
  });
});
