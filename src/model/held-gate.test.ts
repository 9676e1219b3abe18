/**
 * Which session is said to hold an execution, and in which words.
 */
import { expect, it } from 'vitest';
import { HELD_AFTER_MS, holderOf, tellHolder, type SessionFacts } from './held-gate.ts';

const session = (ageMs: number | null, doing: SessionFacts['doing']): SessionFacts => ({
  pid: 7,
  ageMs,
  doing,
});

it.each([
  [
    session(40_000, 'step'),
    'Session 7, whose transaction has been open for 40 s, holds its row and is idle after it recorded a step of ctx.tx; until that ends, nothing can change it.',
  ],
  [session(null, null), 'Session 7, of another role, holds its row; until that ends, nothing can change it.'],
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
