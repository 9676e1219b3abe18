/**
 * Which session is reported to hold a lock on an execution, and the sentence about it.
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
    'Session 7, open for 40s, idle after it recorded a step of ctx.tx, holds a lock on its row; nothing can change it until that transaction ends.',
  ],
  [
    session(null, null),
    'Session 7, whose transaction this role may not see, holds a lock on its row; nothing can change it until that transaction ends.',
  ],
])('%o has a sentence', (facts, sentence) => {
  expect(tellHolder(facts)).toBe(sentence);
});

it('a session that holds a lock for a moment is not reported', () => {
  expect(holderOf([session(HELD_AFTER_MS - 1, 'active')])).toBeUndefined();
  expect(holderOf([session(HELD_AFTER_MS, 'idle'), session(2, 'active')])).toEqual(
    session(HELD_AFTER_MS, 'idle'),
  );
  expect(holderOf([session(null, null)])).toEqual(session(null, null));
});
