/**
 * How the demo judges an execution it reads back, and what it says about all of them together.
 */
import { describe, expect, it } from 'vitest';
import type { AttemptSnapshot, ExecutionResult, ExecutionSnapshot } from '../../contract/executions.ts';
import { judge, type Audit } from './audit.ts';
import { isClean, verdict } from './verdict.ts';

const NOTHING = { completed: 0, retried: 0, takenOver: 0, failed: 0, lost: 0, wrong: 0 };
const DONE: ExecutionResult = { outcome: 'success', result: { number: 7 } };

/** Attempts written as `outcome by worker`. */
function snapshot(...attempts: string[]): ExecutionSnapshot {
  const ended = attempts.map((text, attemptIndex) => {
    const [outcome, workerInstanceId] = text.split(' by ');
    return { attemptIndex, outcome, workerInstanceId } as AttemptSnapshot;
  });
  return { attempts: ended } as ExecutionSnapshot;
}

describe('an execution read back', () => {
  it('is completed when one attempt succeeded with its own result', () => {
    expect(judge(7, snapshot('success by a'), DONE)).toEqual({ ...NOTHING, completed: 1 });
  });

  it('counts every failed attempt that was followed by another', () => {
    const found = judge(7, snapshot('failed by a', 'failed by b', 'success by a'), DONE);
    expect(found).toEqual({ ...NOTHING, completed: 1, retried: 2 });
  });

  it('was taken over when another worker than the silent one completed it', () => {
    const found = judge(7, snapshot('interrupted by a', 'success by b'), DONE);
    expect(found).toEqual({ ...NOTHING, completed: 1, takenOver: 1 });
    const same = judge(7, snapshot('interrupted by a', 'success by a'), DONE);
    expect(same).toEqual({ ...NOTHING, completed: 1 });
  });

  it('is wrong with two successes or the result of another', () => {
    expect(judge(7, snapshot('success by a', 'success by b'), DONE).wrong).toBe(1);
    expect(judge(8, snapshot('success by a'), DONE).wrong).toBe(1);
  });

  it('is lost when it is not there or has not ended', () => {
    expect(judge(7, null, { outcome: 'not_found' })).toEqual({ ...NOTHING, lost: 1 });
    const pending = judge(7, snapshot('failed by a'), { outcome: 'pending', state: 'waiting' });
    expect(pending).toEqual({ ...NOTHING, lost: 1 });
  });

  it('failed when it ended in any other way', () => {
    const expired: ExecutionResult = { outcome: 'expired', message: null, category: null, by: 'engine' };
    expect(judge(7, snapshot('interrupted by a'), expired)).toEqual({ ...NOTHING, failed: 1 });
  });
});

describe('the verdict', () => {
  const good: Audit = { ...NOTHING, submitted: 10, completed: 10, takenOver: 1 };
  const observed = { durationMs: 2_000, progress: { total: 10, foreign: 0, reportedTwice: 0 } };

  it.each([
    ['everything completed', good, observed, 'nothing was lost'],
    ['one is lost', { ...good, completed: 9, lost: 1 }, observed, '1 executions have not ended'],
    ['one failed', { ...good, completed: 9, failed: 1 }, observed, '1 failed'],
    ['one was doubled', { ...good, wrong: 1 }, observed, 'completed more than once'],
    [
      'not all were submitted',
      { ...good, submitted: 9, completed: 9 },
      observed,
      'only 9 of 10 were submitted',
    ],
    [
      'a worker was told twice',
      good,
      { ...observed, progress: { ...observed.progress, reportedTwice: 1 } },
      'completed more than once',
    ],
  ])('says so when %s', (_, audit, seen, sentence) => {
    const last = verdict(audit, seen).at(-1)!;
    expect(last[0]![0]).toContain(sentence);
    expect(isClean(audit, seen)).toBe(sentence === 'nothing was lost');
  });
});
