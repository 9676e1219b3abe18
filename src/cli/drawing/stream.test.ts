/**
 * A stream on a screen: text runs on, JSON has lines, notes do not break into a line, and stored text cannot control the
 * terminal.
 */
import { describe, expect, it } from 'vitest';
import type { FrameRequest, StreamFrame, StreamItem } from '../../contract/streams.ts';
import { jsonOf, StreamScreen } from './stream.ts';

function frame(
  payload: StreamFrame['payload'],
  { frameType = 'event' }: Pick<FrameRequest, 'frameType'> = {},
): StreamItem {
  const isBinary = payload instanceof Uint8Array;
  const readable = typeof payload === 'string' ? 'text' : 'json';
  const encoding = isBinary ? 'binary' : readable;
  const bytes = isBinary ? payload : Buffer.from(JSON.stringify(payload));
  const none = {
    correlationId: null,
    step: null,
    summaryVersion: null,
    child: null,
    supersedes: null,
    after: null,
    applied: null,
  };
  const facts = { mode: 'durable', ...none } as const;
  return {
    type: 'frame',
    cursor: '0/1-1',
    attemptIndex: 0,
    frame: { id: '1-1', attemptIndex: 0, leaseEpoch: 1, ...facts, frameType, encoding, payload, bytes },
  };
}

const place = { cursor: '0/1-1', attemptIndex: 0 };

function shown(items: readonly StreamItem[], { isTTY }: { isTTY: boolean }): string {
  let all = '';
  const screen = new StreamScreen(
    { isTTY, write: (text) => (all += text) },
    (note) => (all += `<${note}>\n`),
  );
  for (const item of items) screen.show(item);
  screen.end();
  return all;
}

describe('the screen of a stream', () => {
  it('runs text of one type together, and starts a line for another type', () => {
    const items = [
      frame('let me ', { frameType: 'thought' }),
      frame('think', { frameType: 'thought' }),
      frame('42', { frameType: 'answer' }),
    ];
    expect(shown(items, { isTTY: false })).toBe('let me think\n42');
    expect(shown(items, { isTTY: true })).toBe('let me think\n42\n');
  });

  it('gives every JSON frame a line of its own', () => {
    expect(
      shown([frame('a'), frame({ b: 1 }), frame([2]), frame('c\n'), frame(null)], { isTTY: false }),
    ).toBe('a\n{"b":1}\n[2]\nc\nnull\n');
  });

  it('prints the number of bytes instead of the bytes', () => {
    expect(shown([frame(new Uint8Array(4_096), { frameType: 'image' })], { isTTY: false })).toBe(
      '<4,096 bytes of type image.>\n',
    );
  });

  it('removes control characters on a terminal, and nowhere else', () => {
    const items = [frame('a\u001B[31mb\r\u009Bc\u202E\td'), frame({ e: '\u0085' })];
    expect(shown(items, { isTTY: true })).toBe('a[31mbc\td\n{"e":""}\n');
    expect(shown(items, { isTTY: false })).toBe('a\u001B[31mb\r\u009Bc\u202E\td\n{"e":"\u0085"}\n');
  });

  it('ends a line before a note on a terminal, and leaves piped text unchanged', () => {
    const items: StreamItem[] = [
      frame('half'),
      { ...place, type: 'gap', missed: 1_200 },
      frame(' a line'),
      { ...place, type: 'paused', reason: 'waiting_for_signal' },
      { ...place, type: 'resumed', leaseEpoch: 2, finishedSteps: [{ name: 'draft', key: '1' }] },
      { ...place, type: 'restarted', stream: 'log', mode: 'durable', from: '7-1' },
      { ...place, type: 'closed', reason: 'attempt_failure' },
      { ...place, type: 'superseded', by: 1, finishedSteps: [{ name: 'draft', key: '1' }] },
      { ...place, type: 'forgotten' },
    ];
    const notes = [
      '<1,200 best-effort frames were trimmed before they could be read.>\n',
      '<attempt 1 is paused (waiting_for_signal) and will continue.>\n',
      '<attempt 1 continues under another lease.>\n',
      '<attempt 1 writes something else than before: log no longer counts from 7-1 on.>\n',
      '<attempt 1 ended: attempt_failure.>\n',
      '<attempt 2 follows: the output of attempt 1 no longer counts, except in finished steps: draft (1).>\n',
      '<the execution is past its retention time and was deleted.>\n',
    ];
    const [gap, ...rest] = notes;
    expect(shown(items, { isTTY: true })).toBe(`half\n${gap} a line\n${rest.join('')}`);
    expect(shown(items, { isTTY: false })).toBe(`half${gap} a line${rest.join('')}`);
  });
});

describe('an item as JSON', () => {
  it('has bytes as base64, and no value twice', () => {
    expect(jsonOf(frame(Uint8Array.from([0, 255])))).toMatchObject({
      type: 'frame',
      cursor: '0/1-1',
      frame: { encoding: 'binary', payload: 'AP8=' },
    });
    expect(jsonOf(frame({ a: 1 }))).not.toHaveProperty('frame.bytes');
  });
});
