/**
 * The sentence about a finished execution: who cancelled it, and the engine's reason codes spelled out. Sentences about
 * joins are tested beside their code.
 */
import { describe, expect, it } from 'vitest';
import type { TerminalOutcome } from '../../contract/states.ts';
import { endFacts, tellEnd, type EndFacts } from './ended.ts';

const end = (change: Partial<EndFacts>): EndFacts => ({
  outcome: 'failed',
  endedAtMs: 9,
  endedAgoMs: 3_000,
  message: null,
  by: null,
  ...change,
});

describe('the sentence about a finished execution', () => {
  it.each<[TerminalOutcome, Partial<EndFacts>, string]>([
    ['success', { by: 'worker-1' }, 'It completed 3s ago'],
    ['failed', { message: 'no  such\nuser' }, 'It failed 3s ago (no such user)'],
    ['failed', { message: 'attempt_timeout' }, 'It failed 3s ago (attempt_timeout)'],
    ['cancelled', { message: 'sent twice', by: 'ada' }, 'It was cancelled 3s ago by ada (sent twice)'],
    ['failed', { message: 'odd', by: 'engine' }, 'It failed 3s ago (odd)'],
    [
      'expired',
      { message: 'execution_deadline', by: 'engine' },
      'It expired 3s ago: its deadline passed (execution_deadline)',
    ],
    [
      'cancelled',
      { message: 'sibling_quorum_satisfied', by: 'engine' },
      'It was cancelled 3s ago: the join it ran for was satisfied without it (sibling_quorum_satisfied)',
    ],
    ...(['failed', 'cancelled', 'expired'] as const).map(
      (outcome): [TerminalOutcome, Partial<EndFacts>, string] => [
        outcome,
        { message: 'suspension_timeout:manager', by: 'engine' },
        `It ${outcome === 'cancelled' ? 'was cancelled' : outcome} 3s ago: its wait for manager timed out`,
      ],
    ),
  ])('with the outcome %s and %j', (outcome, change, sentence) => {
    expect(tellEnd(outcome, end(change), null)).toBe(`${sentence}; replay it to run it again.`);
  });

  it('names only the outcome when nothing else is stored', () => {
    expect(tellEnd('failed', null, null)).toBe('It failed; replay it to run it again.');
    expect(endFacts('failed', null, null)).toEqual({
      outcome: 'failed',
      endedAtMs: null,
      message: null,
      by: null,
    });
  });
});
