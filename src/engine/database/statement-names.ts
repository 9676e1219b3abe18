/**
 * Names for the statements of the engine's own pool. A named statement is parsed and planned once per connection; for a
 * short call that is a noticeable part of its cost. Only calls of one SQL function get a name: their plan is the same
 * whatever the parameters are, while that of other statements should fit theirs.
 *
 * A pooler in transaction mode may send a call to another server process, which does not know the name or knows it from
 * somebody else. The server then refuses the call before it runs. From then on the pool uses no names at all.
 */
import { createHash } from 'node:crypto';
import { sqlStateOf } from './errors.ts';

/** Most names of a pool, each of which is memory of every connection. All others are sent without one. */
export const MAX_STATEMENT_NAMES = 100;
const NAME_DIGITS = 24;
/** Without the `ff_` before it. */
const FUNCTION_NAME = /^[a-z_]+$/;

/**
 * How the server refuses a name: it does not exist, exists already, or belongs to a plan whose columns have changed since
 * (a migration has replaced the function). Nothing has happened: a statement that fails is rolled back.
 */
const REFUSALS: ReadonlySet<string | undefined> = new Set(['26000', '42P05', '0A000']);

export class StatementNames {
  readonly #start: string;
  readonly #names = new Map<string, string>();
  #isOff = false;

  /** `prefix` is that of the schema whose functions are called. */
  constructor(prefix: string) {
    this.#start = `FROM ${prefix}ff_`;
  }

  /** The name of a statement, or undefined if it is sent without one. */
  nameOf(text: string): string | undefined {
    if (this.#isOff) return undefined;
    const known = this.#names.get(text);
    if (known !== undefined) return known;
    if (this.#names.size >= MAX_STATEMENT_NAMES || !this.#isCall(text)) return undefined;
    // It depends on the text alone: whoever finds the name at a server process finds the same statement.
    const digits = createHash('sha256').update(text).digest('hex').slice(0, NAME_DIGITS);
    const name = `ff_${digits}`;
    this.#names.set(text, name);
    return name;
  }

  /** Whether a call failed because of its name. If so, no call has one from now on, and this one is to be repeated. */
  refusedBy(error: unknown): boolean {
    if (!REFUSALS.has(sqlStateOf(error))) return false;
    this.#isOff = true;
    this.#names.clear();
    return true;
  }

  /** A SELECT from one function, with nothing after the parenthesis that ends its arguments. */
  #isCall(text: string): boolean {
    const from = text.indexOf(this.#start);
    const open = text.indexOf('(', from);
    if (from < 0 || open < 0 || !FUNCTION_NAME.test(text.slice(from + this.#start.length, open)))
      return false;
    return closingOf(text, open) === text.length - 1;
  }
}

/** Where the parenthesis that opens at a position is closed; -1 if it is not. */
function closingOf(text: string, open: number): number {
  let depth = 0;
  for (let index = open; index < text.length; index += 1) {
    if (text[index] === '(') depth += 1;
    if (text[index] === ')') depth -= 1;
    if (depth === 0) return index;
  }
  return -1;
}
