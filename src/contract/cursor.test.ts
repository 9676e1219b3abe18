/**
 * Cursors of the event feed: their bytes, that every position comes back as it went in, and how everything else is
 * refused. Users keep cursors for years, so the layout may never change.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeCursor, encodeCursor } from './cursor.ts';
import { EngineError } from './errors.ts';

const LARGEST = 2n ** 63n - 1n;
const anyPosition = fc.bigInt({ min: 0n, max: LARGEST });

function bytesOf(cursor: string): number[] {
  return [...Buffer.from(cursor, 'base64url')];
}

function textOf(...bytes: number[]): string {
  return Buffer.from(bytes).toString('base64url');
}

function faultOf(cursor: unknown, field?: string): EngineError {
  try {
    decodeCursor(cursor, field);
  } catch (error) {
    if (error instanceof EngineError) return error;
    throw error;
  }
  throw new Error('it was taken for a cursor');
}

describe('the cursor of a position', () => {
  it.each([
    [0n, [2, 0, 0, 0, 0, 0, 0, 0, 0]],
    [1n, [2, 0, 0, 0, 0, 0, 0, 0, 1]],
    [0x0102030405060708n, [2, 1, 2, 3, 4, 5, 6, 7, 8]],
    [LARGEST, [2, 127, 255, 255, 255, 255, 255, 255, 255]],
  ])('%d is the byte 2 and eight bytes, the highest first', (position, bytes) => {
    expect(bytesOf(encodeCursor(position))).toEqual(bytes);
  });

  it('is twelve characters that need no quoting in a URL or a shell', () => {
    fc.assert(
      fc.property(anyPosition, (position) => {
        expect(encodeCursor(position)).toMatch(/^[A-Za-z0-9_-]{12}$/);
      }),
    );
  });

  it('stands for that position, to the last digit', () => {
    for (const position of [2n ** 53n, 2n ** 53n + 1n, LARGEST]) {
      expect(decodeCursor(encodeCursor(position))).toBe(position);
    }
    fc.assert(
      fc.property(anyPosition, (position) => {
        expect(decodeCursor(encodeCursor(position))).toBe(position);
      }),
    );
  });

  it('sorts as its bytes do', () => {
    const compared = (a: bigint, b: bigint): number =>
      Buffer.compare(Buffer.from(encodeCursor(a), 'base64url'), Buffer.from(encodeCursor(b), 'base64url'));
    fc.assert(
      fc.property(anyPosition, anyPosition, (a, b) => {
        expect(compared(a, b)).toBe(Number(a > b) - Number(a < b));
      }),
    );
  });
});

describe('a cursor that is given back', () => {
  it('may be bytes, also a part of a larger buffer', () => {
    const bytes = Uint8Array.from([9, 9, 2, 0, 0, 0, 0, 0, 0, 1, 0, 9]);
    expect(decodeCursor(bytes.subarray(2, 11))).toBe(256n);
    expect(decodeCursor(Buffer.from(encodeCursor(7n), 'base64url'))).toBe(7n);
  });

  it('stands for no position when it is empty', () => {
    expect(decodeCursor('')).toBeUndefined();
    expect(decodeCursor(new Uint8Array())).toBeUndefined();
  });
});

describe('what is no cursor', () => {
  const eight = [0, 0, 0, 0, 0, 0, 0, 1];

  it.each([
    ['one byte', textOf(2), 'has 1 bytes; a cursor has 9'],
    ['a byte short', textOf(2, ...eight.slice(1)), 'has 8 bytes; a cursor has 9'],
    ['a byte long', textOf(2, ...eight, 0), 'has 10 bytes; a cursor has 9'],
    ['short, as bytes', Uint8Array.from([2]), 'has 1 bytes; a cursor has 9'],
    ['of another kind', textOf(1, ...eight), 'starts with byte 1; a cursor of the feed starts with 2'],
    ['without a kind', textOf(0, ...eight), 'starts with byte 0; a cursor of the feed starts with 2'],
    ['of position -1', textOf(2, ...eight.map(() => 255)), 'has a negative position'],
    ['of the lowest position', textOf(2, 128, 0, 0, 0, 0, 0, 0, 0), 'has a negative position'],
    ['padded', `${encodeCursor(1n)}==`, 'is not base64url'],
    ['of the other base64', '+/+/+/+/+/+/', 'is not base64url'],
    ['with a line end', `${encodeCursor(1n)}\n`, 'is not base64url'],
    ['with a character too many', `${encodeCursor(1n)}A`, 'is not base64url'],
    ['a number', 5, 'must be a cursor, as a string or as bytes'],
    ['a bigint', 5n, 'must be a cursor, as a string or as bytes'],
    ['a list of bytes', [2, ...eight], 'must be a cursor, as a string or as bytes'],
    ['null', null, 'must be a cursor, as a string or as bytes'],
  ])('is refused: %s', (_, cursor, what) => {
    expect(faultOf(cursor)).toMatchObject({
      code: 'invalid_cursor',
      field: 'cursor',
      message: `cursor ${what}.`,
    });
  });

  it.each([1, '1', null, undefined, Symbol('odd'), {}])('is not made of %s', (position) => {
    expect(() => encodeCursor(position as never)).toThrow(
      expect.objectContaining({ code: 'invalid_cursor', field: 'position' }),
    );
  });

  it('is refused under the name the caller knows it by', () => {
    expect(faultOf('*', 'from')).toMatchObject({ field: 'from', message: 'from is not base64url.' });
  });

  it('is refused, or stands for a position that makes the same bytes, whatever the text', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.base64String(), fc.uint8Array({ maxLength: 12 })), (given) => {
        try {
          const position = decodeCursor(given);
          const bytes = typeof given === 'string' ? Buffer.from(given, 'base64url') : given;
          expect(position === undefined ? [] : bytesOf(encodeCursor(position))).toEqual([...bytes]);
        } catch (error) {
          if (!(error instanceof EngineError)) throw error;
          expect(error.code).toBe('invalid_cursor');
        }
      }),
    );
  });
});
