/**
 * Signals delivered by token: who may send them, their effect, repeated and late ones, and what a stranger can learn.
 */
import { describe, expect, it } from 'vitest';
import { LIMITS, type SignalCondition } from '../../../src/index.ts';
import { SIGNING_SECRET, newKind, useBench } from '../open.ts';
import { from, leaf, tellingOn } from './telling.ts';

const bench = useBench();
const HOUR_MS = 3_600_000;
const { waiting, tokenFor, deliver, effectOf } = tellingOn(bench);

describe('a signal by a token', () => {
  it('resumes the execution that waits for it, with its payload', async () => {
    const kind = newKind();
    const claim = await bench.running({ kind });
    await bench.port.suspend(claim, { waits: [{ name: 'wait', condition: leaf(1, 'signals', ['door']) }] });
    const token = await tokenFor(claim);
    expect(await deliver(token, { name: 'knock', payload: { loud: true } })).toMatchObject({
      outcome: 'accepted',
      effect: 'resumed',
    });
    await bench.claimOne(kind);
    const [step] = await bench.engine.executions.listSteps(claim.executionId);
    expect(step!.end!.signals).toMatchObject([
      { name: 'knock', payload: { loud: true }, waitpoint: 'door', source: { type: 'token' } },
    ]);
    expect(await deliver(token)).toEqual({ outcome: 'closed' });
  });

  it('that arrives before the suspension is buffered for it', async () => {
    const claim = await bench.running();
    const created = await bench.port.createWaitpoint(claim, { name: 'door' });
    if (created.outcome !== 'created') throw new Error('not created');
    expect(await effectOf(created.waitpoint.token)).toBe('buffered');
    expect(await bench.port.createWaitpoint(claim, { name: 'door' })).toEqual(created);
    const request = { waits: [{ name: 'wait', condition: leaf(1, 'signals', ['door']) }] };
    expect(await bench.port.suspend(claim, request)).toMatchObject({ outcome: 'already_satisfied' });
  });

  it('with the same idempotency key is one signal, and returns the first outcome, even when it is too late', async () => {
    const claim = await waiting(leaf(2, 'signals', ['door']));
    const token = await tokenFor(claim);
    const first = await deliver(token, { idempotencyKey: 'k' });
    expect(first).toMatchObject({ outcome: 'accepted', effect: 'counted' });
    expect(await deliver(token, { idempotencyKey: 'k' })).toEqual({ ...first, outcome: 'duplicate' });
    expect(await effectOf(token)).toBe('resumed');
    expect(await deliver(token, { idempotencyKey: 'k' })).toEqual({ ...first, outcome: 'duplicate' });
  });

  it('with an idempotency key of one source is distinct from the same key of another', async () => {
    const claim = await waiting(leaf(2, 'sources', ['door']));
    const token = await tokenFor(claim);
    expect(await effectOf(token, { idempotencyKey: '1', ...from('ann') })).toBe('counted');
    expect(await effectOf(token, { idempotencyKey: '1', ...from('bob') })).toBe('resumed');
  });

  it('cannot claim a reserved source type', async () => {
    const claim = await waiting(leaf(1, 'signals', ['door']));
    const token = await tokenFor(claim);
    for (const type of ['operator', 'token', 'engine', 'a:b'])
      await expect(deliver(token, { source: { type, identity: 'x' } })).rejects.toMatchObject({
        field: 'request.source.type',
      });
  });

  it('by a single-use token is one signal, whatever else it carries', async () => {
    const claim = await waiting(leaf(2, 'signals', ['door']));
    const token = await tokenFor(claim, 'door', { use: 'once' });
    expect(await effectOf(token)).toBe('counted');
    expect(await deliver(token, { idempotencyKey: 'another', payload: 2 })).toMatchObject({
      outcome: 'duplicate',
    });
  });

  it('by a bound token has the source, name and payload of the token', async () => {
    const claim = await waiting(leaf(2, 'sources', ['door'], 'approved'));
    const says = { source: { identity: 'ann' }, signal: { name: 'approved', payload: { ok: true } } };
    const link = 'https://example.org/answer?lang=en';
    const issued = await bench.engine.waitpoints.issueToken(claim.executionId, 'door', {
      ...says,
      linkTo: link,
    });
    expect(issued.link).toBe(`${link}&ff_token=${issued.token}`);
    await expect(deliver(issued.token, { payload: 1 })).rejects.toMatchObject({ field: 'request.payload' });
    await expect(deliver(issued.token, from('bob'))).rejects.toMatchObject({ field: 'request.source' });
    expect(await effectOf(issued.link!)).toBe('counted');
    expect(await effectOf(`/answer?ff_token=${issued.token}&x=1`)).toBe('not_counted');
    expect(await effectOf(await tokenFor(claim), { ...from('bob'), name: 'approved' })).toBe('resumed');
  });
});

describe('a condition', () => {
  it('that is met before the suspension has the same outcome as after: the first signals that met it', async () => {
    const claim = await bench.running();
    const created = await bench.port.createWaitpoint(claim, { name: 'door' });
    if (created.outcome !== 'created') throw new Error('not created');
    for (const name of ['declined', 'approved']) {
      await deliver(created.waitpoint.token, { name });
      // Signals are ordered by acceptance, whatever the clock.
      await bench.database.moveClock(-2_000);
    }
    const request = { waits: [{ name: 'wait', condition: leaf(1, 'signals', ['door']) }] };
    const outcome = await bench.port.suspend(claim, request);
    expect(outcome).toMatchObject({
      outcome: 'already_satisfied',
      ended: [{ end: { signals: [{ name: 'declined' }] } }],
    });
    expect('ended' in outcome && outcome.ended[0]!.end.signals).toHaveLength(1);
    await bench.database.moveClock(4_000);
  });

  it('by sources is not met by two unbound tokens of one waitpoint, even after a rotation', async () => {
    const claim = await waiting(leaf(2, 'sources', ['door']));
    expect(await effectOf(await tokenFor(claim))).toBe('counted');
    await bench.engine.signingKeys.rotate();
    expect(await effectOf(await tokenFor(claim))).toBe('not_counted');
  });

  it('is limited in its size', async () => {
    const many = (kind: 'all' | 'any', of: SignalCondition[]): SignalCondition => ({ kind, of });
    const wide = many(
      'all',
      Array.from({ length: 5 }, () => many('any', Array(13).fill(leaf(1, 'signals', ['a'])))),
    );
    await expect(waiting(wide)).rejects.toThrow(/more than 64 counts/);
    const names = Array.from({ length: 64 }, (_, n) => `${'n'.repeat(300)}${n}`);
    const long = many('all', Array(4).fill(leaf(1, 'signals', names)));
    await expect(waiting(long)).rejects.toThrow(/longer than 65536 bytes/);
  });

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

  it('of all and any counts only what it names', async () => {
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
    const [step] = await bench.engine.executions.listSteps(claim.executionId);
    expect(step!.end!.signals.map(({ waitpoint, name }) => `${waitpoint} ${name}`)).toEqual([
      'legal yes',
      'ops signal',
    ]);
  });
});

describe('a payload', () => {
  const schema = { type: 'object', properties: { ok: { type: 'boolean' } }, required: ['ok'] };

  it('must match the schema of its waitpoint, also an operator’s', async () => {
    const claim = await waiting(leaf(1, 'signals', ['door']), schema);
    const token = await tokenFor(claim);
    await expect(deliver(token, { payload: { ok: 'yes' } })).rejects.toMatchObject({
      code: 'invalid_input',
      field: 'payload.ok',
    });
    await expect(deliver(token)).rejects.toMatchObject({ field: 'payload' });
    await expect(
      bench.engine.waitpoints.approve(claim.executionId, 'door', { by: 'ann' }),
    ).rejects.toMatchObject({
      field: 'payload',
    });
    expect(await effectOf(token, { payload: { ok: true } })).toBe('resumed');
  });

  it('is not quoted when it does not match, nor are its keys', async () => {
    const claim = await waiting(leaf(1, 'signals', ['door']), {
      type: 'object',
      properties: { a: {} },
      additionalProperties: false,
    });
    const refused = await deliver(await tokenFor(claim), { payload: { 'sk-live-secret': 1 } }).catch(
      (error: Error) => error,
    );
    expect(JSON.stringify([refused, (refused as Error).message])).not.toContain('sk-live');
    expect(refused).toMatchObject({ code: 'invalid_input' });
  });

  it('is checked by the latest schema, as long as no signal has arrived', async () => {
    const claim = await bench.running();
    await bench.port.createWaitpoint(claim, { name: 'door', schema: { type: 'string' } });
    await bench.port.createWaitpoint(claim, { name: 'door', schema: { type: 'number' } });
    const token = await tokenFor(claim);
    await expect(deliver(token, { payload: 'text' })).rejects.toMatchObject({ field: 'payload' });
    expect(await effectOf(token, { payload: 1 })).toBe('buffered');
    const says = { signal: { name: 'yes', payload: 'text' } };
    await expect(tokenFor(claim, 'door', says)).rejects.toMatchObject({ field: 'request.signal.payload' });
    await expect(tokenFor(claim, 'door', { signal: { name: 'yes' } })).rejects.toMatchObject({
      field: 'request.signal.payload',
      message: expect.stringContaining('a signal without a payload has the payload null') as string,
    });
  });

  it('over 64 KB is refused, and nothing is written', async () => {
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

  it('gets the same error for everything that can be wrong with a token', async () => {
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
    await expect(foreign.signal({ token })).rejects.toMatchObject(expected);
    // A deleted waitpoint, with a token that was valid.
    await bench.engine.cancel(other.executionId, { reason: 'why' });
    const gone = await tokenFor(claim);
    await bench.database.query('DELETE FROM ff_waitpoint WHERE execution_id = $1', [
      claim.executionId.split(':').at(-1),
    ]);
    expect(await refusal(gone)).toMatchObject(expected);
    expect(await bench.snapshot(claim.executionId)).toMatchObject({ state: 'suspended' });
  });

  it('whose signing key has expired learns nothing about other errors', async () => {
    const claim = await waiting(leaf(1, 'signals', ['door']));
    const token = await tokenFor(claim);
    const large = { payload: 'x'.repeat(LIMITS.signalBytes) };
    await expect(deliver(token, large)).rejects.toMatchObject({ code: 'payload_too_large' });
    await bench.engine.signingKeys.rotate({ grace: 0 });
    await expect(deliver(token, large)).rejects.toMatchObject({ code: 'invalid_token' });
  });

  it('learns that a token has expired only by having it', async () => {
    const claim = await waiting(leaf(1, 'signals', ['door']));
    const token = await tokenFor(claim, 'door', { expiresIn: HOUR_MS });
    await bench.database.moveClock(HOUR_MS);
    expect(await deliver(token)).toEqual({ outcome: 'expired' });
    expect(await effectOf(await tokenFor(claim))).toBe('resumed');
  });
});
