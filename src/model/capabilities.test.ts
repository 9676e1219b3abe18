/**
 * Capability tokens: what makes one malformed, how a list is measured and normalised, and when an offer is sufficient.
 * The limit on the number of tokens is checked by the caller; only the counting is tested here.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  CAPABILITY_LIMITS,
  capabilityBytes,
  capabilityFault,
  normaliseCapabilities,
  offersAll,
} from './capabilities.ts';

const anyToken = fc
  .string({ minLength: 1, unit: 'binary' })
  .filter((token) => capabilityFault(token) === undefined);
const anyTokens = fc.array(anyToken, { maxLength: 12 });
const fewTokens = fc.array(fc.constantFrom('gpu', 'GPU', 'cpu', 'eu', 'us'), { maxLength: 6 });

describe('a capability token', () => {
  it.each([
    'gpu',
    'a',
    '!',
    '~',
    'gpu=a100',
    'region:eu-west/1',
    'GPU',
    '名前',
    'é',
    '🚀',
    '\u00a0',
    '\u0080',
  ])('may be %j', (token) => expect(capabilityFault(token)).toBeUndefined());

  it.each([
    ['empty', '', 'is empty'],
    ['a comma', ',', 'contains a comma'],
    ['a comma at the end', 'gpu,', 'contains a comma'],
    ['a comma inside', 'gpu,cpu', 'contains a comma'],
    ['a leading space', ' gpu', 'contains white space or a control character'],
    ['a trailing space', 'gpu ', 'contains white space or a control character'],
    ['only a space', ' ', 'contains white space or a control character'],
    ['a tab', 'g\tpu', 'contains white space or a control character'],
    ['a line feed at the end', 'gpu\n', 'contains white space or a control character'],
    ['a carriage return', 'gpu\r', 'contains white space or a control character'],
    ['a NUL', 'g\0pu', 'contains white space or a control character'],
    [
      'the last control character of the low range',
      'g\u001fpu',
      'contains white space or a control character',
    ],
    ['DEL', 'gpu\u007f', 'contains white space or a control character'],
    ['half of a surrogate pair', 'gpu\ud83d', 'is not well-formed text'],
    ['the other half alone', '\ude80', 'is not well-formed text'],
  ])('is malformed with %s', (_what, token, fault) => {
    expect(capabilityFault(token)).toBe(fault);
  });

  it('is refused for every byte up to the space, the comma and DEL, and for no other single byte', () => {
    const refused = Array.from({ length: 128 }, (_unused, code) => code).filter(
      (code) => capabilityFault(`a${String.fromCharCode(code)}b`) !== undefined,
    );
    expect(refused).toEqual([...Array.from({ length: 33 }, (_unused, code) => code), 0x2c, 0x7f]);
  });
});

describe('the size of a capability list', () => {
  it.each([
    ['nothing', [], 0],
    ['one token', ['gpu'], 3],
    ['tokens and the commas between them', ['gpu', 'cpu'], 7],
    ['two bytes', ['é'], 2],
    ['three bytes', ['名'], 3],
    ['four bytes', ['🚀'], 4],
    ['all of them', ['a', 'é', '名', '🚀'], 13],
  ])('counts %s', (_what, tokens, bytes) => {
    expect(capabilityBytes(tokens)).toBe(bytes);
  });

  it('is that of the comma-separated string', () => {
    fc.assert(
      fc.property(anyTokens, (tokens) => {
        expect(capabilityBytes(tokens)).toBe(new TextEncoder().encode(tokens.join(',')).length);
      }),
    );
  });

  it('reaches the limit in bytes, not in characters', () => {
    expect(capabilityBytes(['é'.repeat(CAPABILITY_LIMITS.maxBytes / 2)])).toBe(CAPABILITY_LIMITS.maxBytes);
    expect(CAPABILITY_LIMITS).toEqual({ maxTokens: 256, maxBytes: 4_096 });
  });
});

describe('a normalised capability list', () => {
  it.each([
    [[], []],
    [
      ['b', 'a'],
      ['a', 'b'],
    ],
    [
      ['a', 'a', 'b', 'a'],
      ['a', 'b'],
    ],
    [
      ['gpu', 'GPU'],
      ['GPU', 'gpu'],
    ],
    [
      ['10', '9', '1'],
      ['1', '10', '9'],
    ],
    [
      ['é', 'z', 'e'],
      ['e', 'z', 'é'],
    ],
  ])('of %j is %j', (tokens, normalised) => {
    expect(normaliseCapabilities(tokens)).toEqual(normalised);
  });

  it('is the same for every order and repetition of the same tokens', () => {
    const spellings = fewTokens.chain((tokens) =>
      fc.tuple(
        fc.constant(tokens),
        fc.shuffledSubarray([...tokens, ...tokens], { minLength: tokens.length * 2 }),
      ),
    );
    fc.assert(
      fc.property(spellings, ([tokens, other]) => {
        expect(normaliseCapabilities(other)).toEqual(normaliseCapabilities(tokens));
      }),
    );
  });

  it('contains the same tokens, and normalising again changes nothing', () => {
    fc.assert(
      fc.property(anyTokens, (tokens) => {
        const normalised = normaliseCapabilities(tokens);
        expect(new Set(normalised)).toEqual(new Set(tokens));
        expect(normalised).toHaveLength(new Set(tokens).size);
        expect(normaliseCapabilities(normalised)).toEqual(normalised);
      }),
    );
  });

  it('leaves the given list unchanged', () => {
    const tokens = Object.freeze(['b', 'a', 'b']);
    normaliseCapabilities(tokens);
    expect(tokens).toEqual(['b', 'a', 'b']);
  });
});

describe('an offer', () => {
  it.each([
    ['nothing is required and nothing is offered', [], [], true],
    ['nothing is required', [], ['gpu'], true],
    ['exactly what is required', ['gpu'], ['gpu'], true],
    ['more than is required', ['gpu'], ['gpu', 'eu'], true],
    ['less than is required', ['gpu', 'eu'], ['gpu'], false],
    ['nothing of what is required', ['gpu'], [], false],
    ['another case', ['gpu'], ['GPU'], false],
    ['only a beginning', ['gpu'], ['gpu-a100'], false],
  ])('is judged by set inclusion: %s', (_what, required, offered, enough) => {
    expect(offersAll(required, new Set(offered))).toBe(enough);
  });

  it('stays sufficient when it grows, and becomes insufficient when a required token is removed', () => {
    fc.assert(
      fc.property(fewTokens, fewTokens, (required, extra) => {
        expect(offersAll(required, new Set([...required, ...extra]))).toBe(true);
        for (const missing of required) {
          const rest = new Set([...required, ...extra].filter((token) => token !== missing));
          expect(offersAll(required, rest)).toBe(false);
        }
      }),
    );
  });
});
