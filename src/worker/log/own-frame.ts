/**
 * Where in the user's own code an error comes from: the first frame of its stack that is neither of Node, nor of a
 * package, nor of FlowFabric.
 */
import { relative, isAbsolute } from 'node:path';
import { fileURLToPath } from 'node:url';
import { LOG_LIMITS } from './limits.ts';
import { cutTo } from './cut.ts';

/** The folder of FlowFabric's own files. Undefined in a bundle, where they are in one file with the user's. */
const OWN_FOLDER = /^(file:.*\/)worker\/log\/own-frame\.[jt]s$/.exec(import.meta.url)?.[1];
const OWN_PATH = OWN_FOLDER === undefined ? undefined : fileURLToPath(OWN_FOLDER);

const POSITION = /(?:^\s*at (?:async )?|\()((?:file:|\/|[A-Za-z]:[\\/])[^<>]*?):(\d+):(\d+)\)?$/;

/** As `path:line:column`, relative to the working directory where that is shorter. Undefined without such a frame. */
export function ownFrame(thrown: unknown): string | undefined {
  try {
    const stack: unknown = thrown instanceof Error ? thrown.stack : undefined;
    return typeof stack === 'string' ? frameIn(stack) : undefined;
  } catch {
    return undefined;
  }
}

function frameIn(stack: string): string | undefined {
  const lines = stack
    .slice(0, LOG_LIMITS.stackLines * LOG_LIMITS.stackLine)
    .split('\n', LOG_LIMITS.stackLines);
  for (const line of lines) {
    const [, file, row, column] = POSITION.exec(line.slice(0, LOG_LIMITS.stackLine)) ?? [];
    if (file === undefined || isForeign(file)) continue;
    return `${cutTo(shownPath(file), LOG_LIMITS.path)}:${row}:${column}`;
  }
  return undefined;
}

/** Whether a line of a stack is a frame of the user's own code. */
export function isOwnFrame(line: string): boolean {
  const [, file] = POSITION.exec(line) ?? [];
  return file !== undefined && !isForeign(file);
}

function isForeign(file: string): boolean {
  if (/[\\/]node_modules[\\/]/.test(file)) return true;
  return OWN_FOLDER !== undefined && (file.startsWith(OWN_FOLDER) || file.startsWith(OWN_PATH!));
}

function shownPath(file: string): string {
  const path = file.startsWith('file:') ? fileURLToPath(file) : file;
  const near = relative(process.cwd(), path);
  return near === '' || near.startsWith('..') || isAbsolute(near) ? path : near;
}
