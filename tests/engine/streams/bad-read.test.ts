/**
 * What readers of streams are refused: cursors, limits and options, each with a code, the field and a sentence; and
 * streams that do not exist.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import { LIMITS } from '../../../src/index.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import { misplaced, useBench } from '../../conformance/open.ts';
import type { Values } from '../refused.ts';
import { NUMBERS, refuseAll, type Trial } from './trials.ts';

const bench = useBench();
let claim: Claim;

beforeAll(async () => {
  claim = await bench.running();
});

const read = (member: string) => (value: unknown) =>
  bench.engine.streams.read(claim.executionId, { [member]: value });
const once = (member: string) => (value: unknown) =>
  bench.engine.streams.tailOnce(claim.executionId, { attemptIndex: 0, [member]: value } as never);
const tail = (request: object) => () => {
  const items = bench.engine.streams.tail(claim.executionId, request as never);
  return items[Symbol.asyncIterator]().next();
};
const tailed = (member: string) => (value: unknown) => tail({ [member]: value })();

/** Invalid cursors, for ranges and for tails. */
const NO_CURSORS: Values = {
  '-': '-',
  '+': '+',
  empty: '',
  '*': '*',
  $: '$',
  negative: '-5',
  'a fraction': '1.5-0',
  'no sequence': '5-',
  'no timestamp': '-5-1',
  blanks: ' 5-1',
  hexadecimal: '0x5-1',
  'three parts': '5-1-1',
  'too large': '9999999999999999-0',
  'far too large': '9'.repeat(30),
  'a number': 5,
};
const OF_EXECUTION: Values = { 'of an execution': '0/5-1' };
const ENDS: Values = { start: 'start', end: 'end' };
const LIMIT: Values = { ...NUMBERS, 'too many': LIMITS.streamRead + 1 };

const READS: Trial[] = [
  {
    title: 'from',
    call: read('from'),
    code: 'invalid_cursor',
    field: 'request.from',
    values: { ...NO_CURSORS, ...OF_EXECUTION },
  },
  { title: 'to', call: read('to'), code: 'invalid_cursor', field: 'request.to', values: NO_CURSORS },
  { title: 'limit', call: read('limit'), field: 'request.limit', values: LIMIT },
  { title: 'direction', call: read('direction'), field: 'request.direction', values: { unknown: 'up' } },
  { title: 'visibility', call: read('visibility'), field: 'request.visibility', values: { unknown: 'some' } },
  {
    title: 'attemptIndex',
    call: read('attemptIndex'),
    field: 'request.attemptIndex',
    values: { negative: -1, text: '0', 'too large': 2 ** 31 },
  },
  { title: 'a member nobody knows', call: read('after'), field: 'request.after', values: { after: '0-0' } },
  {
    title: 'tailOnce: after',
    call: once('after'),
    code: 'invalid_cursor',
    field: 'request.after',
    values: { ...NO_CURSORS, ...ENDS, ...OF_EXECUTION },
  },
  { title: 'tailOnce: limit', call: once('limit'), field: 'request.limit', values: LIMIT },
  {
    title: 'tailOnce: block',
    call: once('block'),
    field: 'request.block',
    values: { negative: -1, NaN: Number.NaN, 'too long': LIMITS.tailBlockMs + 1 },
  },
  {
    title: 'tailOnce: attemptIndex',
    call: once('attemptIndex'),
    field: 'request.attemptIndex',
    values: { missing: undefined, negative: -1 },
  },
  {
    title: 'tail: after',
    call: tailed('after'),
    code: 'invalid_cursor',
    field: 'request.after',
    values: {
      ...NO_CURSORS,
      ...ENDS,
      'without an attempt': '5-1',
      'of a fractional attempt': '0.5/5-1',
      'of a negative attempt': '-1/5-1',
      'of an attempt and its start': '0/start',
      'of an attempt without a frame': '0/',
    },
  },
  {
    title: 'tail of an attempt: after',
    call: (after) => tail({ attemptIndex: 0, after })(),
    code: 'invalid_cursor',
    field: 'request.after',
    values: { ...NO_CURSORS, ...ENDS, 'of another attempt': '1/5-1' },
  },
  { title: 'tail: signal', call: tailed('signal'), field: 'request.signal', values: { text: 'stop' } },
  {
    title: 'readSummary: attemptIndex',
    call: (attemptIndex) => bench.engine.streams.readSummary(claim.executionId, { attemptIndex } as never),
    field: 'request.attemptIndex',
    values: { negative: -1, null: null },
  },
];

refuseAll(bench, { reads: READS });

describe('a reader of a stream that does not exist', () => {
  const nobody = '{fp:7}:018f0000-0000-7000-8000-000000000001';
  it.each([
    ['read', (id: string) => bench.engine.streams.read(id)],
    ['tailOnce', (id: string) => bench.engine.streams.tailOnce(id, { attemptIndex: 0, block: 5_000 })],
    ['tail', (id: string) => bench.engine.streams.tail(id)[Symbol.asyncIterator]().next()],
    ['readSummary', (id: string) => bench.engine.streams.readSummary(id)],
    ['watchSummary', (id: string) => bench.engine.streams.watchSummary(id)[Symbol.asyncIterator]().next()],
  ])('%s is refused at once', async (_, ask) => {
    for (const id of [nobody, misplaced(claim.executionId)])
      await expect(ask(id)).rejects.toMatchObject({ code: 'not_found', field: 'executionId' });
  });
});
