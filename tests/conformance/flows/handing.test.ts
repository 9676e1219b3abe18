/**
 * What members hand to each other, what is added to a flow while it runs, and malformed lists.
 */
import { describe, expect, it } from 'vitest';
import type { MemberRequest } from '../../../src/contract/flows.ts';
import { formatExecutionId, parseExecutionId } from '../../../src/contract/ids.ts';
import { openFlow as open, submitFlow } from './kit.ts';
import { newKind, useBench } from '../open.ts';

const bench = useBench();
const openFlow = (names: readonly string[]) => open(bench, names);
const member = (name: string, more: Partial<MemberRequest> = {}) => ({ name, kind: 'k', ...more });

describe('a member that waits for its join', () => {
  it('is listed as waiting, with its flow', async () => {
    const flow = await submitFlow(bench, [{ name: 'a' }, { name: 'b', after: ['a'] }]);
    const listed = await bench.engine.executions.list({
      filter: { states: ['waiting_children'], kind: flow.kindOf('b') },
    });
    expect(listed.executions.map(({ executionId }) => executionId)).toEqual([flow.members['b']]);
    expect(await bench.snapshot(flow.members['b']!)).toMatchObject({ flowId: flow.flowId });
  });
});

describe('an edge that hands over a result', () => {
  it('is refused where the payload cannot take it, or its name is taken', async () => {
    const { flowId } = await bench.engine.flows.create({ name: 'full' });
    const { members } = await bench.engine.flows.addMembers(flowId, [
      { name: 'a', kind: newKind() },
      { name: 'b', kind: newKind() },
      { name: 'text', kind: newKind(), payload: 'text' },
      { name: 'c', kind: newKind() },
    ]);
    const { a, b, text, c } = members as { a: string; b: string; text: string; c: string };
    const stage = (upstream: string, downstream: string) =>
      bench.engine.flows.stageEdges(flowId, [{ upstream, downstream, as: 'x' }]);
    await expect(stage(a, text)).rejects.toMatchObject({ code: 'invalid_input', field: 'edges' });
    await stage(a, c);
    await expect(stage(b, c)).rejects.toMatchObject({
      code: 'invalid_input',
      message: expect.stringContaining('c under the same key'),
    });
  });

  it('hands over the result that decided the join, even after its member was replayed', async () => {
    const flow = await submitFlow(bench, [{ name: 'a' }, { name: 'b', after: [{ from: 'a', as: 'x' }] }]);
    await flow.complete('a', 'first');
    await bench.engine.executions.replay(flow.members['a']!, { reason: 'why' });
    await flow.fail('a');
    expect((await flow.claim('b')).payload).toEqual({ x: 'first' });
  });
});

describe('a member that is added', () => {
  it('may come before an existing one, as long as the join of that is open', async () => {
    const flow = await submitFlow(bench, [
      { name: 'plan' },
      { name: 'sum', after: ['plan'] },
      { name: 'done' },
      { name: 'decided', after: ['done'] },
    ]);
    const plan = await flow.claim('plan');
    const part = (name: string) => ({
      name,
      kind: flow.kindOf(name),
      after: ['plan'],
      before: [{ to: 'sum', as: 'parts', list: true }],
    });
    await bench.port.extendFlow(plan, [part('one'), part('two')]);
    await bench.port.complete(plan);
    expect((await flow.states())['sum']).toBe('waiting_children');
    await flow.complete('two', 2);
    await flow.complete('one', 1);
    expect((await flow.claim('sum')).payload).toEqual({ parts: [1, 2] });
  });

  it('may not come before one that has started, nor close a cycle', async () => {
    const flow = await submitFlow(bench, [
      { name: 'plan' },
      { name: 'root' },
      { name: 'after', after: ['plan'] },
    ]);
    const plan = await flow.claim('plan');
    const add = (more: object) => bench.port.extendFlow(plan, [{ name: 'late', kind: newKind(), ...more }]);
    await expect(add({ before: ['root'] })).resolves.toMatchObject({ outcome: 'submitted' });
    await expect(
      bench.port.extendFlow(plan, [{ name: 'later', kind: newKind(), before: ['plan'] }]),
    ).rejects.toMatchObject({ code: 'already_started' });
    await expect(
      bench.port.extendFlow(plan, [{ name: 'circle', kind: newKind(), after: ['after'], before: ['after'] }]),
    ).rejects.toMatchObject({ code: 'cycle' });
    expect((await flow.describe()).nodeCount).toBe(4);
  });
});

describe('a flow that already exists', () => {
  it('is a duplicate, with or without members, and one in another partition is refused', async () => {
    const { flowId } = await bench.engine.flows.create({ name: 'there' });
    const again = await bench.engine.flows.submit({ name: 'there', flowId, members: [member('a')] });
    expect(again).toEqual({ flowId, outcome: 'duplicate', members: {}, revision: 0 });
    const { partition, uuid } = parseExecutionId(flowId);
    const elsewhere = formatExecutionId((partition + 1) % 256, uuid);
    await expect(
      bench.engine.flows.submit({ name: 'there', flowId: elsewhere, members: [member('a')] }),
    ).rejects.toMatchObject({ code: 'invalid_id', field: 'request.flowId' });
    await expect(bench.engine.flows.create({ name: 'there', flowId: elsewhere })).rejects.toMatchObject({
      code: 'invalid_id',
    });
  });
});

describe('a list of inputs', () => {
  it('is in the order of its edges, whichever calls added them', async () => {
    const names = ['a', 'b', 'c', 'd', 'sum'];
    const flow = await openFlow(names);
    for (const part of [['d', 'b'], ['a'], ['c']]) {
      const { edgeIds } = await bench.engine.flows.stageEdges(
        flow.flowId,
        part.map((name) => ({
          upstream: flow.members[name]!,
          downstream: flow.members['sum']!,
          as: 'parts',
          list: true,
        })),
      );
      await bench.engine.flows.applyEdges(flow.flowId, edgeIds);
    }
    await bench.engine.flows.seal(flow.flowId);
    for (const name of names.slice(0, 4)) await flow.complete(name, name);
    expect((await flow.claim('sum')).payload).toEqual({ parts: ['d', 'b', 'a', 'c'] });
  });

  it('is a list even with one element, and for a member that waited for nothing', async () => {
    const flow = await submitFlow(bench, [{ name: 'plan' }, { name: 'sum' }]);
    const plan = await flow.claim('plan');
    const before = [{ to: 'sum', as: 'parts', list: true }];
    await bench.port.extendFlow(plan, [{ name: 'one', kind: flow.kindOf('one'), before }]);
    await flow.complete('one', 1);
    expect((await flow.claim('sum')).payload).toEqual({ parts: [1] });
  });
});

describe('a staged edge', () => {
  it('can be withdrawn, so that the flow can be sealed', async () => {
    const flow = await openFlow(['a', 'b']);
    const { a, b } = flow.members as { a: string; b: string };
    const { edgeIds } = await bench.engine.flows.stageEdges(flow.flowId, [{ upstream: a, downstream: b }]);
    await bench.engine.cancel(b, { reason: 'why' });
    await expect(bench.engine.flows.applyEdges(flow.flowId, edgeIds)).rejects.toMatchObject({
      code: 'already_started',
    });
    expect(await bench.engine.flows.unstageEdges(flow.flowId, edgeIds)).toEqual({ unstaged: 1 });
    expect(await bench.engine.flows.unstageEdges(flow.flowId, edgeIds)).toEqual({ unstaged: 0 });
    await bench.engine.flows.seal(flow.flowId);
    expect((await flow.describe()).edgeCount).toBe(0);
  });
});

describe('lists with holes or duplicates', () => {
  it('are refused with the index', async () => {
    const { flowId } = await openFlow(['a']);
    // oxlint-disable-next-line no-sparse-arrays -- that is what is refused
    const holes = [, member('x')] as unknown as MemberRequest[];
    await expect(bench.engine.flows.addMembers(flowId, holes)).rejects.toMatchObject({ field: 'members[0]' });
    await expect(
      bench.engine.flows.addMembers(flowId, [member('x', { after: holes as unknown as string[] })]),
    ).rejects.toMatchObject({ field: 'members[0].after[0]' });
    const { partition } = parseExecutionId(flowId);
    const executionId = formatExecutionId(partition, '018f0000-0000-7000-8000-0000000000aa');
    const adopted = { name: 'x', executionId };
    await expect(
      bench.engine.flows.addMembers(flowId, [adopted, { ...adopted, name: 'y' }]),
    ).rejects.toMatchObject({ field: 'members[1].executionId' });
    await expect(bench.engine.flows.addMembers(flowId, [])).rejects.toMatchObject({ field: 'members' });
    await expect(bench.engine.flows.stageEdges(flowId, [])).rejects.toMatchObject({ field: 'edges' });
  });
});
