/**
 * What a reader shows: each piece of output once, in order, whatever was written again.
 */
import { describe, expect, it } from 'vitest';
import type { StreamFrame, StreamItem } from '../contract/streams.ts';
import { foldStream } from './fold-stream.ts';

const place = { cursor: '0/1-1', attemptIndex: 0 };

function frame(payload: string, step: StreamFrame['step'] = null): StreamItem {
  const facts = { mode: 'durable', frameType: 'event', correlationId: null, summaryVersion: null } as const;
  const text = { encoding: 'text', payload, bytes: new TextEncoder().encode(payload) } as const;
  return {
    ...place,
    type: 'frame',
    frame: { id: '1-1', attemptIndex: 0, leaseEpoch: 1, ...facts, step, ...text },
  };
}

const inStep = (payload: string, name: string, tryIndex = 0, key = ''): StreamItem =>
  frame(payload, { name, key, tryIndex });

const restarted = (...names: string[]): StreamItem => ({
  ...place,
  type: 'restarted',
  leaseEpoch: 2,
  finishedSteps: names.map((name) => ({ name, key: '' })),
});
const superseded = (...names: string[]): StreamItem => ({
  ...place,
  type: 'superseded',
  by: 1,
  finishedSteps: names.map((name) => ({ name, key: '' })),
});

function shown(...items: StreamItem[]): unknown[] {
  return foldStream(items).map(({ payload }) => payload);
}

describe('foldStream', () => {
  it('shows every frame of a run that was not disturbed', () => {
    const paused: StreamItem = { ...place, type: 'paused', reason: 'waiting_for_signal' };
    const closed: StreamItem = { ...place, type: 'closed', reason: 'attempt_success' };
    expect(shown(frame('a'), inStep('b', 'one'), paused, frame('c'), closed)).toEqual(['a', 'b', 'c']);
  });

  it('drops what a restart or another attempt writes again, and keeps finished steps', () => {
    const before = [frame('a'), inStep('b', 'one'), inStep('half', 'two')];
    for (const again of [restarted('one'), superseded('one')])
      expect(shown(...before, again, frame('a'), inStep('whole', 'two'))).toEqual(['b', 'a', 'whole']);
  });

  it('keeps a finished step for good, even when a later item does not name it', () => {
    expect(shown(inStep('a', 'one'), superseded('one'), inStep('b', 'two'), superseded('two'))).toEqual([
      'a',
      'b',
    ]);
  });

  it('shows only the latest try of a step, and other steps and keys whole', () => {
    expect(
      shown(inStep('a', 'one', 0), inStep('x', 'one', 0, 'k'), inStep('b', 'one', 1), inStep('c', 'one', 1)),
    ).toEqual(['x', 'b', 'c']);
  });

  it('counts tries anew after a restart', () => {
    expect(shown(inStep('a', 'one', 1), restarted(), inStep('b', 'one', 0), inStep('c', 'one', 0))).toEqual([
      'b',
      'c',
    ]);
  });
});
