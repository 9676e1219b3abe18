/**
 * Signing keys: tokens in use while a key is rotated, the grace period of the old key, revocation, and a change of
 * secret.
 */
import { describe, expect, it } from 'vitest';
import { Signing } from '../../../src/engine/signals/signing.ts';
import { printOf } from '../../../src/engine/signals/tokens.ts';
import type { Claim } from '../../../src/protocol/index.ts';
import { SIGNING_SECRET, useBench } from '../open.ts';

const bench = useBench();
const HOUR_MS = 3_600_000;

async function waiting(): Promise<Claim> {
  const claim = await bench.running();
  const condition = { kind: 'count', n: 100, by: 'signals', waitpoints: ['door'] } as const;
  await bench.port.suspend(claim, { waits: [{ name: 'wait', condition }] });
  return claim;
}

const tokenFor = async (claim: Claim) =>
  (await bench.engine.waitpoints.issueToken(claim.executionId, 'door')).token;
const isTaken = async (token: string): Promise<boolean> =>
  bench.engine.signal({ token }).then(
    (outcome) => outcome.outcome === 'accepted',
    (error: { code: string }) => {
      expect(error.code).toBe('invalid_token');
      return false;
    },
  );
const states = async () =>
  Object.fromEntries((await bench.engine.signingKeys.list()).map(({ kid, state }) => [kid, state]));

describe('a rotation', () => {
  it('keeps tokens of the old key valid for the grace period, and no longer', async () => {
    const claim = await waiting();
    const old = await tokenFor(claim);
    const { kid, previousKid } = await bench.engine.signingKeys.rotate({ grace: HOUR_MS });
    expect(old.split('_')[1]).toBe(previousKid);
    const young = await tokenFor(claim);
    expect(young.split('_')[1]).toBe(kid);
    expect(await isTaken(old)).toBe(true);
    await bench.database.moveClock(HOUR_MS);
    expect(await isTaken(old)).toBe(false);
    expect(await isTaken(young)).toBe(true);
    expect(await states()).toMatchObject({ [kid]: 'signing', [previousKid!]: 'expired' });
  });

  it('keeps tokens valid for their whole lifetime by default', async () => {
    const claim = await waiting();
    const month = 30 * 24 * HOUR_MS;
    const { token } = await bench.engine.waitpoints.issueToken(claim.executionId, 'door', {
      expiresIn: month,
    });
    await bench.engine.signingKeys.rotate();
    await bench.database.moveClock(month - HOUR_MS);
    expect(await isTaken(token)).toBe(true);
  });

  it('returns the same token for a waitpoint while that is valid, and then another', async () => {
    const claim = await bench.running();
    const create = async () => {
      const created = await bench.port.createWaitpoint(claim, { name: 'early' });
      if (created.outcome !== 'created') throw new Error(created.outcome);
      return created.waitpoint.token;
    };
    const first = await create();
    await bench.engine.signingKeys.rotate();
    expect(await create()).toBe(first);
    await bench.engine.signingKeys.rotate();
    await bench.engine.signingKeys.revoke(first.split('_')[1]!);
    const second = await create();
    expect(second).not.toBe(first);
    expect(await isTaken(second)).toBe(true);
  });

  it('without grace invalidates the old key at once', async () => {
    const claim = await waiting();
    const old = await tokenFor(claim);
    await bench.engine.signingKeys.rotate({ grace: 0 });
    expect(await isTaken(old)).toBe(false);
  });

  it('puts a new secret into effect; a process without that secret reports so', async () => {
    const claim = await waiting();
    const old = await tokenFor(claim);
    const next = await bench.another({ signingSecret: [`next ${SIGNING_SECRET}`, SIGNING_SECRET] });
    expect((await next.waitpoints.issueToken(claim.executionId, 'door')).token.split('_')[1]).toBe(
      old.split('_')[1],
    );
    const { kid } = await next.signingKeys.rotate();
    const { token } = await next.waitpoints.issueToken(claim.executionId, 'door');
    expect(await next.signal({ token })).toMatchObject({ outcome: 'accepted' });
    expect(await next.signal({ token: old })).toMatchObject({ outcome: 'accepted' });
    await expect(tokenFor(claim)).rejects.toMatchObject({ code: 'signing_not_configured' });
    expect((await bench.engine.signingKeys.list()).find((key) => key.kid === kid)).toMatchObject({
      secret: 'foreign',
    });
    await bench.engine.signingKeys.rotate();
  });

  it('invalidates what a leaked secret can sign, even under the id of the new key', async () => {
    const claim = await waiting();
    const both = [`fresh ${SIGNING_SECRET}`, SIGNING_SECRET];
    const next = await bench.another({ signingSecret: both });
    const { kid } = await next.signingKeys.rotate({ grace: 0 });
    const good = (await next.waitpoints.issueToken(claim.executionId, 'door')).token;
    const parts = new Signing(both, bench.database.schema).open(good)!;
    const forged = new Signing([SIGNING_SECRET], bench.database.schema).sign(parts, printOf(SIGNING_SECRET));
    expect(forged.split('_')[1]).toBe(kid);
    await expect(next.signal({ token: forged })).rejects.toMatchObject({ code: 'invalid_token' });
    expect(await next.signal({ token: good })).toMatchObject({ outcome: 'accepted' });
    await bench.engine.signingKeys.rotate();
  });
});

describe('a revocation', () => {
  it('invalidates a key at once, but is refused for the one that signs', async () => {
    const claim = await waiting();
    const token = await tokenFor(claim);
    const { kid, previousKid } = await bench.engine.signingKeys.rotate();
    expect(await isTaken(token)).toBe(true);
    expect(await bench.engine.signingKeys.revoke(kid)).toEqual({ outcome: 'is_current' });
    expect(await bench.engine.signingKeys.revoke(previousKid!)).toEqual({ outcome: 'revoked' });
    expect(await bench.engine.signingKeys.revoke(previousKid!)).toEqual({ outcome: 'already_revoked' });
    expect(await bench.engine.signingKeys.revoke('nobody')).toEqual({ outcome: 'not_found' });
    expect(await isTaken(token)).toBe(false);
  });
});

describe('what is stored', () => {
  it('contains neither tokens nor secrets nor keys', async () => {
    const claim = await waiting();
    const token = await tokenFor(claim);
    await bench.engine.signal({ token });
    const tables = ['ff_signing_key', 'ff_waitpoint', 'ff_signal', 'ff_suspension', 'ff_step', 'ff_event'];
    for (const table of tables) {
      const { rows } = await bench.database.query(`SELECT t::text AS text FROM ${table} t`);
      const text = JSON.stringify(rows);
      expect(text).not.toContain(SIGNING_SECRET);
      expect(text).not.toContain(token.split('_').at(-1));
    }
  });
});
