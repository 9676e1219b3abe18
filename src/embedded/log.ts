/**
 * The log file of the server and of initdb, beside the data. It is the child's output stream, so that a server that
 * outlives its starter can still write. It is read only to explain a failed start.
 */

import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import type { Home } from './home.ts';

const LOG_LIMIT_BYTES = 8 * 1024 * 1024; // a longer log is emptied at the next start
const TAIL_BYTES = 8 * 1024;
const TAIL_LINES = 15;

export interface OpenLog {
  readonly file: FileHandle;
  /** Where the output of the next child begins. */
  readonly offset: number;
}

/** Opens the log for a child. The caller closes it once the child has inherited it. */
export async function openLog(home: Home): Promise<OpenLog> {
  // Root may write into another user's directory: a link planted there must not be followed.
  const { O_WRONLY, O_APPEND, O_CREAT, O_NOFOLLOW = 0 } = constants;
  const file = await open(home.log, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW, 0o600);
  const { size } = await file.stat();
  if (size <= LOG_LIMIT_BYTES) return { file, offset: size };
  await file.truncate(0);
  return { file, offset: 0 };
}

/** The last lines written since the offset. */
export async function lastLines(home: Home, offset: number): Promise<string> {
  const file = await open(home.log, 'r');
  try {
    const { size } = await file.stat();
    const from = Math.max(offset, size - TAIL_BYTES);
    const buffer = Buffer.alloc(Math.max(0, size - from));
    const { bytesRead } = await file.read(buffer, 0, buffer.length, from);
    const lines = buffer.toString('utf8', 0, bytesRead).trim().split('\n');
    return lines.slice(-TAIL_LINES).join('\n');
  } finally {
    await file.close();
  }
}
