/**
 * Reads the values of options: JSON from the command line, a file or stdin; tags; numbers; durations. Malformed values
 * are UsageErrors that name the option; the engine decides whether a value is allowed.
 */
import { createReadStream } from 'node:fs';
import type { Readable } from 'node:stream';
import { durationMs } from '../contract/shape/duration.ts';
import { isEngineError } from '../contract/errors.ts';
import { LIMITS } from '../contract/limits.ts';
import type { OptionSpec } from './command.ts';
import { UsageError } from './exit-codes.ts';

/** JSON that people write has blanks in it; what is stored does not. */
const INPUT_BYTES_MAX = 8 * LIMITS.payloadBytes;

/** `@file`, `-` for stdin, or the JSON itself. */
export async function readInput(text: string, option: string): Promise<unknown> {
  if (text === '-') return parseJson(await readStdin(option), option, 'stdin');
  if (!text.startsWith('@')) return parseJson(text, option, 'it');
  const path = text.slice(1);
  return parseJson(await readAll(createReadStream(path), option, path), option, path);
}

export function readStdin(option: string): Promise<string> {
  return readAll(process.stdin, option, 'stdin');
}

function parseJson(text: string, option: string, source: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // Without the parser's own message: it quotes the input, which may contain secrets.
    throw new UsageError(`${option} must be JSON, @file or - for stdin; ${source} is not JSON.`);
  }
}

async function readAll(stream: Readable, option: string, source: string): Promise<string> {
  const chunks: Buffer[] = [];
  let bytes = 0;
  try {
    for await (const chunk of stream as AsyncIterable<Buffer>) {
      bytes += chunk.length;
      if (bytes > INPUT_BYTES_MAX)
        throw new UsageError(`${option}: ${source} has more than ${INPUT_BYTES_MAX} bytes.`);
      chunks.push(chunk);
    }
  } catch (error) {
    if (error instanceof UsageError) throw error;
    const code = (error as NodeJS.ErrnoException).code ?? 'unknown';
    throw new UsageError(`${option}: ${source} cannot be read (${code}).`);
  }
  return Buffer.concat(chunks).toString('utf8');
}

export function parseTags(pairs: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    pairs.map((pair) => {
      const at = pair.indexOf('=');
      if (at < 1) throw new UsageError(`--tag must be key=value, not ${JSON.stringify(pair)}.`);
      return [pair.slice(0, at), pair.slice(at + 1)];
    }),
  );
}

export interface Range {
  min: number;
  max: number;
}

export function parseWhole(text: string, option: string, { min, max }: Range): number {
  const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
  if (value >= min && value <= max) return value;
  throw new UsageError(`${option} must be a whole number from ${min} to ${max}.`);
}

export const DEFAULT_LIMIT = 50;
export const LIMIT_OPTION: OptionSpec = [
  '--limit <n>',
  `how many, 1 to ${LIMITS.listPage} (default: ${DEFAULT_LIMIT})`,
];

export function parseLimit(text: string | undefined): number {
  return text === undefined ? DEFAULT_LIMIT : parseWhole(text, '--limit', { min: 1, max: LIMITS.listPage });
}

export function parseDuration(text: string, option: string, maxMs: number): number {
  try {
    return durationMs(text, option, maxMs);
  } catch (error) {
    if (!isEngineError(error)) throw error;
    throw new UsageError(`${option} must be a duration such as 90s, 5m or 1h30m.`);
  }
}
