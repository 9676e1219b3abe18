/**
 * Saying something to an execution by a token: who may, what it does, what is said twice or too late, and what strangers learn.
 */
import { describe, expect, it } from 'vitest';
import {
  LIMITS,
  type Claim,
  type SignalCondition,
  type SignalRequest,
  type TokenRequest,
} from '../../src/index.ts';
import { SIGNING_SECRET, newKind, useBench } from './open.ts';

const bench = useBench();
const HOUR_MS = 3_600_000;

const leaf = (
  n: number,
  by: 'signals' | 'waitpoints' | 'sources',
  waitpoints: string[],
  match?: string,
): SignalCondition => ({
  kind: 'count',
  n,
  by,
  waitpoints,
  ...(match === undefined ? {} : { match }),
});

/** Suspended on a condition. */
async function waiting(condition: SignalCondition, schema?: object): Promise<Claim> {
  const claim = await bench.running();
  const names = [
    ...new Set(
      JSON.stringify(condition)
        .match(/(?<="waitpoints":\[)[^\]]*/g)!
        .join(',')
        .match(/\w+/g),
    ),
  ];
  const waitpoints = schema === undefined ? [] : names.map((name) => ({ name, schema: schema as never }));
  await bench.engine.suspend(claim, { waits: [{ name: 'wait', condition }], waitpoints });
  return claim;
}

async function tokenFor(claim: Claim, waitpoint = 'door', request: TokenRequest = {}): Promise<string> {
  return (await bench.engine.issueToken(claim.executionId, waitpoint, request)).token;
}

const deliver = (token: string, more: Partial<SignalRequest> = {}) =>
  bench.engine.deliverSignal({ token, ...more });
const effectOf = async (token: string, more: Partial<SignalRequest> = {}) => {
  const outcome = await deliver(token, more);
  return 'effect' in outcome ? outcome.effect : outcome.outcome;
};
const from = (identity: string) => ({ source: { identity } });

describe('a signal by a token', () => {
  it('resumes what waits for it, with its payload', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind });
    await bench.engine.suspend(claim, { waits: [{ name: 'wait', condition: leaf(1, 'signals', ['door']) }] });
    const token = await tokenFor(claim);
    expect(await deliver(token, { name: 'knock', payload: { loud: true } })).toMatchObject({
      outcome: 'accepted',
      effect: 'resumed',
    });
    await bench.claimOne(kind);
    const [step] = await bench.engine.readSteps(claim.executionId);
    expect(step!.end!.signals).toMatchObject([
      { name: 'knock', payload: { loud: true }, waitpoint: 'door', source: { type: 'token' } },
    ]);
    expect(await deliver(token)).toEqual({ outcome: 'closed' });
  });

  it('that comes before the suspension is kept for it', async () => {
    const claim = await bench.running();
    const created = await bench.engine.createWaitpoint(claim, { name: 'door' });
    if (created.outcome !== 'created') throw new Error('not created');
    expect(await effectOf(created.waitpoint.token)).toBe('buffered');
    expect(await bench.engine.createWaitpoint(claim, { name: 'door' })).toEqual(created);
    const request = { waits: [{ name: 'wait', condition: leaf(1, 'signals', ['door']) }] };
    expect(await bench.engine.suspend(claim, request)).toMatchObject({ outcome: 'already_satisfied' });
  });

  it('with the same key is one signal, and is answered as the first time, also when it is too late', async () => {
    const claim = await waiting(leaf(2, 'signals', ['door']));
    const token = await tokenFor(claim);
    const first = await deliver(token, { idempotencyKey: 'k' });
    expect(first).toMatchObject({ outcome: 'accepted', effect: 'counted' });
    expect(await deliver(token, { idempotencyKey: 'k' })).toEqual({ ...first, outcome: 'duplicate' });
    expect(await effectOf(token)).toBe('resumed');
    expect(await deliver(token, { idempotencyKey: 'k' })).toEqual({ ...first, outcome: 'duplicate' });
  });

  it('by a token of one use is one signal, whatever else is said with it', async () => {
    const claim = await waiting(leaf(2, 'signals', ['door']));
    const token = await tokenFor(claim, 'door', { use: 'once' });
    expect(await effectOf(token)).toBe('counted');
    expect(await deliver(token, { idempotencyKey: 'another', payload: 2 })).toMatchObject({
      outcome: 'duplicate',
    });
  });

  it('by a bound token is from whom it is for, and says what it says', async () => {
    const claim = await waiting(leaf(2, 'sources', ['door'], 'approved'));
    const says = { source: { identity: 'ann' }, signal: { name: 'approved', payload: { ok: true } } };
    const link = 'https://example.org/answer?lang=en';
    const issued = await bench.engine.issueToken(claim.executionId, 'door', { ...says, linkTo: link });
    expect(issued.link).toBe(`${link}&ff_token=${issued.token}`);
    await expect(deliver(issued.token, { payload: 1 })).rejects.toMatchObject({ field: 'request.payload' });
    await expect(deliver(issued.token, from('bob'))).rejects.toMatchObject({ field: 'request.source' });
    expect(await effectOf(issued.link!)).toBe('counted');
    expect(await effectOf(`/answer?ff_token=${issued.token}&x=1`)).toBe('not_counted');
    expect(await effectOf(await tokenFor(claim), { ...from('bob'), name: 'approved' })).toBe('resumed');
  });
});

describe('a condition', () => {
  it('by sources is not met by the same person twice', async () => {
    const claim = await waiting(leaf(2, 'sources', ['door']));
    const token = await tokenFor(claim);
    expect(await effectOf(token, from('ann'))).toBe('counted');
    expect(await effectOf(token, from('ann'))).toBe('not_counted');
    expect(await effectOf(token)).toBe('resumed');
  });

  it('by waitpoints is met by different waitpoints', async () => {
    const claim = await waiting(leaf(2, 'waitpoints', ['a', 'b', 'c']));
    const a = await tokenFor(claim, 'a');
    expect(await effectOf(a)).toBe('counted');
    expect(await effectOf(a)).toBe('not_counted');
    expect(await effectOf(await tokenFor(claim, 'c'))).toBe('resumed');
  });

  it('of all and any takes only what it names', async () => {
    const claim = await waiting({
      kind: 'all',
      of: [
        leaf(1, 'signals', ['legal'], 'yes'),
        { kind: 'any', of: [leaf(1, 'signals', ['qa']), leaf(1, 'signals', ['ops'])] },
      ],
    });
    const legal = await tokenFor(claim, 'legal');
    expect(await effectOf(legal, { name: 'maybe' })).toBe('not_matching');
    expect(await effectOf(legal, { name: 'yes' })).toBe('counted');
    expect(await effectOf(await tokenFor(claim, 'ops'))).toBe('resumed');
    const [step] = await bench.engine.readSteps(claim.executionId);
    expect(step!.end!.signals.map(({ waitpoint, name }) => `${waitpoint} ${name}`)).toEqual([
      'legal yes',
      'ops signal',
    ]);
  });
});

describe('a payload', () => {
  const schema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] };

  it('must fit the schema of its waitpoint, also an operator’s', async () => {
    const claim = await waiting(leaf(1, 'signals', ['door']), schema);
    const token = await tokenFor(claim);
    await expect(deliver(token, { payload: { ok: 'yes' } })).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'payload.ok',
    });
    await expect(deliver(token)).rejects.toMatchObject({ field: 'payload' });
    await expect(bench.engine.approve(claim.executionId, 'door', { by: 'ann' })).rejects.toMatchObject({
      field: 'payload',
    });
    expect(await effectOf(token, { payload: { ok: true } })).toBe('resumed');
  });

  it('is refused over 64 KB, and nothing is written', async () => {
    const claim = await waiting(leaf(1, 'signals', ['door']));
    const token = await tokenFor(claim);
    const refused = deliver(token, { payload: 'x'.repeat(LIMITS.signalBytes) });
    await expect(refused).rejects.toMatchObject({ code: 'payload_too_large', field: 'request.payload' });
    expect(await effectOf(token, { payload: 'x'.repeat(LIMITS.signalBytes - 2) })).toBe('resumed');
  });
});

describe('a stranger', () => {
  async function refusal(token: string): Promise<object> {
    const error = await deliver(token, { payload: 1 }).then(
      () => ({ message: 'accepted' }),
      (thrown: object) => thrown,
    );
    const { message, ...rest } = error as Error;
    return { message, ...rest };
  }

  it('gets one and the same answer for whatever is wrong with a token', async () => {
    const claim = await waiting(leaf(1, 'signals', ['door']));
    const other = await waiting(leaf(1, 'signals', ['door']));
    const token = await tokenFor(claim);
    const [, , body, signature] = token.split('_') as [string, string, string, string];
    const foreign = await bench.another({ signingSecret: `another ${SIGNING_SECRET}` });
    const flip = (text: string, place: number) =>
      text.slice(0, place) + (text[place] === '0' ? '1' : '0') + text.slice(place + 1);
    const bad = [
      'no token at all',
      '',
      flip(token, token.length - 1),
      flip(token, token.length - signature.length - 3),
      token.replace(/^ffw1_\w{8}/, 'ffw1_deadbeef'),
      token.replace(body, (await tokenFor(other)).split('_')[2]!),
      token.slice(0, -1),
      token.toUpperCase(),
      `${token}${'00'.repeat(10_000)}`,
    ];
    const expected = {
      message: 'The token is not valid.',
      name: 'EngineError',
      code: 'invalid_token',
      field: 'request.token',
    };
    for (const text of bad) expect(await refusal(text)).toMatchObject(expected);
    await expect(foreign.deliverSignal({ token })).rejects.toMatchObject(expected);
    // A waitpoint that is gone, by a token that was good.
    await bench.engine.cancel(other.executionId, { reason: 'why' });
    const gone = await tokenFor(claim);
    await bench.database.query('DELETE FROM ff_waitpoint WHERE execution_id = $1', [
      claim.executionId.split(':').at(-1),
    ]);
    expect(await refusal(gone)).toMatchObject(expected);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ publicState: 'suspended' });
  });

  it('is told that a token’s time is over, and only who has the token', async () => {
    const claim = await waiting(leaf(1, 'signals', ['door']));
    const token = await tokenFor(claim, 'door', { expiresInMs: HOUR_MS });
    await bench.database.moveClock(HOUR_MS);
    expect(await deliver(token)).toEqual({ outcome: 'expired' });
    expect(await effectOf(await tokenFor(claim))).toBe('resumed');
  });
});

describe('limits', () => {
  it('refuse the signal after the last one an execution may take', async () => {
    const claim = await waiting(leaf(9_999, 'signals', ['door']));
    const uuid = claim.executionId.split(':').at(-1);
    await bench.database.query(
      `UPDATE ff_waitpoint SET signal_count = ${LIMITS.signals - 1} WHERE execution_id = $1`,
      [uuid],
    );
    const token = await tokenFor(claim);
    expect(await effectOf(token)).toBe('counted');
    expect(await deliver(token)).toEqual({ outcome: 'too_many' });
    await bench.database.query(
      `UPDATE ff_waitpoint SET signal_count = 5, signal_bytes = $2 WHERE execution_id = $1`,
      [uuid, LIMITS.signalsBytes],
    );
    expect(await deliver(token)).toEqual({ outcome: 'too_many' });
  });

  it('refuse the waitpoint after the last one an execution may have', async () => {
    const claim = await bench.running();
    await bench.database.query(
      `INSERT INTO ff_waitpoint (waitpoint_id, execution_id, partition_key, name, created_at_ms)
       SELECT gen_random_uuid(), $1, 0, 'w' || n, 0 FROM generate_series(1, ${LIMITS.waitpoints}) n`,
      [claim.executionId.split(':').at(-1)],
    );
    await expect(bench.engine.createWaitpoint(claim, { name: 'one more' })).rejects.toMatchObject({
      code: 'too_many',
    });
    expect(await bench.engine.createWaitpoint(claim, { name: 'w1' })).toMatchObject({ outcome: 'created' });
  });
});

describe('a waitpoint', () => {
  it('that is never waited at closes when its time is over, and can be opened again', async () => {
    const claim = await bench.running();
    const request = { name: 'door', expiresInMs: 1_000 };
    const created = await bench.engine.createWaitpoint(claim, request);
    if (created.outcome !== 'created') throw new Error('not created');
    await bench.database.moveClock(1_000);
    await bench.engine.fireTimers();
    expect(await deliver(created.waitpoint.token)).toEqual({ outcome: 'expired' });
    expect((await bench.engine.listWaitpoints({ executionId: claim.executionId })).waitpoints).toEqual([]);
    const again = await bench.engine.createWaitpoint(claim, request);
    if (again.outcome !== 'created') throw new Error('not created');
    expect(await effectOf(again.waitpoint.token)).toBe('buffered');
  });

  it('is listed with the fingerprint of its token, the longest wait first, page by page', async () => {
    const first = await waiting(leaf(1, 'signals', ['door'], 'knock'));
    const claim = await bench.running();
    const created = await bench.engine.createWaitpoint(claim, { name: 'early' });
    const own = await bench.engine.listWaitpoints({ executionId: claim.executionId });
    expect(own.waitpoints).toMatchObject([{ name: 'early', state: 'pending', wait: null, signalCount: 0 }]);
    expect(own.waitpoints[0]!.tokenFingerprint).toMatch(/^[0-9a-f]{16}$/);
    expect(JSON.stringify(own)).not.toContain('ffw1_');
    expect(created).toMatchObject({ outcome: 'created', waitpoint: { name: 'early' } });
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page = await bench.engine.listWaitpoints({ limit: 2, ...(cursor === null ? {} : { cursor }) });
      seen.push(...page.waitpoints.map(({ executionId }) => executionId));
      const mine = page.waitpoints.find(({ executionId }) => executionId === first.executionId);
      if (mine !== undefined)
        expect(mine).toMatchObject({ state: 'waiting', matches: ['knock'], reason: 'signal' });
      ({ cursor } = page);
    } while (cursor !== null);
    expect(seen).toContain(first.executionId);
    expect(seen).not.toContain(claim.executionId);
    expect(new Set(seen).size).toBe(seen.length);
  });

  it('that does not exist has no tokens, and cannot be approved', async () => {
    const claim = await bench.running();
    await expect(bench.engine.issueToken(claim.executionId, 'no')).rejects.toMatchObject({
      code: 'not_found',
    });
    await expect(bench.engine.approve(claim.executionId, 'no', { by: 'ann' })).rejects.toMatchObject({
      code: 'not_found',
    });
  });
});

describe('tokens without a secret', () => {
  it('cannot be made or read, and operators still approve', async () => {
    const plain = await bench.another({ signingSecret: [] });
    const claim = await waiting(leaf(1, 'signals', ['door']));
    const configured = { code: 'signing_not_configured' };
    await expect(plain.issueToken(claim.executionId, 'door')).rejects.toMatchObject(configured);
    await expect(plain.deliverSignal({ token: 'any' })).rejects.toMatchObject(configured);
    await expect(bench.another({ signingSecret: 'short' })).rejects.toMatchObject({ field: 'signingSecret' });
    expect(await plain.approve(claim.executionId, 'door', { by: 'ann' })).toMatchObject({
      effect: 'resumed',
    });
  });
});
