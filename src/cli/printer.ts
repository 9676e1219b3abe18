/**
 * Where a command's words go: results to stdout, everything else to stderr, either as text for people or as JSON for
 * programs. Colours only where lookFor finds them wanted. Nothing is decided here.
 */
import { isEngineError } from '../contract/errors.ts';
import { UsageError } from './exit-codes.ts';
import { lookFor, paint, type Line, type Output, type Span } from './look.ts';
import { escapedControls, withoutControls, withoutSecrets } from './secrets.ts';

export type Format = 'text' | 'json';

export interface Printer {
  readonly format: Format;
  /** How wide the terminal is that results go to; null when they go elsewhere. */
  readonly columns: number | null;
  /** The answer of a command: the object as JSON, or the lines. */
  result(value: unknown, lines: readonly Line[]): void;
  /** Something beside the answer that programs may want to read as well: the same, on stderr. */
  aside(value: unknown, lines: readonly Line[]): void;
  /** Something worth knowing that is not the answer. */
  note(sentence: string): void;
  error(error: unknown): void;
}

export interface PrinterOptions {
  format: Format;
  env: NodeJS.ProcessEnv;
}

export function openPrinter({ format, env }: PrinterOptions): Printer {
  const write = (output: Output, value: unknown, lines: readonly Line[]): void => {
    const look = lookFor(output, env);
    const text =
      format === 'json' ? [escapedControls(JSON.stringify(value))] : lines.map((line) => paint(line, look));
    output.write(text.map((line) => `${line}\n`).join(''));
  };
  const complain = (text: string): void =>
    void process.stderr.write(`${withoutControls(withoutSecrets(text))}\n`);
  return {
    format,
    columns: (process.stdout.isTTY && process.stdout.columns) || null,
    result: (value, lines) => write(process.stdout, value, lines),
    aside: (value, lines) => write(process.stderr, value, lines),
    note: (sentence) => complain(`flowfabric: ${sentence}`),
    error(error) {
      const { code, message, hint } = explain(error);
      if (format === 'json') complain(escapedControls(JSON.stringify({ error: { code, message, hint } })));
      else complain(`flowfabric: ${message} [${code}]${hint === null ? '' : `\nhint: ${hint}`}`);
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
  schema_newer: 'upgrade the package; `flowfabric doctor` says more',
  permission_denied:
    'check user and password; a role that may log in is given its rights by `flowfabric migrate --grant-to ROLE`, run by the owner of the schema',
  unavailable: 'check that the server runs and that --url or DATABASE_URL names it',
  usage: '`flowfabric --help`, or `flowfabric <command> --help`',
};

function explain(error: unknown): Explanation {
  const message = error instanceof Error ? error.message : String(error);
  const code = codeOf(error);
  return { code, message: withoutSecrets(message), hint: HINTS[code] ?? null };
}

function codeOf(error: unknown): string {
  if (error instanceof UsageError) return 'usage';
  return isEngineError(error) ? error.code : 'error';
}

const GAP = '  ';

/** Columns side by side. Widths are kept in `widths`, so that later rows line up with those printed before. */
export function tableRows(rows: readonly (readonly Span[])[], widths: number[]): Line[] {
  for (const cells of rows) {
    cells.forEach(([text], column) => {
      widths[column] = Math.max(widths[column] ?? 0, text.length);
    });
  }
  return rows.map((cells) => {
    const last = cells.findLastIndex(([text]) => text !== '');
    return cells
      .slice(0, last + 1)
      .map(([text, tone = 'plain'], column) => [
        column === last ? text : `${text.padEnd(widths[column]!)}${GAP}`,
        tone,
      ]);
  });
}
