/**
 * Malformed calls of everything but submit: refused with a code, the field and a sentence, before anything is written.
 * Failure reports are the exception: their text is repaired, not refused.
 */
import { beforeAll, describe, expect, it } from 'vitest';
import { connect, LIMITS, type ErrorCode } from '../../src/index.ts';
import type { Claim } from '../../src/protocol/index.ts';
import { claimRequest, LEASE_MS, newKind, useBench } from '../conformance/open.ts';
import { expectRefused, UNSTORABLE, type Values } from './refused.ts';

const bench = useBench();
const WHY = { reason: 'why' };
let lease: Claim;

beforeAll(async () => {
  lease = await bench.running();
});

interface Trial {
  /** Title of the group. */
  title: string;
  call: (value: unknown) => unknown;
  code: ErrorCode;
  field: string;
  values: Values;
}

const NUMBERS: Values = { 'a fraction': 1.5, NaN: Number.NaN, Infinity, text: '5', 'a BigInt': 5n };
const TEXTS: Values = { empty: '', missing: undefined, 'a number': 5, ...UNSTORABLE };
const IDS: Values = {
  missing: undefined,
  null: null,
  text: 'x',
  'beyond the last partition': '{fp:256}:018f0000-0000-7000-8000-000000000001',
  'with \\u0000': '{fp:1}:018f0000-0000-7000-8000-00000000000\u0000',
};
const NAMES: Values = { ...TEXTS, 'too long': 'w'.repeat(LIMITS.workerNameBytes + 1) };
const REASONS: Values = { ...TEXTS, 'too long': 'r'.repeat(LIMITS.reasonBytes + 1) };

const claiming = (member: string) => (value: unknown) =>
  bench.port.claim({ ...claimRequest(), kinds: ['k'], [member]: value } as never);
const leasing = (member: string) => (value: unknown) => ({ ...lease, [member]: value }) as never;
const failing = (member: string) => (value: unknown) =>
  bench.port.fail(lease, { message: 'm', [member]: value } as never);

const CLAIMS: Trial[] = [
  {
    title: 'claim: workerId',
    call: claiming('workerId'),
    code: 'invalid_input',
    field: 'workerId',
    values: NAMES,
  },
  {
    title: 'claim: workerInstanceId',
    call: claiming('workerInstanceId'),
    code: 'invalid_input',
    field: 'workerInstanceId',
    values: NAMES,
  },
  {
    title: 'claim: limit',
    call: claiming('limit'),
    code: 'invalid_input',
    field: 'limit',
    values: { ...NUMBERS, none: 0, 'too many': LIMITS.claimBatch + 1, missing: undefined },
  },
  {
    title: 'claim: leaseMs',
    call: claiming('leaseMs'),
    code: 'invalid_input',
    field: 'leaseMs',
    values: {
      ...NUMBERS,
      'too short': LIMITS.leaseMsMin - 1,
      'too long': LIMITS.leaseMsMax + 1,
      missing: undefined,
    },
  },
  {
    title: 'claim: kinds',
    call: claiming('kinds'),
    code: 'invalid_input',
    field: 'kinds',
    values: { missing: undefined, text: 'k' },
  },
  {
    title: 'claim: one of the kinds',
    call: (value) => claiming('kinds')(['k', value]),
    code: 'invalid_input',
    field: 'kinds[1]',
    values: { ...TEXTS, 'not ASCII': 'ü', 'too long': 'k'.repeat(LIMITS.kindBytes + 1) },
  },
  {
    title: 'claim: one of the lanes',
    call: (value) => claiming('lanes')([value]),
    code: 'invalid_input',
    field: 'lanes[0]',
    values: { ...TEXTS, 'not ASCII': 'ü', 'too long': 'l'.repeat(LIMITS.laneBytes + 1) },
  },
  {
    title: 'claim: one of the capabilities',
    call: (value) => claiming('capabilities')(['ok', value]),
    code: 'invalid_capabilities',
    field: 'capabilities[1]',
    values: { ...TEXTS, 'with a blank': 'a b', 'with a comma': 'a,b', 'with a control character': 'a\u0007' },
  },
  {
    title: 'claim: more than ten thousand kinds',
    call: () => claiming('kinds')(Array.from({ length: 10_001 }, (_, index) => `k${index}`)),
    code: 'too_many',
    field: 'kinds',
    values: { together: undefined },
  },
];

const LEASED = {
  complete: (value: never) => bench.port.complete(value),
  fail: (value: never) => bench.port.fail(value, { message: 'm' }),
  release: (value: never) => bench.port.release(value),
  renew: (value: never) => bench.port.renew([value], LEASE_MS),
};

const LEASES: Trial[] = Object.entries(LEASED).flatMap(([verb, call]) => {
  const field = verb === 'renew' ? 'leases[0]' : 'lease';
  const counts = { ...NUMBERS, negative: -1, missing: undefined };
  return [
    {
      title: `${verb}: the lease`,
      call: (value: unknown) => call(value as never),
      code: 'invalid_id',
      field: `${field}.executionId`,
      values: { missing: undefined, null: null, empty: {}, text: 'x' },
    },
    {
      title: `${verb}: executionId`,
      call: (value: unknown) => call(leasing('executionId')(value)),
      code: 'invalid_id',
      field: `${field}.executionId`,
      values: IDS,
    },
    {
      title: `${verb}: attemptIndex`,
      call: (value: unknown) => call(leasing('attemptIndex')(value)),
      code: 'invalid_input',
      field: `${field}.attemptIndex`,
      values: { ...counts, 'beyond an integer': 2 ** 31 },
    },
    {
      title: `${verb}: leaseEpoch`,
      call: (value: unknown) => call(leasing('leaseEpoch')(value)),
      code: 'invalid_input',
      field: `${field}.leaseEpoch`,
      values: { ...counts, 'beyond what a number can count': 2 ** 53 },
    },
  ] satisfies Trial[];
});

const REPORTS: Trial[] = [
  {
    title: 'complete: result',
    call: (value) => bench.port.complete(lease, value),
    code: 'invalid_input',
    field: 'result',
    values: { NaN: Number.NaN, 'a BigInt': 5n, 'a function': () => 1, ...UNSTORABLE },
  },
  {
    title: 'complete: a result over the limit',
    call: (value) => bench.port.complete(lease, value),
    code: 'payload_too_large',
    field: 'result',
    values: { text: 'x'.repeat(LIMITS.payloadBytes) },
  },
  {
    title: 'fail: failure',
    call: (value) => bench.port.fail(lease, value as never),
    code: 'invalid_input',
    field: 'failure',
    values: { missing: undefined, null: null, text: 'ouch' },
  },
  {
    title: 'fail: message',
    call: failing('message'),
    code: 'invalid_input',
    field: 'failure.message',
    values: { missing: undefined, 'a number': 5, 'an Error': new Error('ouch') },
  },
  {
    title: 'fail: category',
    call: failing('category'),
    code: 'invalid_input',
    field: 'failure.category',
    values: { empty: '', 'a number': 5, 'too long': 'c'.repeat(LIMITS.categoryBytes + 1), ...UNSTORABLE },
  },
  {
    title: 'fail: retry',
    call: failing('retry'),
    code: 'invalid_input',
    field: 'failure.retry',
    values: { text: 'maybe', true: true },
  },
  {
    title: 'fail: retryAfterMs',
    call: failing('retryAfterMs'),
    code: 'invalid_input',
    field: 'failure.retryAfterMs',
    values: { ...NUMBERS, negative: -1, 'beyond ten years': LIMITS.delayMs + 1 },
  },
  {
    title: 'renew: leaseMs',
    call: (value) => bench.port.renew([lease], value as never),
    code: 'invalid_input',
    field: 'leaseMs',
    values: { ...NUMBERS, 'too short': 49, 'too long': LIMITS.leaseMsMax + 1, missing: undefined },
  },
  {
    title: 'renew: leases',
    call: (value) => bench.port.renew(value as never, LEASE_MS),
    code: 'invalid_input',
    field: 'leases',
    values: { missing: undefined, 'one lease': {} },
  },
  {
    title: 'renew: more than ten thousand',
    call: () =>
      bench.port.renew(
        Array.from({ length: LIMITS.idBatch + 1 }, () => lease),
        LEASE_MS,
      ),
    code: 'too_many',
    field: 'leases',
    values: { together: undefined },
  },
  {
    title: 'renew: one execution',
    call: () => bench.port.renew([lease, { ...lease, leaseEpoch: 2 }], LEASE_MS),
    code: 'invalid_input',
    field: 'leases',
    values: { twice: undefined },
  },
];

const id = () => lease.executionId;
const OPERATORS: Trial[] = [
  {
    title: 'cancel: one of the ids',
    call: (value) => bench.engine.cancel([id(), value] as never, WHY),
    code: 'invalid_id',
    field: 'executionIds[1]',
    values: IDS,
  },
  {
    title: 'cancel: reason',
    call: (value) => bench.engine.cancel(id(), { reason: value } as never),
    code: 'invalid_input',
    field: 'reason',
    values: REASONS,
  },
  {
    title: 'cancel: by',
    call: (value) => bench.engine.cancel(id(), { ...WHY, by: value } as never),
    code: 'invalid_input',
    field: 'by',
    values: { empty: '', 'a number': 5, 'too long': 'b'.repeat(LIMITS.reasonBytes + 1), ...UNSTORABLE },
  },
  {
    title: 'cancel: more than ten thousand',
    call: () => bench.engine.cancel(Array.from({ length: LIMITS.idBatch + 1 }, id), WHY),
    code: 'too_many',
    field: 'executionIds',
    values: { together: undefined },
  },
  {
    title: 'revokeLease: the id',
    call: (value) => bench.engine.executions.revokeLease(value as never, WHY),
    code: 'invalid_id',
    field: 'executionId',
    values: IDS,
  },
  {
    title: 'revokeLease: reason',
    call: (value) => bench.engine.executions.revokeLease(id(), { reason: value } as never),
    code: 'invalid_input',
    field: 'reason',
    values: REASONS,
  },
  {
    title: 'revokeLease: leaseId',
    call: (value) => bench.engine.executions.revokeLease(id(), { ...WHY, leaseId: value } as never),
    code: 'invalid_input',
    field: 'leaseId',
    values: { text: 'x', empty: '', 'a number': 5, 'upper case': '018F0000-0000-7000-8000-000000000001' },
  },
  {
    title: 'describe: the id',
    call: (value) => bench.engine.executions.describe(value as never),
    code: 'invalid_id',
    field: 'executionId',
    values: IDS,
  },
  {
    title: 'result: the id',
    call: (value) => bench.engine.executions.result(value as never),
    code: 'invalid_id',
    field: 'executionId',
    values: IDS,
  },
  {
    title: 'watch: kinds',
    call: (value) => bench.port.watch({ kinds: value } as never, () => false),
    code: 'invalid_input',
    field: 'kinds',
    values: { missing: undefined, text: 'k' },
  },
  {
    title: 'connect: schema',
    call: (value) => connect({ databaseUrl: bench.database.url, schema: value as never }),
    code: 'invalid_input',
    field: 'schema',
    values: {
      empty: '',
      'with quotes': 'a"; DROP SCHEMA b',
      'upper case': 'Flow',
      'too long': 's'.repeat(49),
    },
  },
  {
    title: 'connect: without a database',
    call: () => connect({}),
    code: 'invalid_input',
    field: 'databaseUrl',
    values: { 'or a pool': undefined },
  },
];

for (const { title, call, code, field, values } of [...CLAIMS, ...LEASES, ...REPORTS, ...OPERATORS]) {
  describe(`refused as ${code}: ${title}`, () => {
    for (const [name, value] of Object.entries(values)) {
      it(name, () => expectRefused(bench.database, () => call(value), { code, field }));
    }
  });
}

describe('a call without its argument is refused and does not crash', () => {
  const CALLS: Record<string, () => unknown> = {
    claim: () => bench.port.claim(undefined as never),
    watch: () => bench.port.watch(undefined as never, () => false),
    cancel: () => bench.engine.cancel(lease.executionId, undefined as never),
    revokeLease: () => bench.engine.executions.revokeLease(lease.executionId, undefined as never),
  };
  for (const [name, call] of Object.entries(CALLS)) {
    it(name, () =>
      expectRefused(bench.database, call, {
        code: 'invalid_input',
        field: expect.any(String) as unknown as string,
      }),
    );
  }
});

describe('the message of a failure', () => {
  async function stored(message: string): Promise<string | null> {
    const claim = await bench.running({ kind: newKind() });
    await bench.port.fail(claim, { message });
    const result = await bench.engine.executions.result(claim.executionId);
    return result.outcome === 'failed' ? result.message : null;
  }

  it('is cut at the limit without splitting a character', async () => {
    expect(await stored('x'.repeat(20_000))).toBe('x'.repeat(LIMITS.failureMessageBytes));
    const emoji = await stored(`x${'\u{1F600}'.repeat(5_000)}`);
    expect(emoji).toBe(`x${'\u{1F600}'.repeat(Math.floor((LIMITS.failureMessageBytes - 1) / 4))}`);
  });

  it('has unstorable characters replaced', async () => {
    expect(await stored('a\u0000b')).toBe('a\uFFFDb');
    expect(await stored('a\uD83Db')).toBe('a\uFFFDb');
  });

  it('may be empty', async () => {
    expect(await stored('')).toBe('');
  });
});
