/**
 * Flow definitions: what the compiler infers about edges and inputs, what it refuses, and the plan that results. Code
 * that must not compile is never run.
 */
import { describe, expect, expectTypeOf, it } from 'vitest';
import { z } from 'zod';
import {
  join,
  flow,
  task,
  type Connection,
  type FailedEnd,
  type FlowBuilder,
  type FlowNode,
  type FlowRun,
  type MemberEnd,
} from '../../src/index.ts';

const ask = task<{ question: string }, { text: string }>('ask');
const count = task<{ of: string }, number>('count');
const judge = task<{ answers: { text: string }[]; style: string }, { best: string }>('judge');
const show = task<{ answer: { text: string }; words?: number }, null>('show');
const open = task('open');

/** Compiled, and never called. */
function onlyTyped(define: (f: FlowBuilder<{ question: string }>) => void): void {
  expect(define).toBeTypeOf('function');
}

describe('the compiler', () => {
  it('infers what edges pass on, and what input remains to be given', () => {
    onlyTyped((f) => {
      const one = f.add('one', ask, { question: 'why' });
      const two = f.add('two', ask, (input) => ({ question: input.question }));
      expectTypeOf(one).toEqualTypeOf<FlowNode<{ text: string }>>();
      const judged = f.add('judged', judge, { style: 'short' }, { after: { answers: [one, two] } });
      expectTypeOf(judged).toEqualTypeOf<FlowNode<{ best: string }>>();
      f.add('shown', show, {}, { after: { answer: one } });
      f.add('both', show, { words: 3 }, { after: { answer: one }, alsoAfter: [judged, two.failed()] });
      f.add('anything', open, { given: 1 }, { after: { whatever: one } });
      const row = f.each('row', ask, ({ question }) => [{ question }]);
      f.add('of a row', judge, () => ({ style: 'long' }), { after: { answers: row }, join: join.quorum(1) });
    });
  });

  it('refuses results that do not match, unknown names, and missing input', () => {
    onlyTyped((f) => {
      const one = f.add('one', ask, { question: 'why' });
      const number = f.add('number', count, { of: 'x' });
      const row = f.each('row', ask, [{ question: 'a' }]);
      // @ts-expect-error -- a number is not a question
      f.add('a', ask, { question: 1 });
      // @ts-expect-error -- nor may a function return one
      f.add('b', ask, () => ({ question: 1 }));
      // @ts-expect-error -- the input of the flow has no answer
      f.add('c', ask, (input) => ({ question: input.answer }));
      // @ts-expect-error -- a number is not an answer
      f.add('d', show, {}, { after: { answer: number } });
      // @ts-expect-error -- not in a list either
      f.add('e', judge, { style: '' }, { after: { answers: [one, number] } });
      // @ts-expect-error -- one answer is not a list
      f.add('f', judge, { style: '' }, { after: { answers: one } });
      // @ts-expect-error -- and a list is not one answer
      f.add('g', show, {}, { after: { answer: [one] } });
      // @ts-expect-error -- nor is a row
      f.add('h', show, {}, { after: { answer: row } });
      // @ts-expect-error -- the task's input has no such key
      f.add('i', show, {}, { after: { answer: one, other: one } });
      // @ts-expect-error -- the style is missing
      f.add('j', judge, {}, { after: { answers: [one] } });
      // @ts-expect-error -- the answer is missing
      f.add('k', show, { words: 1 }, { alsoAfter: [one] });
      // @ts-expect-error -- the edge already provides it
      f.add('l', show, { answer: { text: '' } }, { after: { answer: one } });
      // @ts-expect-error -- nor may a function provide it
      f.add('m', show, () => ({ answer: { text: '' } }), { after: { answer: one } });
      // @ts-expect-error -- a failure is not an answer
      f.add('n', show, {}, { after: { answer: one.failed() } });
    });
  });

  it('makes single results optional for a join that does not need all', () => {
    onlyTyped((f) => {
      const one = f.add('one', ask, { question: 'why' });
      const number = f.add('number', count, { of: 'x' });
      // @ts-expect-error -- the answer may be missing
      f.add('a', show, {}, { after: { answer: one, words: number }, join: join.any() });
      f.add('b', show, {}, { after: { answer: one, words: number }, join: join.all() });
      f.add(
        'c',
        show,
        { answer: { text: '' } },
        { after: { words: number }, join: join.any({ losers: 'let_run' }) },
      );
      f.add('d', judge, { style: '' }, { after: { answers: [one] }, join: join.any() });
      f.handle('e', { after: { one, numbers: [number] }, join: join.quorum(1) }, (input) => {
        expectTypeOf(input).toEqualTypeOf<{ one?: { text: string }; numbers: number[] }>();
      });
    });
  });

  it('passes upstream results to a handler, and its result to downstream members', () => {
    onlyTyped((f) => {
      const one = f.add('one', ask, { question: 'why' });
      const length = f.handle(
        'length',
        { after: { one }, input: { least: 3 } },
        async ({ one: { text }, least }, ctx) => {
          expectTypeOf(text).toEqualTypeOf<string>();
          expectTypeOf(least).toEqualTypeOf<number>();
          expectTypeOf(ctx.flow!.flowId).toExtend<string>();
          return Math.max(text.length, least);
        },
      );
      expectTypeOf(length).toEqualTypeOf<FlowNode<number>>();
      f.handle(
        'ends',
        { after: { bad: one.failed(), ends: [one.ended(), length.ended()] } },
        ({ bad, ends }) => {
          expectTypeOf(bad).toEqualTypeOf<FailedEnd>();
          expectTypeOf(ends).toEqualTypeOf<(MemberEnd<{ text: string }> | MemberEnd<number>)[]>();
        },
      );
      f.handle('asked', { input: ({ question }) => ({ question }) }, (input) => {
        expectTypeOf(input).toEqualTypeOf<{ question: string }>();
      });
      // @ts-expect-error -- the edge already provides it
      f.handle('twice', { after: { one }, input: { one: 1 } }, () => null);
      // @ts-expect-error -- it is missing
      f.handle('lacks', { after: { one } }, ({ two }) => two);
      f.add('shown', show, {}, { after: { answer: one, words: length } });
    });
  });

  it('infers the input and the result of a flow', () => {
    const asked = flow('asked', (f: FlowBuilder<{ question: string }>) =>
      f.add('ask', ask, (input) => input),
    );
    const nightly = flow('nightly', (f) => f.add('count', count, { of: 'sheep' }));
    const submits = (connection: Connection) => {
      expectTypeOf(connection.submitFlow(asked, { question: '' })).resolves.toEqualTypeOf<
        FlowRun<{ text: string }>
      >();
      expectTypeOf(connection.submitFlow(nightly)).resolves.toEqualTypeOf<FlowRun<number>>();
      void connection.submitFlow(nightly, undefined, { tags: {} });
      // @ts-expect-error -- without a question
      void connection.submitFlow(asked);
      // @ts-expect-error -- of another type
      void connection.submitFlow(asked, { question: 1 });
      void connection.flows.submit({ name: 'plain', members: [{ name: 'a', kind: 'b' }] });
      // @ts-expect-error -- returns no member
      void flow('none', (f) => void f.add('count', count, { of: 'sheep' }));
    };
    expect(submits).toBeTypeOf('function');
  });
});

describe('a plan', () => {
  const race = flow('race', (f: FlowBuilder<{ questions: string[] }>) => {
    const last = f.add('last resort', count, { of: 'none' }, { priority: 7, deadline: '1m' });
    const row = f.each('ask', ask, ({ questions }) => questions.map((question) => ({ question })));
    const judged = f.add(
      'judged',
      judge,
      { style: 'short' },
      { after: { answers: row }, join: join.any(), fallback: last },
    );
    return f.handle(
      'say',
      {
        after: { best: judged, how: last.ended() },
        alsoAfter: [row.ended()],
        join: join.quorum(2, { losers: 'let_run' }),
        timeout: '5s',
      },
      ({ best }) => best?.best ?? 'nothing',
    );
  });

  it('is built for every input', async () => {
    expect(await race.layOut({ questions: ['a', 'b'] })).toEqual([
      {
        kind: 'count',
        name: 'last resort',
        payload: { of: 'none' },
        priority: 7,
        policy: { deadline: 60_000 },
      },
      { kind: 'ask', name: 'ask[0]', payload: { question: 'a' } },
      { kind: 'ask', name: 'ask[1]', payload: { question: 'b' } },
      {
        kind: 'judge',
        name: 'judged',
        payload: { style: 'short', answers: [] },
        after: [
          { from: 'ask[0]', on: 'success', as: 'answers', list: true },
          { from: 'ask[1]', on: 'success', as: 'answers', list: true },
        ],
        join: { kind: 'any' },
        fallback: 'last resort',
      },
      {
        kind: 'race.say',
        name: 'say',
        payload: {},
        after: [
          { from: 'judged', on: 'success', as: 'best' },
          { from: 'last resort', on: 'always', as: 'how' },
          { from: 'ask[0]', on: 'always' },
          { from: 'ask[1]', on: 'always' },
        ],
        join: { kind: 'quorum', k: 2, onSatisfied: 'let_run' },
      },
    ]);
    expect((await race.layOut({ questions: [] })).map(({ name }) => name)).toEqual([
      'last resort',
      'judged',
      'say',
    ]);
  });

  it('includes the handlers defined in it', () => {
    expect(race.handlers.map((handler) => [handler.task.name, handler.task.timeoutMs])).toEqual([
      ['race.say', 5_000],
    ]);
    expect(race.resultOf).toBe('say');
  });

  it('validates the available inputs before anything is submitted', async () => {
    const strict = task('strict', { input: z.object({ n: z.number().max(3) }) });
    const sized = flow('sized', (f: FlowBuilder<number>) => f.add('n', strict, (n) => ({ n })));
    await expect(sized.layOut(4)).rejects.toMatchObject({ code: 'invalid_input' });
    expect(await sized.layOut(3)).toHaveLength(1);
  });

  const stranger = flow('other', (f) => f.add('a', open, null));
  let node!: FlowNode;
  flow('leaky', (f) => (node = f.add('a', open, null)));
  it.each<[string, (f: FlowBuilder) => unknown]>([
    ['has a duplicate name', (f) => [f.add('a', open, null), f.add('a', open, null)]],
    ['has a member without a task', (f) => f.add('a', undefined as never, null)],
    ['depends on a member of another flow', (f) => f.add('a', open, {}, { after: { node } })],
    ['returns a member of another flow', () => node],
    ['returns no member', () => stranger],
    ['returns the outcome of a member', (f) => f.add('a', open, null).ended()],
    ['returns a row', (f) => f.each('a', open, [null])],
  ])('that %s is refused', (_, define) => {
    expect(() => flow('bad', define as (f: FlowBuilder) => FlowNode)).toThrow(
      expect.objectContaining({ code: 'invalid_input' }),
    );
  });

  it('accepts no members once it is built', () => {
    let kept!: FlowBuilder;
    flow('kept', (f) => {
      kept = f;
      return f.add('a', open, null);
    });
    expect(() => kept.add('b', open, null)).toThrow('was added after the flow was defined');
  });

  it.each<[string, unknown]>([
    ['not an object', 7],
    ['given both directly and by an edge', { first: 1 }],
  ])('refuses an input that is %s', async (_, input) => {
    const bad = flow('bad', (f) =>
      f.add('b', open, input as object, { after: { first: f.add('a', open, null) } }),
    );
    await expect(bad.layOut()).rejects.toMatchObject({ code: 'invalid_input' });
  });
});
