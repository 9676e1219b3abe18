/**
 * What a reader shows: each piece of output once, in order, whatever was written again.
 */
import { describe, expect, it } from 'vitest';
import type { StreamFrame, StreamItem } from '../contract/streams.ts';
import { foldStream } from './fold-stream.ts';

const place = { cursor: '0/1-1', attemptIndex: 0 };

const none = {
  correlationId: null,
  summaryVersion: null,
  step: null,
  child: null,
  supersedes: null,
  after: null,
  applied: null,
};

function frame(payload: string, more: Partial<StreamFrame> = {}): StreamItem {
  const facts = { mode: 'durable', frameType: 'event', ...none } as const;
  const text = { encoding: 'text', payload, bytes: new TextEncoder().encode(payload) } as const;
  return {
    ...place,
    type: 'frame',
    frame: { id: '1-1', attemptIndex: 0, leaseEpoch: 1, ...facts, ...text, ...more },
  };
}

const inStep = (payload: string, name: string, tryIndex = 0, key = ''): StreamItem =>
  frame(payload, { step: { name, key, tryIndex } });

const resumed = (...names: string[]): StreamItem => ({
  ...place,
  type: 'resumed',
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

  it('drops what another attempt writes again, and keeps finished steps', () => {
    const before = [frame('a'), inStep('b', 'one'), inStep('half', 'two')];
    expect(shown(...before, superseded('one'))).toEqual(['b']);
    expect(shown(...before, superseded('one'), frame('a'), inStep('whole', 'two'))).toEqual([
      'b',
      'a',
      'whole',
    ]);
  });

  it('puts finished steps where another attempt comes past them', () => {
    const before = [frame('a'), inStep('b', 'one'), frame('c'), inStep('d', 'two'), superseded('one', 'two')];
    const again = [frame('a', { after: [] }), frame('c', { after: [{ name: 'one', key: '' }] })];
    expect(shown(...before, ...again)).toEqual(['a', 'b', 'c', 'd']);
    const last = frame('e', { after: [{ name: 'two', key: '' }] });
    expect(shown(...before, ...again, last)).toEqual(['a', 'b', 'c', 'd', 'e']);
    expect(shown(...before, ...again, superseded(), frame('z'))).toEqual(['b', 'd', 'z']);
  });

  it('keeps what a resumed attempt does not write again, and drops steps that it does', () => {
    const before = [frame('a'), inStep('b', 'one'), inStep('half', 'two')];
    expect(shown(...before, resumed('one'), inStep('whole', 'two'), frame('c'))).toEqual([
      'a',
      'b',
      'whole',
      'c',
    ]);
  });

  it('drops frames of one stream from the first difference on, and no others', () => {
    const of = (payload: string, seq: number, more: Partial<StreamFrame> = {}): StreamItem =>
      frame(payload, { id: `1-${seq}`, frameType: 'log', ...more });
    const before = [
      of('a', 1),
      of('b', 2),
      of('other type', 3, { frameType: 'token' }),
      of('other mode', 4, { mode: 'best_effort' }),
      of('in a step', 5, { step: { name: 'one', key: '', tryIndex: 0 } }),
      of('of a child', 6, { child: '{fp:0}:x' }),
      of('c', 7),
    ];
    const restarted: StreamItem = {
      ...place,
      type: 'restarted',
      stream: 'log',
      mode: 'durable',
      from: '1-2',
    };
    expect(shown(...before, resumed('one'), restarted, of('d', 8))).toEqual([
      'a',
      'other type',
      'other mode',
      'in a step',
      'of a child',
      'd',
    ]);
  });

  it('keeps what children wrote over all attempts', () => {
    expect(shown(frame('a'), frame('b', { child: '{fp:0}:x' }), superseded(), superseded())).toEqual(['b']);
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

  it('counts tries anew in another run', () => {
    expect(shown(inStep('a', 'one', 1), resumed(), inStep('b', 'one', 0), inStep('c', 'one', 0))).toEqual([
      'b',
      'c',
    ]);
  });
});
