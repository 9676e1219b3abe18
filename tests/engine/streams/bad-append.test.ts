/**
 * What writers to streams are refused: frames, patches and options, each with a code, the field and a sentence, before
 * anything is written; and writers that may no longer write, each with a precise outcome. Readers are in
 * bad-read.test.ts.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import { LIMITS } from '../../../src/index.ts';
import type { Claim, FrameRequest } from '../../../src/protocol/index.ts';
import { misplaced, newKind, useBench } from '../../conformance/open.ts';
import { rowCounts, UNSTORABLE } from '../refused.ts';
import { NUMBERS, refuseAll, type Trial } from './trials.ts';

const bench = useBench();
let claim: Claim;

beforeAll(async () => {
  claim = await bench.running();
});

const bytes = (text: string): Uint8Array => Buffer.from(text);
const append = (frames: unknown, options?: unknown) =>
  bench.port.appendFrames(claim, frames as FrameRequest[], options as never);
/** The second of two: the one before it must not be written either. */
const frame = (more: object) => append([{ payload: 'good' }, { payload: 'x', ...more }]);
const framed = (member: string) => (value: unknown) => frame({ [member]: value });
const patch = (payload: unknown) => frame({ payload, mode: 'summary' });
const encoded = (encoding: string) => (payload: unknown) => frame({ payload, encoding });
const option = (member: string) => (value: unknown) =>
  append([{ payload: 'x' }], { bestEffort: { [member]: value } });
const deep = (levels: number): unknown => (levels === 0 ? 1 : { a: deep(levels - 1) });
const PAYLOAD = 'frames[1].payload';

const FRAMES: Trial[] = [
  {
    title: 'frames',
    call: append,
    field: 'frames',
    values: {
      none: [],
      'not a list': { payload: 'x' },
      missing: undefined,
    },
  },
  {
    title: 'more frames than one call takes',
    call: append,
    code: 'too_many',
    field: 'frames',
    values: { text: Array.from({ length: LIMITS.appendFrames + 1 }, () => ({ payload: 'x' })) },
  },
  {
    title: 'a frame over its size',
    call: framed('payload'),
    code: 'payload_too_large',
    field: PAYLOAD,
    says: new RegExp(`${LIMITS.frameBytes}`),
    values: {
      text: 'x'.repeat(LIMITS.frameBytes + 1),
      'text in bytes, not characters': 'é'.repeat(LIMITS.frameBytes / 2 + 1),
      bytes: Buffer.alloc(LIMITS.frameBytes + 1),
      JSON: { a: 'x'.repeat(LIMITS.frameBytes) },
    },
  },
  {
    title: 'frames over their size together',
    call: append,
    code: 'payload_too_large',
    field: 'frames',
    values: { text: Array.from({ length: 65 }, () => ({ payload: Buffer.alloc(LIMITS.frameBytes) })) },
  },
  {
    title: 'a frame',
    call: (value) => append([value]),
    field: 'frames[0]',
    values: { null: null, text: 'x' },
  },
  {
    title: 'an unknown option',
    call: framed('kind'),
    field: 'frames[1].kind',
    values: { misspelled: 'stdout' },
  },
  {
    title: 'mode',
    call: framed('mode'),
    field: 'frames[1].mode',
    values: { unknown: 'live', empty: '', 'of another spelling': 'Durable', null: null, 'a number': 1 },
  },
  { title: 'encoding', call: framed('encoding'), field: 'frames[1].encoding', values: { unknown: 'utf8' } },
  {
    title: 'text',
    call: encoded('text'),
    field: PAYLOAD,
    values: {
      'invalid UTF-8 marked as text': Uint8Array.from([0xff, 0xfe]),
      'UTF-8 that is cut off': Uint8Array.from([0x61, 0xc3]),
      'half a surrogate pair': 'a\uD83D',
      'an object marked as text': {},
    },
  },
  {
    title: 'JSON',
    call: encoded('json'),
    field: PAYLOAD,
    values: {
      'invalid JSON': bytes('{"a":'),
      'no bytes': bytes(''),
      'two values': bytes('1 2'),
      'invalid UTF-8': Uint8Array.from([0x22, 0xff, 0x22]),
      missing: undefined,
    },
  },
  { title: 'binary', call: encoded('binary'), field: PAYLOAD, values: { text: 'x', list: [1, 2] } },
  {
    title: 'frameType',
    call: framed('frameType'),
    field: 'frames[1].frameType',
    values: { empty: '', 'too long': 't'.repeat(LIMITS.frameTypeBytes + 1), number: 1, ...UNSTORABLE },
  },
  {
    title: 'correlationId',
    call: framed('correlationId'),
    field: 'frames[1].correlationId',
    values: { empty: '', 'too long': 'c'.repeat(LIMITS.correlationBytes + 1), ...UNSTORABLE },
  },
  {
    title: 'step',
    call: framed('step'),
    field: 'frames[1].step.name',
    values: { 'without a name': {}, 'too long': { name: 's'.repeat(LIMITS.stepNameBytes + 1) } },
  },
];

const PATCHES: Trial[] = [
  {
    title: 'a patch',
    call: patch,
    field: PAYLOAD,
    values: {
      null: null,
      'a list': [{ a: 1 }],
      'a number': 5,
      text: 'not an object',
      'invalid JSON': bytes('{"a":1'),
      'not a JSON object': bytes('[1]'),
      'null as text': bytes('null'),
      'invalid UTF-8': Uint8Array.from([0x7b, 0xff, 0x7d]),
      'too deep': deep(LIMITS.patchDepth + 1),
      __proto__: bytes('{"__proto__": {"a": 1}}'),
      'constructor inside': { a: { constructor: 1 } },
      'prototype in a list': { a: [{ prototype: 1 }] },
    },
  },
  {
    title: 'a patch that a document cannot store',
    call: patch,
    field: expect.stringContaining(PAYLOAD) as unknown as string,
    values: {
      'with the character 0': { a: 'a\u0000' },
      'with the character 0 as text': bytes('{"a": "\\u0000"}'),
      'with half a surrogate pair as text': bytes('{"a": "\\ud800"}'),
      'with half a surrogate pair in a key': bytes('{"\\udc00": 1}'),
      'with a number out of range': bytes('{"a": 1e999999}'),
    },
  },
  {
    title: 'a patch that is not JSON',
    call: (encoding) => frame({ payload: { a: 1 }, mode: 'summary', encoding }),
    field: 'frames[1].encoding',
    values: { text: 'text', binary: 'binary' },
  },
];

const OPTIONS: Trial[] = [
  {
    title: 'ttlMs',
    call: option('ttlMs'),
    field: 'options.bestEffort.ttlMs',
    values: { ...NUMBERS, 'too long': LIMITS.bestEffortTtlMs + 1 },
  },
  {
    title: 'floor',
    call: option('floor'),
    field: 'options.bestEffort.floor',
    values: { ...NUMBERS, 'too many': LIMITS.bestEffortFrames + 1 },
  },
  {
    title: 'ceiling',
    call: option('ceiling'),
    field: 'options.bestEffort.ceiling',
    values: { ...NUMBERS, 'below the floor': 63, 'too many': LIMITS.bestEffortFrames + 1 },
  },
  {
    title: 'alpha',
    call: option('alpha'),
    field: 'options.bestEffort.alpha',
    values: { zero: 0, negative: -0.1, 'over 1': 1.01, NaN: Number.NaN, text: '0.2', null: null },
  },
  {
    title: 'appendId',
    call: (appendId) => append([{ payload: 'x' }], { appendId }),
    field: 'options.appendId',
    values: { text: 'x', empty: '', number: 5, 'no hyphens': '0'.repeat(32) },
  },
];

refuseAll(bench, { frames: FRAMES, patches: PATCHES, options: OPTIONS });

describe('a document that patches make too large', () => {
  const big = (name: string) => ({ payload: { [name]: 'x'.repeat(60_000) }, mode: 'summary' as const });
  const names = Array.from({ length: 17 }, (_, n) => `m${n}`);

  it('is refused with its whole call; concurrent calls are not affected', async () => {
    const writer = await bench.running();
    await bench.port.appendFrames(writer, names.map(big));
    const asked = [
      bench.port.appendFrames(writer, [{ payload: 'before' }]),
      bench.port.appendFrames(writer, [{ payload: 'lost' }, big('one too many')]),
      bench.port.appendFrames(writer, [{ payload: 'after' }]),
    ];
    const told = await Promise.allSettled(asked);
    expect(told.map(({ status }) => status)).toEqual(['fulfilled', 'rejected', 'fulfilled']);
    expect((told[1] as PromiseRejectedResult).reason).toMatchObject({
      code: 'payload_too_large',
      field: 'frames',
    });
    const page = await bench.engine.streams.read(writer.executionId);
    expect(page.frames.slice(names.length).map(({ payload }) => payload)).toEqual(['before', 'after']);
    const summary = await bench.engine.streams.readSummary(writer.executionId);
    expect(summary).toMatchObject({ version: names.length });
    expect(Object.keys(summary!.document).toSorted()).toEqual(names.toSorted());
  });
});

describe('a writer that may not write', () => {
  const late = (lease: Claim) => bench.port.appendFrames(lease, [{ payload: 'late', mode: 'best_effort' }]);

  it('gets the reason, and has written nothing', async () => {
    const ended = await bench.running();
    await bench.port.complete(ended);
    const kind = newKind();
    const replaced = await bench.running({ kind });
    await bench.port.release(replaced);
    const holder = await bench.claimOne(kind);
    const before = await rowCounts(bench.database);
    expect(await late(ended)).toMatchObject({ outcome: 'not_active', terminalOutcome: 'success' });
    expect(await late(replaced)).toEqual({ outcome: 'stale_lease', leaseEpoch: holder.leaseEpoch });
    expect(await late({ ...holder, attemptIndex: 1 })).toMatchObject({ outcome: 'stale_lease' });
    expect(await late({ ...holder, executionId: misplaced(holder.executionId) })).toEqual({
      outcome: 'not_found',
    });
    expect(await rowCounts(bench.database)).toEqual(before);
  });
});
