/**
 * What readers of streams are shown of a frame: nothing hidden in any of its fields, whatever its form.
 */
import { describe, expect, it } from 'vitest';
import type { Redaction } from '../../contract/redaction.ts';
import type { StreamFrame, WatchItem } from '../../contract/streams.ts';
import { shownItem, shownPage, shownSummaryItem, shownWatchItem } from './shown.ts';

const SECRET = 'hush';
const card = { card: { number: SECRET }, rest: 1 };

function frameOf(own: Pick<StreamFrame, 'payload' | 'encoding'> & Partial<StreamFrame>): StreamFrame {
  const { payload, encoding } = own;
  const bytes = encoding === 'json' ? JSON.stringify(payload) : (payload as string | Uint8Array);
  return {
    id: '1-1',
    attemptIndex: 0,
    leaseEpoch: 1,
    mode: 'durable',
    frameType: 'words',
    correlationId: null,
    step: null,
    summaryVersion: null,
    child: null,
    supersedes: null,
    after: null,
    applied: null,
    bytes: Buffer.from(bytes),
    ...own,
  };
}

const text = (value: unknown): string =>
  JSON.stringify(value, (_, each: unknown) =>
    each instanceof Uint8Array ? Buffer.from(each).toString() : each,
  );

const FRAMES: readonly StreamFrame[] = [
  frameOf({ encoding: 'text', payload: SECRET }),
  frameOf({ encoding: 'json', payload: card }),
  frameOf({ encoding: 'binary', payload: new TextEncoder().encode(SECRET) }),
  frameOf({ encoding: 'json', payload: card, mode: 'summary', applied: card }),
];

describe.each<[Redaction]>([[true], [['/card/number']]])('under %j', (redaction) => {
  it.each(FRAMES)('no field of a frame has it: $encoding, $mode', (frame) => {
    const shown = shownItem({ type: 'frame', attemptIndex: 0, cursor: 'c', frame }, redaction);
    expect(text({ frame })).toContain(SECRET);
    expect(text({ shown })).not.toContain(SECRET);
    expect(shown).toMatchObject({ frame: { id: '1-1', frameType: 'words', encoding: frame.encoding } });
  });

  it('nor has a page, a document, a patch or a watched item', () => {
    const page = {
      attemptIndex: 0,
      frames: [...FRAMES],
      isComplete: true,
      closed: null,
      frameCount: 4,
      totalBytes: 9,
    };
    const watched: WatchItem[] = [
      { type: 'document', attemptIndex: 0, document: card, version: 1 },
      { type: 'progress', percent: 5, message: SECRET, reportedAtMs: 1 },
      { type: 'state', state: 'active', attemptIndex: 0 },
    ];
    const shown = [
      shownPage(page, redaction),
      shownSummaryItem({ type: 'document', attemptIndex: 0, document: card, version: 1 }, redaction),
      shownSummaryItem({ type: 'patch', attemptIndex: 0, patch: card, version: 1 }, redaction),
      ...watched.map((item) => shownWatchItem(item, redaction)),
    ];
    expect(text(shown)).not.toContain(SECRET);
  });
});

it('pointers leave the rest of a frame', () => {
  const [frame] = shownPage(
    { attemptIndex: 0, frames: [FRAMES[3]!], isComplete: true, closed: null, frameCount: 1, totalBytes: 1 },
    ['/card/number'],
  ).frames;
  const shown = { card: { number: '[redacted]' }, rest: 1 };
  expect(frame).toMatchObject({ payload: shown, applied: shown });
  expect(JSON.parse(Buffer.from(frame!.bytes).toString())).toEqual(shown);
});
