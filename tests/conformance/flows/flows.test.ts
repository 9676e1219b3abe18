/**
 * Flows from submit to outcome: which member runs when, what is handed to it, which are stopped, and how the flow
 * finishes.
 */
import { describe, expect, it } from 'vitest';
import type { EdgeCondition, JoinPolicy } from '../../../src/contract/flows.ts';
import { submitFlow, type NamedMember } from './kit.ts';
import { useBench } from '../open.ts';

const bench = useBench();
const flowOf = (members: readonly NamedMember[]) => submitFlow(bench, members);

describe('a chain', () => {
  it('runs one member after the other, and hands results on', async () => {
    const flow = await flowOf([
      { name: 'a' },
      { name: 'b', after: [{ from: 'a', as: 'first' }], payload: { own: 1 } },
      { name: 'c', after: ['b'] },
    ]);
    expect(await flow.states()).toEqual({ a: 'waiting', b: 'waiting_children', c: 'waiting_children' });
    await flow.complete('a', { n: 7 });
    expect(await flow.states()).toEqual({ a: 'completed', b: 'waiting', c: 'waiting_children' });
    const b = await flow.claim('b');
    expect(b.payload).toEqual({ own: 1, first: { n: 7 } });
    await bench.port.complete(b);
    await flow.complete('c');
    expect(await flow.describe()).toMatchObject({ state: 'completed', counts: { completed: 3 } });
    expect(await bench.engine.flows.wait(flow.flowId)).toBe('completed');
  });

  it('is skipped after a failure, to the last member', async () => {
    const flow = await flowOf([{ name: 'a' }, { name: 'b', after: ['a'] }, { name: 'c', after: ['b'] }]);
    await flow.fail('a');
    expect(await flow.states()).toEqual({ a: 'failed', b: 'skipped', c: 'skipped' });
    expect(await flow.state()).toBe('failed');
    expect(await bench.engine.executions.result(flow.members['b']!)).toMatchObject({
      outcome: 'skipped',
      message: 'dependency_impossible',
    });
  });

  it('is skipped after a cancel, and after a lapsed lease', async () => {
    const cancelled = await flowOf([{ name: 'a' }, { name: 'b', after: ['a'] }]);
    await bench.engine.cancel(cancelled.members['a']!, { reason: 'why' });
    await bench.port.fireTimers();
    expect(await cancelled.states()).toEqual({ a: 'cancelled', b: 'skipped' });
    const lapsed = await flowOf([{ name: 'a' }, { name: 'b', after: ['a'] }]);
    await lapsed.claim('a');
    await bench.loseLeases();
    await bench.port.fireTimers();
    expect(await lapsed.states()).toEqual({ a: 'expired', b: 'skipped' });
  });
});

/** x, y and z lead into one join: how each finishes, and what becomes of the member after them. */
type End = 'completed' | 'failed' | 'open';
const TABLE: [JoinPolicy, [End, End, End], string][] = [
  [{ kind: 'all' }, ['completed', 'completed', 'completed'], 'waiting'],
  [{ kind: 'all' }, ['completed', 'completed', 'open'], 'waiting_children'],
  [{ kind: 'all' }, ['failed', 'open', 'open'], 'skipped'],
  [{ kind: 'any', onSatisfied: 'let_run' }, ['completed', 'open', 'open'], 'waiting'],
  [{ kind: 'any', onSatisfied: 'let_run' }, ['failed', 'failed', 'open'], 'waiting_children'],
  [{ kind: 'any', onSatisfied: 'let_run' }, ['failed', 'failed', 'completed'], 'waiting'],
  [{ kind: 'any', onSatisfied: 'let_run' }, ['failed', 'failed', 'failed'], 'skipped'],
  [{ kind: 'quorum', k: 2, onSatisfied: 'let_run' }, ['completed', 'open', 'open'], 'waiting_children'],
  [{ kind: 'quorum', k: 2, onSatisfied: 'let_run' }, ['completed', 'completed', 'open'], 'waiting'],
  [{ kind: 'quorum', k: 2, onSatisfied: 'let_run' }, ['failed', 'completed', 'open'], 'waiting_children'],
  [{ kind: 'quorum', k: 2, onSatisfied: 'let_run' }, ['failed', 'failed', 'open'], 'skipped'],
  [{ kind: 'quorum', k: 3, onSatisfied: 'let_run' }, ['failed', 'open', 'open'], 'skipped'],
];

describe('a join', () => {
  it.each(TABLE)('%o after %o: %s', async (join, ends, expected) => {
    const names = ['x', 'y', 'z'];
    const flow = await flowOf([...names.map((name) => ({ name })), { name: 'after', after: names, join }]);
    for (const [index, end] of ends.entries()) {
      if (end === 'completed') await flow.complete(names[index]!);
      if (end === 'failed') await flow.fail(names[index]!);
    }
    const states = await flow.states();
    expect(states['after']).toBe(expected);
    // Every remaining member runs.
    expect(names.filter((name) => states[name] === 'waiting')).toHaveLength(
      ends.filter((end) => end === 'open').length,
    );
  });

  it('is decided once: later outcomes are only counted', async () => {
    const flow = await flowOf([
      { name: 'x' },
      { name: 'y' },
      { name: 'after', after: ['x', 'y'], join: { kind: 'any', onSatisfied: 'let_run' } },
    ]);
    await flow.complete('x');
    await flow.fail('y');
    const { members } = await flow.describe();
    expect(members.find(({ name }) => name === 'after')).toMatchObject({
      state: 'waiting',
      join: { state: 'satisfied', satisfied: 1, failed: 1, pending: 0 },
    });
    await flow.complete('after');
    expect(await flow.state()).toBe('completed');
  });
});

describe('losers', () => {
  const members: NamedMember[] = [
    { name: 'x' },
    { name: 'y' },
    { name: 'z' },
    { name: 'best', after: ['x', 'y', 'z'], join: { kind: 'any' } },
  ];

  it('are stopped when a join is satisfied, whether they run or wait', async () => {
    const flow = await flowOf(members);
    const loser = await flow.claim('y');
    await flow.complete('x');
    expect(await flow.states()).toEqual({ x: 'completed', y: 'cancelled', z: 'cancelled', best: 'waiting' });
    expect(await bench.port.complete(loser)).toMatchObject({ outcome: 'not_active' });
    expect(await bench.engine.executions.result(flow.members['y']!)).toMatchObject({
      outcome: 'cancelled',
      message: 'sibling_quorum_satisfied',
      by: 'engine',
    });
    await flow.complete('best');
    expect(await flow.state()).toBe('completed');
  });

  it('are stopped when a join becomes impossible', async () => {
    const flow = await flowOf([
      ...members.slice(0, 3),
      { name: 'most', after: ['x', 'y', 'z'], join: { kind: 'quorum', k: 2 } },
    ]);
    await flow.fail('x');
    expect((await flow.states())['z']).toBe('waiting');
    await flow.fail('y');
    expect(await flow.states()).toEqual({ x: 'failed', y: 'failed', z: 'cancelled', most: 'skipped' });
    expect(await bench.engine.executions.result(flow.members['z']!)).toMatchObject({
      message: 'sibling_quorum_impossible',
    });
    expect(await flow.state()).toBe('failed');
  });

  it('that another join waits for keep running until that is decided too', async () => {
    const flow = await flowOf([
      { name: 'x' },
      { name: 'y' },
      { name: 'shared' },
      { name: 'one', after: ['x', 'shared'], join: { kind: 'any' } },
      { name: 'two', after: ['y', 'shared'], join: { kind: 'any' } },
    ]);
    await flow.complete('x');
    expect(await flow.states()).toMatchObject({ one: 'waiting', shared: 'waiting', two: 'waiting_children' });
    await flow.complete('y');
    expect(await flow.states()).toMatchObject({ two: 'waiting', shared: 'cancelled' });
  });
});

describe('an edge', () => {
  const CASES: [EdgeCondition, 'complete' | 'fail', string][] = [
    ['success', 'complete', 'waiting'],
    ['success', 'fail', 'skipped'],
    ['failure', 'complete', 'skipped'],
    ['failure', 'fail', 'waiting'],
    ['always', 'complete', 'waiting'],
    ['always', 'fail', 'waiting'],
    ['skipped', 'complete', 'skipped'],
    ['skipped', 'fail', 'skipped'],
  ];
  it.each(CASES)('on %s, after a %s: %s', async (on, end, expected) => {
    const flow = await flowOf([{ name: 'a' }, { name: 'b', after: [{ from: 'a', on }] }]);
    await flow[end]('a');
    expect((await flow.states())['b']).toBe(expected);
  });

  it('that handles a failure keeps the flow from failing', async () => {
    const flow = await flowOf([
      { name: 'a' },
      { name: 'clean-up', after: [{ from: 'a', on: 'failure', as: 'why' }] },
    ]);
    await flow.fail('a');
    const claim = await flow.claim('clean-up');
    expect(claim.payload).toMatchObject({ why: { outcome: 'failed', message: 'no' } });
    await bench.port.complete(claim);
    expect(await flow.state()).toBe('completed');
  });

  it('hands several results on as a list, in the order of the edges', async () => {
    const flow = await flowOf([
      { name: 'a' },
      { name: 'b' },
      { name: 'c' },
      {
        name: 'sum',
        after: ['b', 'a', 'c'].map((from) => ({ from, as: 'parts', list: true })),
        join: { kind: 'quorum', k: 2, onSatisfied: 'let_run' },
      },
    ]);
    await flow.complete('a', 1);
    await flow.complete('b', 2);
    // Too late to be handed on.
    await flow.complete('c', 3);
    expect((await flow.claim('sum')).payload).toEqual({ parts: [2, 1] });
  });
});

describe('a fallback', () => {
  const members: NamedMember[] = [
    { name: 'a' },
    { name: 'b', after: ['a'], fallback: 'plan-b' },
    { name: 'plan-b' },
    { name: 'end', after: ['b', 'plan-b'], join: { kind: 'any' } },
  ];

  it('runs when the join is impossible', async () => {
    const flow = await flowOf(members);
    await flow.fail('a');
    expect(await flow.states()).toMatchObject({ b: 'skipped', 'plan-b': 'waiting', end: 'waiting_children' });
    await flow.complete('plan-b');
    await flow.complete('end');
    expect((await flow.describe()).counts).toEqual({ failed: 1, skipped: 1, completed: 2 });
  });

  it('is skipped when it is not needed', async () => {
    const flow = await flowOf(members);
    await flow.complete('a');
    await flow.complete('b');
    expect(await flow.states()).toMatchObject({ b: 'completed', 'plan-b': 'skipped', end: 'waiting' });
  });
});

describe('a member that only a loser needed', () => {
  it('is stopped with it, but not one that another member needs', async () => {
    const flow = await flowOf([
      { name: 'fast' },
      { name: 'load' },
      { name: 'slow-1', after: ['load'] },
      { name: 'slow-2', after: ['slow-1'] },
      { name: 'report', after: ['load'] },
      { name: 'best', after: ['fast', 'slow-2'], join: { kind: 'any' } },
    ]);
    await flow.complete('load');
    await flow.claim('slow-1');
    await flow.complete('fast');
    expect(await flow.states()).toMatchObject({
      'slow-1': 'cancelled',
      'slow-2': 'cancelled',
      report: 'waiting',
      best: 'waiting',
    });
    await flow.complete('report');
    await flow.complete('best');
    expect(await flow.state()).toBe('completed');
  });
});

describe('inputs over the size limit', () => {
  it('skip the member with a reason, and fail the flow', async () => {
    const names = ['a', 'b', 'c', 'd', 'e'];
    const flow = await flowOf([
      ...names.map((name) => ({ name })),
      { name: 'all', after: names.map((from) => ({ from, as: 'parts', list: true })) },
    ]);
    for (const name of names) await flow.complete(name, 'x'.repeat(1_000_000));
    expect((await flow.states())['all']).toBe('skipped');
    expect(await bench.engine.executions.result(flow.members['all']!)).toMatchObject({
      message: 'input_too_large',
    });
    expect(await flow.state()).toBe('failed');
  });
});
