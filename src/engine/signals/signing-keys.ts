/**
 * Which keys sign and verify tokens. The signing key is made when it is first needed; operators rotate and revoke. Keys
 * appear here by id, never in full.
 */
import { randomBytes } from 'node:crypto';
import { string } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { duration, msOf } from '../../contract/shape/duration.ts';
import { shape } from '../../contract/shape/shape.ts';
import type { RevokeKeyOutcome, RotateRequest, SigningKey } from '../../contract/signals.ts';
import { currentKey, listKeys, revokeKey, rotateKey, type KeyName } from './signing-keys.sql.ts';
import type { EngineContext } from '../kit/context.ts';

const KID_BYTES = 4;
/** How long unused keys stay in the list. */
const FORGET_MS = 2_592_000_000;

const keyId = string(32);
const rotateRequest = shape<RotateRequest>({ grace: duration(LIMITS.tokenMs).optional() });

function newKid(): string {
  return randomBytes(KID_BYTES).toString('hex');
}

/**
 * Returns the key to sign a token of this lifetime. Read for every token: one signed by a revoked key would be invalid.
 */
export async function signingKey(context: EngineContext, tokenMs: number): Promise<KeyName> {
  return currentKey(context.database, { kid: newKid(), print: context.signing.firstPrint }, tokenMs);
}

export async function listSigningKeys(context: EngineContext): Promise<SigningKey[]> {
  const rows = await listKeys(context.database);
  return rows.map(({ print, nowMs, ...key }) => ({
    ...key,
    state: stateOf(key, nowMs),
    secret: context.signing.knows(print) ? 'known' : 'foreign',
  }));
}

function stateOf(
  { revokedAtMs, verifiesUntilMs }: Pick<SigningKey, 'revokedAtMs' | 'verifiesUntilMs'>,
  nowMs: number,
): SigningKey['state'] {
  if (revokedAtMs !== null) return 'revoked';
  if (verifiesUntilMs === null) return 'signing';
  return verifiesUntilMs > nowMs ? 'verifying' : 'expired';
}

export async function rotateSigningKey(
  context: EngineContext,
  request: RotateRequest = {},
): Promise<{ kid: string; previousKid: string | null }> {
  const { grace } = rotateRequest.check(request, 'request');
  const graceMs = grace === undefined ? null : msOf(grace);
  const made = { kid: newKid(), print: context.signing.firstPrint };
  return { kid: made.kid, previousKid: await rotateKey(context.database, made, graceMs, FORGET_MS) };
}

export async function revokeSigningKey(context: EngineContext, kid: string): Promise<RevokeKeyOutcome> {
  const outcome = await revokeKey(context.database, keyId.check(kid, 'kid'));
  return { outcome } as RevokeKeyOutcome;
}
