/**
 * Where a command's output goes: results to stdout, everything else to stderr, either as text for people or as JSON for
 * programs, in colour where style.ts allows it. Nothing is decided here.
 */
import { isEngineError } from '../contract/errors.ts';
import { UsageError } from './exit-codes.ts';
import { columnsOf, styleFor, paint, type Line, type Output, type Style } from './style.ts';
import { escapedControls, withoutControls, withoutSecrets } from '../contract/secrets.ts';

export type Format = 'text' | 'json';

export interface Printer {
  readonly format: Format;
  /** The width of the terminal that results go to; null when they go elsewhere. */
  readonly columns: number | null;
  /** How results are written. */
  readonly style: Style;
  /** The result of a command: the object as JSON, or the lines. */
  result(value: unknown, lines: readonly Line[]): void;
  /** The result of a list: one object per line, or the lines. */
  list(values: readonly unknown[], lines: readonly Line[]): void;
  /** The same as `result`, on stderr: something beside the result that programs may read as well. */
  aside(value: unknown, lines: readonly Line[]): void;
  /** The command that continues from a cursor, after a line that introduces it. */
  next(sentence: string, cursor: string, command: string): void;
  /** Something worth knowing beside the result. */
  note(sentence: string): void;
  error(error: unknown): void;
}

export interface PrinterOptions {
  format: Format;
  env: NodeJS.ProcessEnv;
}

export function openPrinter({ format, env }: PrinterOptions): Printer {
  const write = (output: Output, value: unknown, lines: readonly Line[]): void => {
    const style = styleFor(output, env);
    const text =
      format === 'json'
        ? [escapedControls(JSON.stringify(value, bigAsText))]
        : lines.map((line) => paint(line, style));
    output.write(text.map((line) => `${line}\n`).join(''));
  };
  const complain = (text: string): void =>
    void process.stderr.write(`${withoutControls(withoutSecrets(text))}\n`);
  return {
    format,
    columns: columnsOf(process.stdout),
    style: styleFor(process.stdout, env),
    result: (value, lines) => write(process.stdout, value, lines),
    list(values, lines) {
      if (format === 'json') for (const value of values) write(process.stdout, value, []);
      else write(process.stdout, values, lines);
    },
    aside: (value, lines) => write(process.stderr, value, lines),
    next: (sentence, cursor, command) =>
      write(process.stderr, { cursor, command }, [[[sentence, 'dim']], [[`  ${command}`]]]),
    note: (sentence) => complain(`flowfabric: ${sentence}`),
    error(error) {
      const { code, message, hint } = explain(error);
      const detail = error instanceof UsageError ? error.detail : undefined;
      if (format === 'json')
        return complain(escapedControls(JSON.stringify({ error: { code, message, hint, ...detail?.json } })));
      complain(`flowfabric: ${message} [${code}]`);
      if (detail !== undefined) write(process.stderr, detail.json, detail.lines);
      if (hint !== null) complain(`hint: ${hint}`);
    },
  };
}

interface Explanation {
  code: string;
  message: string;
  hint: string | null;
}

const HINTS: Readonly<Record<string, string>> = {
  schema_missing: 'run `flowfabric migrate`, or name the schema with --schema',
  schema_newer: 'upgrade the package; `flowfabric doctor` shows more',
  permission_denied:
    'check user and password; the owner of the schema grants a role its rights with `flowfabric migrate --grant-to ROLE`',
  unavailable: 'check that the server runs and that --url or DATABASE_URL names it',
};

function explain(error: unknown): Explanation {
  const message = error instanceof Error ? error.message : String(error);
  const code = codeOf(error);
  return { code, message: withoutSecrets(message), hint: hintFor(error, code) };
}

function hintFor(error: unknown, code: string): string | null {
  if (!(error instanceof UsageError)) return HINTS[code] ?? null;
  return `\`${['flowfabric', error.command, '--help'].filter((word) => word !== undefined).join(' ')}\` has more`;
}

function codeOf(error: unknown): string {
  if (error instanceof UsageError) return error.detail?.code ?? 'usage';
  return isEngineError(error) ? error.code : 'error';
}

/** JSON has no such numbers. */
function bigAsText(_key: string, value: unknown): unknown {
  return typeof value === 'bigint' ? String(value) : value;
}
