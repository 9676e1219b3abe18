/**
 * Waitpoints: how long they live, how much they accept, who sees them, and what their tokens allow.
 */
import { describe, expect, it } from 'vitest';
import { LIMITS } from '../../../src/index.ts';
import { useBench } from '../open.ts';
import { leaf, tellingOn } from './telling.ts';

const bench = useBench();
const HOUR_MS = 3_600_000;
const { waiting, tokenFor, deliver, effectOf } = tellingOn(bench);

describe('limits', () => {
  it('refuse one signal more than an execution may have, and reserve some for operators', async () => {
    const claim = await waiting(leaf(3, 'signals', ['a', 'b', 'c']));
    const uuid = claim.executionId.split(':').at(-1);
    const fill = (name: string, column: string, value: number) =>
      bench.database.query(`UPDATE ff_waitpoint SET ${column} = $2 WHERE execution_id = $1 AND name = $3`, [
        uuid,
        value,
        name,
      ]);
    const [a, b] = [await tokenFor(claim, 'a'), await tokenFor(claim, 'b')];
    await fill('a', 'signal_count', LIMITS.signals / 2 - 1);
    expect(await effectOf(a)).toBe('counted');
    // One waitpoint cannot use up the limit of all.
    expect(await deliver(a)).toEqual({ outcome: 'too_many' });
    await fill('c', 'signal_count', LIMITS.signals / 2 - 1);
    expect(await effectOf(b)).toBe('counted');
    expect(await deliver(b)).toEqual({ outcome: 'too_many' });
    expect(await bench.engine.waitpoints.approve(claim.executionId, 'b', { by: 'ann' })).toMatchObject({
      effect: 'resumed',
    });
    const large = await waiting(leaf(3, 'signals', ['a']));
    await bench.database.query('UPDATE ff_waitpoint SET signal_bytes = $2 WHERE execution_id = $1', [
      large.executionId.split(':').at(-1),
      LIMITS.signalsBytes / 2,
    ]);
    expect(await deliver(await tokenFor(large, 'a'))).toEqual({ outcome: 'too_many' });
  });

  it('refuse one waitpoint more than an execution may have', async () => {
    const claim = await bench.running();
    await bench.database.query(
      `INSERT INTO ff_waitpoint (waitpoint_id, token_id, execution_id, partition_key, name, created_at_ms)
       SELECT gen_random_uuid(), gen_random_uuid(), $1, 0, 'w' || n, 0 FROM generate_series(1, ${LIMITS.waitpoints}) n`,
      [claim.executionId.split(':').at(-1)],
    );
    await expect(bench.port.createWaitpoint(claim, { name: 'one more' })).rejects.toMatchObject({
      code: 'too_many',
    });
    expect(await bench.port.createWaitpoint(claim, { name: 'w1' })).toMatchObject({ outcome: 'created' });
  });
});

describe('a waitpoint', () => {
  it('that is never waited at closes when it expires, and can be opened again', async () => {
    const claim = await bench.running();
    const request = { name: 'door', expiresInMs: 1_000 };
    const created = await bench.port.createWaitpoint(claim, request);
    if (created.outcome !== 'created') throw new Error('not created');
    await bench.database.moveClock(1_000);
    await bench.port.fireTimers();
    expect(await deliver(created.waitpoint.token)).toEqual({ outcome: 'expired' });
    expect((await bench.engine.waitpoints.list({ executionId: claim.executionId })).waitpoints).toEqual([]);
    const again = await bench.port.createWaitpoint(claim, request);
    if (again.outcome !== 'created') throw new Error('not created');
    expect(await effectOf(again.waitpoint.token)).toBe('buffered');
  });

  it('is listed with the fingerprint of its token, the longest wait first, page by page', async () => {
    const first = await waiting(leaf(1, 'signals', ['door'], 'knock'));
    const claim = await bench.running();
    const created = await bench.port.createWaitpoint(claim, { name: 'early' });
    const own = await bench.engine.waitpoints.list({ executionId: claim.executionId });
    expect(own.waitpoints).toMatchObject([{ name: 'early', state: 'pending', wait: null, signalCount: 0 }]);
    expect(own.waitpoints[0]!.tokenFingerprint).toMatch(/^[0-9a-f]{16}$/);
    expect(JSON.stringify(own)).not.toContain('ffw1_');
    expect(created).toMatchObject({ outcome: 'created', waitpoint: { name: 'early' } });
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page = await bench.engine.waitpoints.list({ limit: 2, ...(cursor === null ? {} : { cursor }) });
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

  it('can have its tokens revoked, and keeps the signals they delivered', async () => {
    const claim = await waiting(leaf(2, 'signals', ['door']));
    const token = await tokenFor(claim);
    expect(await effectOf(token)).toBe('counted');
    await bench.engine.waitpoints.revokeTokens(claim.executionId, 'door');
    await expect(deliver(token)).rejects.toMatchObject({ code: 'invalid_token' });
    expect(await effectOf(await tokenFor(claim))).toBe('resumed');
    await expect(bench.engine.waitpoints.revokeTokens(claim.executionId, 'no')).rejects.toMatchObject({
      code: 'not_found',
    });
  });

  it('issues tokens that live no longer than itself, and none once it is closed', async () => {
    const claim = await bench.running();
    await bench.port.createWaitpoint(claim, { name: 'door', expiresInMs: HOUR_MS });
    const { waitpoints } = await bench.engine.waitpoints.list({ executionId: claim.executionId });
    const expiresAtMs = waitpoints[0]!.expiresAtMs;
    expect(await bench.engine.waitpoints.issueToken(claim.executionId, 'door')).toMatchObject({
      expiresAtMs,
    });
    await bench.database.moveClock(HOUR_MS);
    await expect(tokenFor(claim)).rejects.toMatchObject({ code: 'not_found' });
    const far = { linkTo: `https://example.org/${'x'.repeat(LIMITS.linkBytes)}` };
    await expect(bench.engine.waitpoints.issueToken(claim.executionId, 'door', far)).rejects.toMatchObject({
      field: 'request.linkTo',
    });
  });

  it('that does not exist has no tokens, and cannot be approved', async () => {
    const claim = await bench.running();
    await expect(bench.engine.waitpoints.issueToken(claim.executionId, 'no')).rejects.toMatchObject({
      code: 'not_found',
    });
    await expect(
      bench.engine.waitpoints.approve(claim.executionId, 'no', { by: 'ann' }),
    ).rejects.toMatchObject({
      code: 'not_found',
    });
  });
});

describe('without a signing secret', () => {
  it('tokens cannot be issued or read, and operators can still approve', async () => {
    const plain = await bench.another({ signingSecret: [] });
    const claim = await waiting(leaf(1, 'signals', ['door']));
    const configured = { code: 'signing_not_configured' };
    await expect(plain.waitpoints.issueToken(claim.executionId, 'door')).rejects.toMatchObject(configured);
    await expect(plain.signal({ token: 'any' })).rejects.toMatchObject(configured);
    await expect(bench.another({ signingSecret: 'short' })).rejects.toMatchObject({ field: 'signingSecret' });
    expect(await plain.waitpoints.approve(claim.executionId, 'door', { by: 'ann' })).toMatchObject({
      effect: 'resumed',
    });
  });
});
