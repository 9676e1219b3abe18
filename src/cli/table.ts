/**
 * Tables and labelled lines that fit the width of the terminal. A table never wraps: first optional columns are left
 * out, then the widest text is cut. Without a width, as in a pipe, everything is printed whole.
 */
import type { Line, Span, Tone } from './style.ts';
import { cutTo, fold, widthOf } from './text-width.ts';

/**
 * `whole` is never cut: ids, states. `number` is not either, and aligned to the right. `text` may be cut, down to
 * `least` columns.
 */
export interface Column {
  readonly heading: string;
  readonly as: 'whole' | 'number' | 'text';
  readonly least?: number;
  /** Left out when there is no room for it; of several, the last one first. */
  readonly isOptional?: true;
}

const GAP = '  ';
/** A text column is not made narrower than this. */
const LEAST_COLUMNS = 8;

export function column(heading: string, as: Column['as'] = 'text', more: Partial<Column> = {}): Column {
  return { heading, as, ...more };
}

/** The rows may arrive in several parts: the columns stay as wide as they were, or become wider. */
export class Table {
  readonly #columns: readonly Column[];
  readonly #width: number | null;
  readonly #natural: number[];
  #hasHeading = true;

  /** `widths` are what most rows need, when they are printed one by one and without a heading. */
  constructor(columns: readonly Column[], width: number | null, widths?: readonly number[]) {
    this.#columns = columns;
    this.#width = width;
    this.#natural = widths === undefined ? columns.map(({ heading }) => heading.length) : [...widths];
    this.#hasHeading = widths === undefined;
  }

  /** The lines of these rows; the heading before the first of them. None without rows. */
  lines(rows: readonly (readonly Span[])[]): Line[] {
    if (rows.length === 0) return [];
    for (const cells of rows)
      cells.forEach(([text], index) => {
        this.#natural[index] = Math.max(this.#natural[index] ?? 0, widthOf(text));
      });
    const widths = fitted(this.#columns, this.#natural, this.#width);
    const heading = this.#columns.map((each): Span => [each.heading, 'dim']);
    const all = this.#hasHeading ? [heading, ...rows] : rows;
    this.#hasHeading = false;
    return all.map((cells) => this.#lineOf(cells, widths));
  }

  #lineOf(cells: readonly Span[], widths: readonly (number | null)[]): Line {
    const shown = cells.flatMap(([text, tone], index) => {
      const width = widths[index] ?? null;
      return width === null ? [] : [{ text, tone: tone ?? 'plain', width, as: this.#columns[index]!.as }];
    });
    const last = shown.findLastIndex(({ text }) => text !== '');
    const spans = shown.slice(0, last + 1).map(({ text, tone, width, as }, index): Span => {
      const cut = cutTo(text, width);
      const blank = ' '.repeat(width - widthOf(cut));
      const end = index === last ? '' : GAP;
      if (as === 'number') return [`${blank}${cut}${end}`, tone];
      return [index === last ? cut : `${cut}${blank}${end}`, tone];
    });
    return this.#width === null ? spans : cutLine(spans, this.#width);
  }
}

/** On a terminal that is too narrow even for the narrowest columns. */
function cutLine(line: Line, width: number): Line {
  let room = width;
  return line.flatMap(([text, tone = 'plain']): Span[] => {
    const cut = cutTo(text, room);
    room = cut === text ? room - widthOf(cut) : 0;
    return cut === '' ? [] : [[cut, tone]];
  });
}

/** The width of each column; null for one that is left out. */
function fitted(
  columns: readonly Column[],
  natural: readonly number[],
  width: number | null,
): (number | null)[] {
  const widths: (number | null)[] = columns.map((_, index) => natural[index] ?? 0);
  if (width === null) return widths;
  const leastOf = (index: number): number => {
    const { as, least = LEAST_COLUMNS } = columns[index]!;
    return as === 'text' ? Math.min(least, natural[index]!) : natural[index]!;
  };
  const narrowest = widths.map((_, index) => leastOf(index));
  const optional = columns.flatMap(({ isOptional }, index) => (isOptional ? [index] : []));
  while (total(narrowest.filter((_, index) => widths[index] !== null)) > width) {
    const left = optional.pop();
    if (left === undefined) break;
    widths[left] = null;
  }
  for (let excess = total(widths) - width; excess > 0; excess -= 1) {
    const widest = widestAbove(widths, narrowest);
    if (widest === undefined) break;
    widths[widest]! -= 1;
  }
  return widths;
}

function total(widths: readonly (number | null)[]): number {
  const shown = widths.filter((width) => width !== null);
  return shown.reduce((sum, width) => sum + width, 0) + GAP.length * Math.max(shown.length - 1, 0);
}

/** The widest column that may become narrower. */
function widestAbove(widths: readonly (number | null)[], least: readonly number[]): number | undefined {
  let widest: number | undefined;
  widths.forEach((width, index) => {
    if (width === null || width <= least[index]!) return;
    if (widest === undefined || width > widths[widest]!) widest = index;
  });
  return widest;
}

/** All rows of a table at once. */
export function tableOf(
  columns: readonly Column[],
  rows: readonly (readonly Span[])[],
  width: number | null,
): Line[] {
  return new Table(columns, width).lines(rows);
}

/** Lines whose last span is folded under its own beginning where it is too long for the terminal. */
export function folded(lines: readonly Line[], width: number | null): Line[] {
  return width === null ? [...lines] : lines.flatMap((line) => foldedLine(line, width));
}

function foldedLine(line: Line, width: number): Line[] {
  const before = line.slice(0, -1);
  const [text, tone = 'plain'] = line.at(-1) ?? [''];
  const indent = before.reduce((sum, [part]) => sum + widthOf(part), 0);
  if (width - indent < LEAST_COLUMNS) return [line];
  return fold(text, width - indent).map((part, index): Line => {
    return index === 0 ? [...before, [part, tone]] : [[' '.repeat(indent)], [part, tone]];
  });
}

const LABEL_COLUMNS = 11;
/** Columns before the text of a labelled line. */
export const INDENT_COLUMNS = LABEL_COLUMNS + 2;

/** One fact about a thing: its label, and its text. */
export function labelled(label: string, text: string, tone: Tone = 'plain'): Line {
  return [
    [`  ${label.padEnd(LABEL_COLUMNS)}`, 'dim'],
    [text, tone],
  ];
}
