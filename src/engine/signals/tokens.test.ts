/**
 * Tokens: what one says comes back, and nothing that was not signed is believed.
 */
import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  deriveKey,
  fingerprintOf,
  linkWith,
  openToken,
  printOf,
  signToken,
  tokenIn,
  type TokenBond,
  type TokenContent,
} from './tokens.ts';

const SECRET = 'a secret that is long enough to be one';
const CONTENT: TokenContent = {
  kid: 'abcd1234',
  partition: 7,
  executionUuid: '01890000-0000-7000-8000-000000000001',
  waitpointUuid: '01890000-0000-4000-8000-000000000002',
  expiresAtMs: 1_800_000_000_000,
  bond: {},
};
const keyOf = (kid: string, secret = SECRET, schema = 'flowfabric') => deriveKey(secret, schema, kid);
const open = (token: string, secret = SECRET, schema = 'flowfabric') =>
  openToken(token, (kid) => [{ print: 'p', key: keyOf(kid, secret, schema) }]);
const TOKEN = signToken(CONTENT, keyOf(CONTENT.kid));

describe('a token', () => {
  it('says what was signed', () => {
    const bond: TokenBond = {
      source: { type: 'user', identity: 'ann ü' },
      signal: { name: 'yes', payload: { a: [1] } },
      once: true,
    };
    const token = signToken({ ...CONTENT, bond }, keyOf(CONTENT.kid));
    expect(open(token)).toEqual({ ...CONTENT, bond, print: 'p' });
    expect(open(TOKEN)).toEqual({ ...CONTENT, print: 'p' });
  });

  it('is refused with any one character changed, taken away or added', () => {
    const alphabet = [...'0123456789abcdefABCDEF_g'];
    fc.assert(
      fc.property(fc.nat(TOKEN.length - 1), fc.constantFrom(...alphabet), (place, character) => {
        const before = TOKEN.slice(0, place);
        const after = TOKEN.slice(place + 1);
        fc.pre(TOKEN[place] !== character);
        expect(open(before + character + after)).toBeUndefined();
        expect(open(before + after)).toBeUndefined();
        expect(open(before + character + TOKEN.slice(place))).toBeUndefined();
      }),
      { numRuns: 1_000 },
    );
  });

  it('is refused with a field of another token, another secret or another schema', () => {
    const other = signToken({ ...CONTENT, waitpointUuid: CONTENT.executionUuid }, keyOf(CONTENT.kid));
    const [head, kid, body] = TOKEN.split('_');
    expect(open([head, kid, body, other.split('_')[3]].join('_'))).toBeUndefined();
    expect(open(TOKEN, `${SECRET}!`)).toBeUndefined();
    expect(open(TOKEN, SECRET, 'other')).toBeUndefined();
  });

  it('is not guessed', () => {
    const [head, kid, body] = TOKEN.split('_');
    for (let tries = 0; tries < 5_000; tries += 1)
      expect(open([head, kid, body, randomBytes(32).toString('hex')].join('_'))).toBeUndefined();
  });

  it('is found in a link, and in the path of a request to one', () => {
    expect(tokenIn(TOKEN)).toBe(TOKEN);
    const link = linkWith('https://example.org/a?b=c#d', TOKEN);
    expect(tokenIn(link)).toBe(TOKEN);
    expect(tokenIn(new URL(link).pathname + new URL(link).search)).toBe(TOKEN);
    expect(tokenIn('https://example.org/?ff_token=')).toBe('');
  });

  it('has a fingerprint, and a secret a print, that tell nothing of them', () => {
    expect(fingerprintOf(TOKEN)).toMatch(/^[0-9a-f]{16}$/);
    expect(TOKEN).not.toContain(fingerprintOf(TOKEN));
    expect(printOf(SECRET)).toMatch(/^[0-9a-f]{16}$/);
    expect(printOf(SECRET)).not.toBe(printOf(`${SECRET}!`));
  });
});
