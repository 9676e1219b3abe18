/**
 * Which session is said to hold an execution, and in which words.
 */
import { expect, it } from 'vitest';
import { HELD_AFTER_MS, holderOf, tellHolder, type SessionFacts } from './held.ts';

const session = (ageMs: number | null, doing: SessionFacts['doing']): SessionFacts => ({
  pid: 7,
  ageMs,
  doing,
});

it.each([
  [
    session(40_000, 'step'),
    'Session 7, open for 40 s, idle after it recorded a step of ctx.tx, holds its row; until that ends, nothing can change it.',
  ],
  [
    session(null, null),
    'Session 7, whose transaction this role may not look at, holds its row; until that ends, nothing can change it.',
  ],
])('%o is told', (facts, sentence) => {
  expect(tellHolder(facts)).toBe(sentence);
});

it('who is only passing by holds nothing', () => {
  expect(holderOf([session(HELD_AFTER_MS - 1, 'active')])).toBeUndefined();
  expect(holderOf([session(HELD_AFTER_MS, 'idle'), session(2, 'active')])).toEqual(
    session(HELD_AFTER_MS, 'idle'),
  );
  expect(holderOf([session(null, null)])).toEqual(session(null, null));
});
