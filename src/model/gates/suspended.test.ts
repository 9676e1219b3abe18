/**
 * The sentence about a suspension: what each wait has and needs, what happens when it times out, and that it stays one
 * sentence however many waits there are.
 */
import { describe, expect, it } from 'vitest';
import type { CountCondition, SignalCondition } from '../../contract/signals.ts';
import type { BlockingReason } from '../../contract/states.ts';
import {
  nextTimeMs,
  suspensionFacts,
  tellSuspension,
  type OpenWait,
  type SuspensionFacts,
} from './suspended.ts';

const leaf = (change: Partial<CountCondition> = {}): CountCondition => ({
  kind: 'count',
  n: 2,
  by: 'sources',
  waitpoints: ['approval'],
  ...change,
});
const wait = (change: Partial<OpenWait> = {}): OpenWait => ({
  name: 'boss',
  key: '',
  timeoutInMs: 300_000,
  onTimeout: 'fail',
  condition: leaf(),
  counts: [1],
  ...change,
});
const suspension = (waits: OpenWait[], wakeInMs: number | null = null): SuspensionFacts => ({
  suspendedAtMs: 9,
  suspendedAgoMs: 10_800_000,
  wakeInMs,
  waits,
});
const told = (waits: OpenWait[], wakeInMs: number | null = null): string =>
  tellSuspension('waiting_for_approval', suspension(waits, wakeInMs));
const needing = (condition: SignalCondition, counts: number[]): string =>
  told([wait({ timeoutInMs: null, condition, counts })]);

describe('the sentence', () => {
  it('tells since when, what it has and needs, what happens on timeout and which command shows it', () => {
    expect(told([wait()])).toBe(
      'Suspended for 3h, waiting for an approval: boss has 1 of 2 signals from distinct sources at approval ' +
        '(times out in 5m, then it fails); see flowfabric waitpoints list.',
    );
  });

  it.each<[BlockingReason, string]>([
    ['waiting_for_signal', 'a signal'],
    ['waiting_for_approval', 'an approval'],
    ['waiting_for_callback', 'a callback'],
    ['waiting_for_tool_result', 'a tool result'],
    ['paused_by_operator', 'an operator'],
  ])('of %s names %s', (reason, what) => {
    expect(tellSuspension(reason, suspension([wait()]))).toContain(`, waiting for ${what}: boss has`);
    expect(tellSuspension(reason, null)).toContain(`It is suspended, waiting for ${what};`);
  });

  it.each<[OpenWait['onTimeout'], number, string]>([
    ['fail', 1_000, 'times out in 1s, then it fails'],
    ['cancel', 1_000, 'times out in 1s, then it is cancelled'],
    ['expire', 1_000, 'times out in 1s, then it expires'],
    ['resume', 1_000, 'times out in 1s, then it resumes'],
    ['escalate', 1_000, 'times out in 1s, then it is escalated to an operator'],
    ['fail', -5, 'times out within about a second, then it fails'],
  ])('of a wait with %s in %i ms contains: %s', (onTimeout, timeoutInMs, end) => {
    expect(told([wait({ onTimeout, timeoutInMs })])).toContain(` (${end});`);
  });

  it('of a wait without a timeout mentions none', () => {
    expect(told([wait({ timeoutInMs: null })])).not.toContain('times out');
  });

  it.each<[SignalCondition, number[], string]>([
    [leaf({ n: 1, by: 'signals' }), [0], 'has 0 of 1 signal at approval;'],
    [
      leaf({ by: 'waitpoints', waitpoints: ['a', 'b', 'c', 'd', 'e'] }),
      [1],
      'has 1 of 2 signals at distinct waitpoints among a, b, c and 2 more;',
    ],
    [leaf({ match: 'yes' }), [0], 'has 0 of 2 signals named yes from distinct sources at approval;'],
    [
      { kind: 'all', of: [leaf({ by: 'signals' }), leaf({ n: 1, waitpoints: ['b'] })] },
      [2, 0],
      'needs all of (2 of 2 signals at approval, 0 of 1 signal from distinct sources at b);',
    ],
    [
      { kind: 'any', of: [{ kind: 'all', of: [leaf(), leaf()] }, leaf({ by: 'signals' })] },
      [0, 0, 1],
      'needs any of (all of 2 conditions, 1 of 2 signals at approval);',
    ],
    [
      { kind: 'any', of: [leaf({ by: 'signals' }), leaf({ by: 'signals' })] },
      [1],
      'needs any of (1 of 2 signals at approval, 2 signals at approval);',
    ],
  ])('tells what is needed: %j with %j', (condition, counts, words) => {
    expect(needing(condition, counts)).toContain(`boss ${words}`);
  });

  it('distinguishes waits of one name by their keys', () => {
    expect(told([wait({ key: 'a' }), wait({ key: 'b' })])).toMatch(/: boss \(a\) has .*; boss \(b\) has /);
  });

  it('names the first few of many waits, and when it resumes anyway', () => {
    const many = Array.from({ length: 16 }, (_, index) => wait({ name: `w${index}` }));
    const text = told(many, 60_000);
    expect(text).toMatch(/w0 .*w1 .*w2 .* and 13 more; in any case it resumes in 1m; see flowfabric/);
    expect(text).not.toContain('w3');
  });

  it('stays on one line whatever the names contain', () => {
    const name = 'two\nlines';
    const text = told([wait({ name, key: name, condition: leaf({ waitpoints: [name], match: name }) })]);
    expect(text).not.toContain('\n');
    expect(text).toContain('two lines (two lines) has 1 of 2 signals named two lines');
  });
});

describe('the facts', () => {
  it('contain the waits unchanged, with the counts in the order of the leaves', () => {
    const condition = { kind: 'all', of: [leaf(), leaf({ match: 'yes' })] } as const;
    const facts = suspensionFacts(
      'waiting_for_callback',
      suspension([wait({ condition, counts: [1, 0] })], 7),
    );
    expect(facts).toEqual({
      reason: 'waiting_for_callback',
      suspendedAtMs: 9,
      suspendedAgoMs: 10_800_000,
      wakeInMs: 7,
      waits: [{ name: 'boss', key: '', timeoutInMs: 300_000, onTimeout: 'fail', condition, counts: [1, 0] }],
    });
  });

  it('of a suspension that could not be read contain only the reason', () => {
    expect(suspensionFacts('waiting_for_signal', null)).toEqual({ reason: 'waiting_for_signal' });
  });
});

describe('the next due time', () => {
  it.each<[(number | null)[], number | null, number | null]>([
    [[null], null, null],
    [[5, 3, null], null, 3],
    [[5], 2, 2],
    [[null], 2, 2],
    [[-4, 2], 1, -4],
  ])('of timeouts in %j and a sleep of %j is %j', (times, wakeInMs, next) => {
    const waits = times.map((timeoutInMs) => wait({ timeoutInMs }));
    expect(nextTimeMs(suspension(waits, wakeInMs))).toBe(next);
  });
});
