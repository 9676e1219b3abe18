/**
 * A frame is encoded once: what the worker has encoded passes through the engine unchanged, and nothing else does.
 */
import { expect, it } from 'vitest';
import { encodeFrame } from './frames.ts';

it('an encoded frame is returned unchanged, whatever its field is called the second time', () => {
  const frame = encodeFrame({ payload: { a: 1 }, step: { name: 's' } }, 'frame');
  expect(encodeFrame(frame, 'frames[7]')).toBe(frame);
  expect(() => Object.assign(frame, { mode: 'summary' })).toThrow(TypeError);
});

it('keeps its bytes when the original changes', () => {
  const given = Uint8Array.from([1, 2, 3]);
  const frame = encodeFrame({ payload: given }, 'frame');
  given.fill(9);
  expect([...frame.payload]).toEqual([1, 2, 3]);
});

it('a copy of an encoded frame is checked like any other, and gives the same result', () => {
  const requests = [
    { payload: 'ä' },
    { payload: { a: [1, null] }, correlationId: 'c' },
    { payload: { a: 1 }, mode: 'summary', frameType: 't' },
    { payload: Uint8Array.from([255]), mode: 'best_effort', step: { name: 's', key: 'k', tryIndex: 2 } },
  ] as const;
  for (const request of requests) {
    const frame = encodeFrame(request, 'frame');
    const copy = encodeFrame({ ...frame }, 'frame');
    expect(copy).not.toBe(frame);
    expect(copy).toEqual(frame);
  }
  const forged = { ...encodeFrame({ payload: 'x' }, 'frame'), payload: Uint8Array.from([255]) };
  expect(() => encodeFrame(forged, 'frames[0]')).toThrow(
    'frames[0].payload is marked as text and is not valid UTF-8',
  );
});

it('an encoded frame cannot be changed, nor can the step it names', () => {
  const frame = encodeFrame({ payload: 'x', step: { name: 'a' } }, 'frame');
  expect([frame, frame.step].every((part) => Object.isFrozen(part))).toBe(true);
});
