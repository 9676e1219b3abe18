/**
 * Tokens of waitpoints: whoever has one may send signals to one waitpoint until it expires, limited to what the token
 * is bound to. A token names its key and is signed with HMAC-SHA-256; it is not stored. Keys are derived from a
 * configured secret, one for each key id and for this purpose only. No database here: it decides whether a key still
 * verifies.
 */
import { createHash, createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import type { Json } from '../../contract/json.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { SignalSource } from '../../contract/signals.ts';

const PURPOSE = 'flowfabric waitpoint';
const VERSION = 1;
const KEY_BYTES = 32;
/** `ffw1_<kid>_<partition, execution, waitpoint, expiry, bound>_<signature>`: all but the key's id in hex. */
const TOKEN =
  /^ffw1_([a-z0-9]{1,32})_([0-9a-f]{2})([0-9a-f]{32})([0-9a-f]{32})([0-9a-f]{12})((?:[0-9a-f]{2})*)_([0-9a-f]{64})$/;
/** Two hex digits per byte, and ample room for the rest of a token. */
export const MAX_TOKEN_LENGTH = LIMITS.tokenBoundBytes * 2 + 512;
const FINGERPRINT_DIGITS = 16;
/** The query parameter of a link. */
const LINK_PARAMETER = 'ff_token';

/** What a token is bound to: a source, a signal, a single use. */
export interface TokenBond {
  source?: Required<SignalSource>;
  signal?: { name: string; payload: Json };
  once?: true;
}

/** What a token states, under its signature. */
export interface TokenContent {
  kid: string;
  partition: number;
  executionUuid: string;
  waitpointUuid: string;
  expiresAtMs: number;
  bond: TokenBond;
}

/** Derives the key of one key id in one schema. */
export function deriveKey(secret: string, schema: string, kid: string): Buffer {
  return Buffer.from(hkdfSync('sha256', secret, schema, `${PURPOSE} ${kid}`, KEY_BYTES));
}

/** Identifies a secret without revealing it. */
export function printOf(secret: string): string {
  return Buffer.from(hkdfSync('sha256', secret, '', 'flowfabric print', 8)).toString('hex');
}

export function signToken(content: TokenContent, key: Buffer): string {
  const fields = fieldsOf(content);
  return `ffw${VERSION}_${content.kid}_${fields.join('')}_${signatureOf(content.kid, fields, key).toString('hex')}`;
}

export function fingerprintOf(token: string): string {
  return createHash('sha256').update(token).digest('hex').slice(0, FINGERPRINT_DIGITS);
}

export function linkWith(address: string, token: string): string {
  const link = new URL(address);
  link.searchParams.set(LINK_PARAMETER, token);
  return link.href;
}

/** Returns the token itself, or the one in a link or in the path of a request to a link. */
export function tokenIn(text: string): string {
  if (!text.includes(`${LINK_PARAMETER}=`)) return text;
  const query = text.slice(text.indexOf('?') + 1).split('#')[0];
  return new URLSearchParams(query).get(LINK_PARAMETER) ?? text;
}

/** Returns a token's content and the secret that signed it; undefined when none of the keys did. */
export function openToken(
  token: string,
  keysFor: (kid: string) => readonly { print: string; key: Buffer }[],
): (TokenContent & { print: string }) | undefined {
  const found = token.length > MAX_TOKEN_LENGTH ? null : TOKEN.exec(token);
  if (found === null) return undefined;
  const [, kid, partition, execution, waitpoint, expiry, bond, signature] = found as unknown as string[];
  const fields = [partition!, execution!, waitpoint!, expiry!, bond!];
  const given = Buffer.from(signature!, 'hex');
  // All keys are compared, so that the time taken does not reveal which one matches.
  const signers = keysFor(kid!).filter(({ key }) => timingSafeEqual(signatureOf(kid!, fields, key), given));
  if (signers.length === 0) return undefined;
  return {
    kid: kid!,
    print: signers[0]!.print,
    partition: Number.parseInt(partition!, 16),
    executionUuid: dashed(execution!),
    waitpointUuid: dashed(waitpoint!),
    expiresAtMs: Number.parseInt(expiry!, 16),
    bond: bond === '' ? {} : (JSON.parse(Buffer.from(bond!, 'hex').toString()) as TokenBond),
  };
}

/** The bond as it is written in the token; empty when there is none. */
export function bondText(bond: TokenBond): string {
  return Object.keys(bond).length === 0 ? '' : JSON.stringify(bond);
}

function fieldsOf({ partition, executionUuid, waitpointUuid, expiresAtMs, bond }: TokenContent): string[] {
  return [
    partition.toString(16).padStart(2, '0'),
    executionUuid.replaceAll('-', ''),
    waitpointUuid.replaceAll('-', ''),
    expiresAtMs.toString(16).padStart(12, '0'),
    Buffer.from(bondText(bond)).toString('hex'),
  ];
}

/** Signs the fields with their lengths, so that no two lists of fields have the same input. */
function signatureOf(kid: string, fields: readonly string[], key: Buffer): Buffer {
  const hmac = createHmac('sha256', key);
  for (const field of [PURPOSE, String(VERSION), kid, ...fields]) hmac.update(`${field.length}:${field}`);
  return hmac.digest();
}

function dashed(hex: string): string {
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}
