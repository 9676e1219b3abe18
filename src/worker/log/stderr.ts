/**
 * The logger of a worker that was given none: one line to stderr for each entry, as text on a terminal and as JSON
 * elsewhere. It also writes what handlers log.
 */
import { Console } from 'node:console';
import { inspect, styleText } from 'node:util';
import { escapedControls, printable } from '../../contract/secrets.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import type { Logger } from '../../define/task-context.ts';
import { cutTo, shownText } from './cut.ts';
import type { Entry, EntrySink, Level } from './entry.ts';
import { FloodGate, type LeftOut } from './flood-gate.ts';
import { LOG_LIMITS } from './limits.ts';
import { shownError, type ShownError } from './shown-error.ts';
import { shortId } from './short-id.ts';

/** The part of process.stderr that is used. */
export type Output = Pick<NodeJS.WriteStream, 'write'> & { isTTY?: boolean };

const COLOURS = { debug: 'dim', info: 'green', warn: 'yellow', error: 'red' } as const;

/** Depth and width of the fields of `ctx.log` on a terminal. */
const SHOWN = {
  depth: 3,
  breakLength: Infinity,
  compact: true,
  maxArrayLength: 20,
  maxStringLength: LOG_LIMITS.text,
};

/** Writes entries and is a logger. */
export class StderrLog implements EntrySink, Logger {
  readonly #write: (line: string) => void;
  readonly #format: 'text' | 'json';
  readonly #coloured: boolean;
  readonly #gate = new FloodGate((leftOut) => this.#print(summaryOf(leftOut)));

  constructor(output: Output = process.stderr, env: NodeJS.ProcessEnv = process.env) {
    // A console ignores errors of its stream: a reader of stderr that went away must not end the process.
    const stream = output as NodeJS.WritableStream;
    const lines = new Console({ stdout: stream, stderr: stream, ignoreErrors: true, colorMode: false });
    this.#write = (line) => lines.error('%s', line);
    this.#format = output.isTTY === true ? 'text' : 'json';
    this.#coloured = output.isTTY === true && !env['NO_COLOR'] && env['TERM'] !== 'dumb';
  }

  write(entry: Entry): void {
    if (this.#gate.admits(entry)) this.#print(entry);
  }

  close(): void {
    this.#gate.close();
  }

  /** Not written by default, as with other loggers. */
  debug(_facts: object, _message?: string): void {
    return undefined;
  }

  info(facts: object, message?: string): void {
    this.#print(entryOf('info', facts, message));
  }

  warn(facts: object, message?: string): void {
    this.#print(entryOf('warn', facts, message));
  }

  error(facts: object, message?: string): void {
    this.#print(entryOf('error', facts, message));
  }

  #print(entry: Entry): void {
    this.#write(this.#format === 'json' ? jsonLine(entry) : this.#textLine(entry));
  }

  #textLine({ level, text }: Entry): string {
    const time = new Date().toTimeString().slice(0, 8);
    const label = level.padEnd(5);
    const line = cutTo(printable(text), LOG_LIMITS.line);
    if (!this.#coloured) return `${time} ${label} ${line}`;
    // Whether colours are wanted was decided above, for this output.
    const painted = (colour: 'dim' | (typeof COLOURS)[Level], part: string): string =>
      styleText(colour, part, { validateStream: false });
    return `${painted('dim', time)} ${painted(COLOURS[level], label)} ${line}`;
  }
}

/** What a handler logs. */
function entryOf(level: Level, facts: object, message: string | undefined): Entry {
  const { executionId, kind, attemptIndex, ...own } = facts as Record<string, unknown>;
  const about = { executionId, kind, attemptIndex };
  const shown = Object.keys(own).length === 0 ? '' : shownFacts(own);
  const subject = typeof kind === 'string' ? `${kind} ${shortId(executionId)}` : '';
  const text = [subject, shownText(String(message ?? '')), shown].filter((part) => part !== '').join(' ');
  return { level, msg: String(message ?? ''), fields: { ...about, ...own }, text };
}

function shownFacts(facts: Record<string, unknown>): string {
  const plain = Object.entries(facts).map(([name, value]) => [
    name,
    value instanceof Error ? shownError(value).text : value,
  ]);
  return shownText(inspect(Object.fromEntries(plain), SHOWN));
}

/** The host's time is a timestamp for readers; nothing is decided by it. */
function jsonLine({ level, msg, fields, error }: Entry): string {
  const head = { time: new Date().toISOString(), level, msg };
  const line = toJson({ ...head, ...fields, ...(error === undefined ? {} : { error: jsonError(error) }) });
  if (line !== undefined && line.length <= LOG_LIMITS.line) return line;
  const { executionId, kind, attemptIndex } = fields;
  return toJson({ ...head, executionId, kind, attemptIndex, leftOut: 'fields' }) ?? toJson(head)!;
}

/** Undefined for what cannot become JSON: a circle, a bigint, a toJSON that throws. */
function toJson(value: object): string | undefined {
  try {
    return escapedControls(JSON.stringify(value, jsonPart));
  } catch {
    return undefined;
  }
}

/** An error is read before its toJSON is: that of an HTTP client may contain the whole request. */
function jsonPart(this: unknown, key: string, part: unknown): unknown {
  const given = (this as Record<string, unknown>)[key];
  if (given instanceof Error) return jsonError(shownError(given));
  return typeof part === 'string' ? shownText(part) : part;
}

function jsonError({ name, message, at }: ShownError): object {
  return { name, message, at };
}

function summaryOf({ count, last, windowMs, mixed }: LeftOut): Entry {
  const { kind } = last.fields;
  const span = shortDuration(Math.max(windowMs, 1_000));
  const what = mixed ? 'of other kinds' : `like this: ${last.text}`;
  return {
    level: last.level,
    msg: 'Lines were left out.',
    fields: { count, windowMs: Math.round(windowMs), ...(mixed ? {} : { of: last.msg, kind }) },
    ...(mixed || last.error === undefined ? {} : { error: last.error }),
    text: `… and ${count.toLocaleString('en-US')} more in the last ${span} ${what}`,
  };
}
