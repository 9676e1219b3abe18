/**
 * The columns of a statement, declared once: what each is called in the record it belongs to, and the expression it comes from. The
 * SELECT list is made from the declaration, so the row that comes back is the record, and its type is the record's. Names are written
 * `s.ff_…` where an expression needs one of the schema's own.
 */
export interface Columns<Row> {
  readonly names: readonly string[];
  /** For the statement: each expression under its name. */
  readonly list: string;
  /** A type only: no object has it. */
  readonly row?: Row;
}

/** The record that columns make. */
export type RowOf<Declared> = Declared extends Columns<infer Row> ? Row : never;

/** An expression for every member of the record, and for nothing else. */
export function columns<Row>(expressions: Readonly<Record<keyof Row & string, string>>): Columns<Row> {
  const entries = Object.entries<string>(expressions);
  return {
    names: entries.map(([name]) => name),
    list: entries.map(([name, expression]) => `${expression} AS "${name}"`).join(', '),
  };
}

/** Members whose column has another name than theirs in snake case. */
const STORED_AS: Readonly<Record<string, string>> = { uuid: 'execution_id', partition: 'partition_key' };

/** Some members of a record, each from the column of its own name: `attemptIndex` from `attempt_index`, of the table or function `of`. */
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

/** Two parts of one list. */
export function withColumns<First, Second>(
  first: Columns<First>,
  second: Columns<Second>,
): Columns<First & Second> {
  return { names: [...first.names, ...second.names], list: `${first.list}, ${second.list}` };
}

/** Of a row that has more, the members of one record. */
export function partOf<Row>({ names }: Columns<Row>, row: Row): Row {
  const part: Partial<Row> = {};
  for (const name of names as readonly (keyof Row)[]) part[name] = row[name];
  return part as Row;
}

/** An id as the outside knows it; null where there is no uuid. */
export function idText(partition: string, uuid: string): string {
  return `'{fp:' || ${partition} || '}:' || ${uuid}`;
}

/** A statement, or a part of one, whose names are written `s.ff_…`, for one schema. */
export function inSchema({ prefix }: { prefix: string }, text: string): string {
  return text.replaceAll('s.ff_', `${prefix}ff_`);
}
