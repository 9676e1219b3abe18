/**
 * Execution ids: what is one, what is refused and how it is said, where a uuid lives, and how new uuids are laid out.
 * Nothing is repaired on the way in: an id that is almost right is wrong.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EngineError } from './errors.ts';
import {
  crc16,
  formatExecutionId,
  looksLikeId,
  mintExecution,
  parseExecutionId,
  parseIdPrefix,
  PARTITION_COUNT,
  partitionOfIdempotencyKey,
  partitionOfKey,
  partitionOfTopic,
  shortestPrefix,
  uuidV7,
} from './ids.ts';

const UUID = '017f22e2-79b0-7cc3-98c4-dc0c0c07398f';
const FORM = 'must be a string of the form {fp:N}:<uuid>';
const PREFIX = 'does not begin with {fp: as an id of the form {fp:N}:<uuid> does';
const SEPARATOR = 'has no }: between the partition and the uuid';
const PARTITION = 'has a partition that is not a whole number from 0 to 255';
const ENDING = 'does not end in a lower-case uuid';

const anyPartition = fc.nat({ max: PARTITION_COUNT - 1 });
const anyUuid = fc.uuid();
const anyMs = fc.nat({ max: 2 ** 48 - 1 });
const anyRandom = fc.uint8Array({ minLength: 10, maxLength: 10 });
const FULL = new Uint8Array(10).fill(0xff);
const EMPTY = new Uint8Array(10);

/** The partition that a new execution with this uuid is minted in. */
function hashedPartition(uuid: string): number {
  return crc16(Buffer.from(uuid.replaceAll('-', ''), 'hex')) % PARTITION_COUNT;
}

function faultOf(text: unknown, field?: string): EngineError {
  try {
    parseExecutionId(text, field);
  } catch (error) {
    if (error instanceof EngineError) return error;
    throw error;
  }
  throw new Error('the text was taken for an execution id');
}

describe('an execution id', () => {
  it.each([0, 1, 9, 10, 99, 100, 199, 249, 250, 255])('may lie in partition %i', (partition) => {
    expect(parseExecutionId(`{fp:${partition}}:${UUID}`)).toEqual({ partition, uuid: UUID });
  });

  it('may hold a uuid of any version', () => {
    for (const uuid of [
      '00000000-0000-0000-0000-000000000000',
      'ffffffff-ffff-ffff-ffff-ffffffffffff',
      '919108f7-52d1-4320-9bac-f847db4148a8',
    ]) {
      expect(parseExecutionId(`{fp:7}:${uuid}`)).toEqual({ partition: 7, uuid });
    }
  });

  it('is decoded, not recomputed: a partition that is not the hash of the uuid stands', () => {
    expect(hashedPartition(UUID)).not.toBe(3);
    expect(parseExecutionId(`{fp:3}:${UUID}`).partition).toBe(3);
  });

  it('survives being written and read', () => {
    fc.assert(
      fc.property(anyPartition, anyUuid, (partition, uuid) => {
        expect(parseExecutionId(formatExecutionId(partition, uuid))).toEqual({ partition, uuid });
      }),
    );
  });

  it('is written one way only: whatever is read is written back letter for letter', () => {
    const nearly = fc
      .tuple(anyPartition, anyUuid, fc.nat(), fc.string({ maxLength: 2 }))
      .map(([partition, uuid, place, change]) => {
        const text = formatExecutionId(partition, uuid);
        const at = place % (text.length + 1);
        return text.slice(0, at) + change + text.slice(at + 1);
      });
    fc.assert(
      fc.property(nearly, (text) => {
        let parsed;
        try {
          parsed = parseExecutionId(text);
        } catch (error) {
          expect(error).toMatchObject({ code: 'invalid_id', field: 'executionId' });
          return;
        }
        expect(formatExecutionId(parsed.partition, parsed.uuid)).toBe(text);
      }),
      { numRuns: 500 },
    );
  });
});

describe('what is not an execution id', () => {
  it.each<[string, unknown, string]>([
    ['nothing', undefined, FORM],
    ['null', null, FORM],
    ['a number', 7, FORM],
    ['a boolean', true, FORM],
    ['a list that would read as one', [`{fp:7}:${UUID}`], FORM],
    ['an object that would read as one', { toString: () => `{fp:7}:${UUID}` }, FORM],
    ['a boxed string', Object(`{fp:7}:${UUID}`), FORM],
    ['an empty text', '', PREFIX],
    ['a bare uuid', UUID, PREFIX],
    ['no opening brace', `fp:7}:${UUID}`, PREFIX],
    ['another kind of partition', `{b:7}:${UUID}`, PREFIX],
    ['an upper-case prefix', `{FP:7}:${UUID}`, PREFIX],
    ['a blank in front', ` {fp:7}:${UUID}`, PREFIX],
    ['no separator', `{fp:7${UUID}`, SEPARATOR],
    ['no colon', `{fp:7}${UUID}`, SEPARATOR],
    ['no closing brace', `{fp:7:${UUID}`, SEPARATOR],
    ['only the prefix', '{fp:', SEPARATOR],
    ['no partition', `{fp:}:${UUID}`, PARTITION],
    ['a blank partition', `{fp: }:${UUID}`, PARTITION],
    ['a blank before the partition', `{fp: 7}:${UUID}`, PARTITION],
    ['a blank after the partition', `{fp:7 }:${UUID}`, PARTITION],
    ['a line feed after the partition', `{fp:7\n}:${UUID}`, PARTITION],
    ['a plus sign', `{fp:+7}:${UUID}`, PARTITION],
    ['a minus sign', `{fp:-7}:${UUID}`, PARTITION],
    ['minus zero', `{fp:-0}:${UUID}`, PARTITION],
    ['a leading zero', `{fp:07}:${UUID}`, PARTITION],
    ['zeros for zero', `{fp:00}:${UUID}`, PARTITION],
    ['a fraction', `{fp:7.0}:${UUID}`, PARTITION],
    ['an exponent', `{fp:1e1}:${UUID}`, PARTITION],
    ['hexadecimal', `{fp:0x7}:${UUID}`, PARTITION],
    ['letters', `{fp:N}:${UUID}`, PARTITION],
    ['digits of another script', `{fp:\u0667}:${UUID}`, PARTITION],
    ['the first partition there is not', `{fp:256}:${UUID}`, PARTITION],
    ['three digits too high', `{fp:999}:${UUID}`, PARTITION],
    ['four digits', `{fp:1000}:${UUID}`, PARTITION],
    ['more digits than a number holds', `{fp:${'9'.repeat(400)}}:${UUID}`, PARTITION],
    ['a separator too early', `{fp:7}:}:${UUID}`, ENDING],
    ['no uuid', '{fp:7}:', ENDING],
    ['an upper-case uuid', `{fp:7}:${UUID.toUpperCase()}`, ENDING],
    ['one upper-case letter', `{fp:7}:${UUID.replace('f', 'F')}`, ENDING],
    ['a blank before the uuid', `{fp:7}: ${UUID}`, ENDING],
    ['a blank after the uuid', `{fp:7}:${UUID} `, ENDING],
    ['a line feed after the uuid', `{fp:7}:${UUID}\n`, ENDING],
    ['text after the uuid', `{fp:7}:${UUID}0`, ENDING],
    ['a second id after the first', `{fp:7}:${UUID}{fp:7}:${UUID}`, ENDING],
    ['a uuid that is too short', `{fp:7}:${UUID.slice(0, -1)}`, ENDING],
    ['a uuid without dashes', `{fp:7}:${UUID.replaceAll('-', '')}`, ENDING],
    ['a uuid in braces', `{fp:7}:{${UUID}}`, ENDING],
    ['a letter that is no digit', `{fp:7}:${UUID.replace('0', 'g')}`, ENDING],
  ])('is refused with its reason: %s', (_what, text, reason) => {
    const fault = faultOf(text);
    expect(fault.code).toBe('invalid_id');
    expect(fault.field).toBe('executionId');
    expect(fault.message).toBe(`executionId ${reason}.`);
  });

  it('is refused under the name the caller gave it', () => {
    const fault = faultOf('', 'requests[3].executionId');
    expect(fault.field).toBe('requests[3].executionId');
    expect(fault.message).toBe(`requests[3].executionId ${PREFIX}.`);
  });

  it('is never quoted in the error, which may be shown and logged', () => {
    expect(faultOf('{fp:7}:top-secret').message).not.toContain('secret');
  });
});

describe('the partition of a uuid', () => {
  it.each([
    ['', 0x0000],
    ['123456789', 0x31c3],
    ['A', 0x58e5],
    ['default', 0xd656],
  ])('comes from CRC-16/XMODEM, which gives for %j %i', (text, crc) => {
    expect(crc16(new TextEncoder().encode(text))).toBe(crc);
  });

  it.each([
    ['00000000-0000-0000-0000-000000000000', 0],
    ['ffffffff-ffff-ffff-ffff-ffffffffffff', 65],
    ['00112233-4455-6677-8899-aabbccddeeff', 72],
    ['017f22e2-79b0-7cc3-98c4-dc0c0c07398f', 106],
    ['6ba7b810-9dad-11d1-80b4-00c04fd430c8', 77],
    ['6ba7b811-9dad-11d1-80b4-00c04fd430c8', 46],
    ['919108f7-52d1-4320-9bac-f847db4148a8', 150],
    ['f81d4fae-7dec-11d0-a765-00a0c91e6bf6', 203],
  ])('is known: %s lies in %i', (uuid, partition) => {
    expect(hashedPartition(uuid)).toBe(partition);
  });

  it('is always one of those there are', () => {
    fc.assert(
      fc.property(anyUuid, (uuid) => {
        const partition = hashedPartition(uuid);
        expect(Number.isInteger(partition)).toBe(true);
        expect(partition).toBeGreaterThanOrEqual(0);
        expect(partition).toBeLessThan(PARTITION_COUNT);
      }),
    );
  });
});

describe('a new uuid', () => {
  it.each([
    [0, EMPTY, '00000000-0000-7000-8000-000000000000'],
    [2 ** 48 - 1, FULL, 'ffffffff-ffff-7fff-bfff-ffffffffffff'],
    [0, FULL, '00000000-0000-7fff-bfff-ffffffffffff'],
    [1, EMPTY, '00000000-0001-7000-8000-000000000000'],
    // The example of RFC 9562, appendix A.6.
    [
      0x017f22e279b0,
      Uint8Array.of(0x0c, 0xc3, 0x18, 0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f),
      '017f22e2-79b0-7cc3-98c4-dc0c0c07398f',
    ],
  ])('is laid out as version 7 at %i ms', (unixMs, random, uuid) => {
    expect(uuidV7(unixMs, random)).toBe(uuid);
  });

  it('carries its version, its variant and its time, whatever the random bytes', () => {
    fc.assert(
      fc.property(anyMs, anyRandom, (unixMs, random) => {
        const uuid = uuidV7(unixMs, random);
        expect(uuid).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
        expect(Number.parseInt(uuid.slice(0, 8) + uuid.slice(9, 13), 16)).toBe(unixMs);
      }),
    );
  });

  it('sorts as text after every uuid of an earlier millisecond', () => {
    fc.assert(
      fc.property(anyMs, anyMs, anyRandom, anyRandom, (one, other, first, second) => {
        fc.pre(one !== other);
        const [early, late] = one < other ? [one, other] : [other, one];
        expect(uuidV7(early, first) < uuidV7(late, second)).toBe(true);
      }),
    );
  });

  it('leaves the random bytes it was given as they were, and uses ten of them', () => {
    const random = Uint8Array.from({ length: 16 }, (_unused, index) => index);
    const uuid = uuidV7(5, random);
    expect([...random]).toEqual(Array.from({ length: 16 }, (_unused, index) => index));
    expect(uuid).toBe(uuidV7(5, random.subarray(0, 10)));
  });
});

describe('a minted id', () => {
  it('is valid and lies where its own uuid says', () => {
    fc.assert(
      fc.property(anyMs, anyRandom, (unixMs, random) => {
        const { partition, uuid } = mintExecution(unixMs, random);
        expect(uuid).toBe(uuidV7(unixMs, random));
        expect(partition).toBe(hashedPartition(uuid));
      }),
    );
  });

  it('spreads over every partition although the times are alike', () => {
    const seen = new Set<number>();
    for (let index = 0; index < 8 * PARTITION_COUNT; index += 1) {
      const random = Uint8Array.from(
        { length: 10 },
        (_unused, byte) => (index * 197 + byte * 89 + (index >> 3)) & 0xff,
      );
      seen.add(mintExecution(1_700_000_000_000, random).partition);
    }
    expect(seen.size).toBeGreaterThan(PARTITION_COUNT / 2);
  });
});

describe('the beginning of an id', () => {
  it.each([
    ['017f', '017f0000-0000-0000-0000-000000000000', '017fffff-ffff-ffff-ffff-ffffffffffff'],
    ['017f22e2-', '017f22e2-0000-0000-0000-000000000000', '017f22e2-ffff-ffff-ffff-ffffffffffff'],
    ['017f22e2-79b', '017f22e2-79b0-0000-0000-000000000000', '017f22e2-79bf-ffff-ffff-ffffffffffff'],
    [UUID, UUID, UUID],
  ])('%s stands for a range of uuids', (text, from, to) => {
    expect(parseIdPrefix(text)).toEqual({ from, to, partition: null });
  });

  it('may be the whole id', () => {
    expect(parseIdPrefix(`{fp:7}:${UUID}`)).toEqual({ from: UUID, to: UUID, partition: 7 });
  });

  it.each(['', '017', '0-1-7', '017F', '017g', '017f22e279b0', `${UUID}0`, ' 017f', 'describe', 7, null])(
    'is not %j',
    (text) => {
      expect(() => parseIdPrefix(text, 'id')).toThrow(
        'id must be {fp:N}:<uuid>, or the beginning of its uuid: at least 4 hex digits in lower case',
      );
    },
  );

  it('is as short as its neighbours allow, and has at least 13 characters', () => {
    expect(shortestPrefix(UUID, [])).toBe('017f22e2-79b0');
    expect(shortestPrefix(UUID, ['017f22e2-79af-7cc3-98c4-dc0c0c07398f'])).toBe('017f22e2-79b0');
    expect(shortestPrefix(UUID, ['017f22e2-79b0-7cc1-98c4-dc0c0c07398f'])).toBe('017f22e2-79b0-7cc3');
    expect(shortestPrefix(UUID, ['017f22e2-79b0-7cc3-98c4-dc0c0c07398e'])).toBe(UUID);
  });

  it('never ends in a dash', () => {
    fc.assert(
      fc.property(anyMs, anyRandom, fc.array(anyRandom, { maxLength: 3 }), (ms, random, others) => {
        const uuid = uuidV7(ms, random);
        const short = shortestPrefix(
          uuid,
          others.map((other) => uuidV7(ms, other)),
        );
        expect(uuid.startsWith(short) && !short.endsWith('-')).toBe(true);
      }),
    );
  });
});

describe('a key, an idempotency key and a topic of one name', () => {
  const bytes = (mark: number): number =>
    crc16(Uint8Array.from([...Buffer.from('shop'), mark, ...Buffer.from('order-42')])) % PARTITION_COUNT;

  it('are placed by the namespace, a byte that tells them apart, and the name', () => {
    expect(partitionOfIdempotencyKey('shop', 'order-42')).toBe(bytes(0));
    expect(partitionOfKey('shop', 'order-42')).toBe(bytes(1));
    expect(partitionOfTopic('shop', 'order-42')).toBe(bytes(2));
  });

  it.each([
    ['{fp:1}:x', true],
    ['01890A5D-AC96-774B-BCCE-B302099A8057', true],
    ['order-42', false],
    ['20240101', false],
  ])('%s looks like an id: %s', (text, expected) => {
    expect(looksLikeId(text)).toBe(expected);
  });
});
