/**
 * The columns of a statement, declared once: the key of each in its record, and the expression it comes from. The
 * SELECT list is built from the declaration, so the row that comes back is the record and has its type. An expression
 * refers to tables and functions of the schema as `s.ff_…`.
 */
export interface Columns<Row> {
  readonly names: readonly string[];
  /** The SELECT list: each expression under its name. */
  readonly list: string;
  /** Exists as a type only. */
  readonly row?: Row;
}

/** The record that the columns form. */
export type RowOf<Declared> = Declared extends Columns<infer Row> ? Row : never;

/** Takes an expression for every key of the record, and for nothing else. */
export function columns<Row>(expressions: Readonly<Record<keyof Row & string, string>>): Columns<Row> {
  const entries = Object.entries<string>(expressions);
  return {
    names: entries.map(([name]) => name),
    list: entries.map(([name, expression]) => `${expression} AS "${name}"`).join(', '),
  };
}

/** Keys whose column is not simply their snake-case name. */
const STORED_AS: Readonly<Record<string, string>> = { uuid: 'execution_id', partition: 'partition_key' };

/**
 * Some keys of a record, each from the column of the same name (`attemptIndex` from `attempt_index`) of the table or
 * function `of`.
 */
export function columnsOf<Whole>(of = '') {
  return <Name extends keyof Whole & string>(...names: Name[]): Columns<Pick<Whole, Name>> => {
    const prefix = of === '' ? '' : `${of}.`;
    const stored = (name: string): string =>
      STORED_AS[name] ?? name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
    return {
      names,
      list: names.map((name) => `${prefix}${stored(name)} AS "${name}"`).join(', '),
    };
  };
}

/** Joins two lists of columns. */
export function withColumns<First, Second>(
  first: Columns<First>,
  second: Columns<Second>,
): Columns<First & Second> {
  return { names: [...first.names, ...second.names], list: `${first.list}, ${second.list}` };
}

/** Picks the keys of one record from a row that has more. */
export function partOf<Row>({ names }: Columns<Row>, row: Row): Row {
  const part: Partial<Row> = {};
  for (const name of names as readonly (keyof Row)[]) part[name] = row[name];
  return part as Row;
}

/** An id in its public form; null where there is no uuid. */
export function idText(partition: string, uuid: string): string {
  return `'{fp:' || ${partition} || '}:' || ${uuid}`;
}

/**
 * A text that depends on the schema alone, for statements that are sent all the time: it is built once, and being the
 * same string each time it is recognised without being read. Of several schemas the last one used is kept.
 */
export function textInSchema(build: (prefix: string) => string): (database: { prefix: string }) => string {
  let known = '';
  let text = '';
  return ({ prefix }) => {
    if (prefix !== known) [known, text] = [prefix, build(prefix)];
    return text;
  };
}

/** Replaces `s.ff_…` in a statement, or a part of one, by the names in this schema. */
export function inSchema({ prefix }: { prefix: string }, text: string): string {
  return text.replaceAll('s.ff_', `${prefix}ff_`);
}
