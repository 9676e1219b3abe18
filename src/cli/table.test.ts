/**
 * Tables and folded lines: as wide as the terminal and no wider, whatever is in them.
 */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Line } from './style.ts';
import { column, folded, labelled, Table, tableOf } from './table.ts';
import { cutTo, fold, widthOf } from './text-width.ts';

const COLUMNS = [
  column('ID', 'whole'),
  column('TASK'),
  column('LANE', 'text', { isOptional: true }),
  column('AGE', 'number'),
  column('DETAIL', 'text', { least: 12 }),
];
const ROW = ['0196dd21-1c00', 'import-customers', 'bulk', '2m07s', 'a sentence that is rather long'];

function textOf(lines: readonly Line[]): string[] {
  return lines.map((line) => line.map(([text]) => text).join(''));
}

function drawn(width: number | null, ...rows: string[][]): string[] {
  return textOf(
    tableOf(
      COLUMNS,
      rows.map((cells) => cells.map((text) => [text] as const)),
      width,
    ),
  );
}

describe('a table', () => {
  it('is printed whole where there is no terminal, with numbers at the right', () => {
    expect(drawn(null, ROW, ['1', 't', '', '9s', ''])).toEqual([
      'ID             TASK              LANE    AGE  DETAIL',
      '0196dd21-1c00  import-customers  bulk  2m07s  a sentence that is rather long',
      '1              t                          9s',
    ]);
  });

  it('cuts the widest text first', () => {
    expect(drawn(64, ROW)[1]).toBe('0196dd21-1c00  import-customers  bulk  2m07s  a sentence that i…');
    expect(drawn(58, ROW)[1]).toBe('0196dd21-1c00  import-custom…  bulk  2m07s  a sentence th…');
  });

  it('leaves out what is optional before it cuts a text below its least width', () => {
    expect(drawn(44, ROW)).toEqual([
      'ID             TASK        AGE  DETAIL',
      '0196dd21-1c00  import-…  2m07s  a sentence…',
    ]);
  });

  it('has no lines without rows, and one heading for several parts', () => {
    const table = new Table([column('A'), column('B', 'number')], null);
    expect(table.lines([])).toEqual([]);
    expect(textOf(table.lines([[['long'], ['1']]]))).toEqual(['A     B', 'long  1']);
    expect(textOf(table.lines([[['x'], ['22']]]))).toEqual(['x     22']);
  });

  it('is never wider than the terminal', () => {
    const texts = fc.array(fc.string({ unit: 'grapheme', maxLength: 40 }), { minLength: 5, maxLength: 5 });
    fc.assert(
      fc.property(
        fc.array(texts, { minLength: 1, maxLength: 3 }),
        fc.integer({ min: 1, max: 200 }),
        (rows, width) => {
          for (const line of drawn(width, ...rows)) expect(widthOf(line)).toBeLessThanOrEqual(width);
        },
      ),
    );
  });
});

describe('a labelled line', () => {
  it('is folded under its own beginning', () => {
    const lines = [labelled('why', 'one two three four'), labelled('task', 'send')];
    expect(textOf(folded(lines, 24))).toEqual([
      '  why        one two',
      '             three four',
      '  task       send',
    ]);
    expect(textOf(folded(lines, null))).toEqual(['  why        one two three four', '  task       send']);
  });
});

describe('the width of a text', () => {
  it.each([
    ['abc', 3],
    ['日本', 4],
    ['🚀', 2],
    ['e\u0301', 1],
    ['', 0],
  ])('of %j is %i columns', (text, columns) => {
    expect(widthOf(text)).toBe(columns);
  });

  it('decides where it is cut', () => {
    expect(cutTo('日本語', 6)).toBe('日本語');
    expect(cutTo('日本語', 5)).toBe('日本…');
    expect(cutTo('日本語', 4)).toBe('日…');
    expect(cutTo('abc', 0)).toBe('');
  });

  it('a long word has a line of its own', () => {
    expect(fold('a incomprehensible b', 4)).toEqual(['a', 'incomprehensible', 'b']);
  });
});
