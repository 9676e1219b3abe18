/**
 * What can be known about another process from its id: whether it lives, when it started and what it runs. A pid alone
 * is never trusted, because pids are reused. Files and locks built on this are in markers.ts.
 */

import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { basename } from 'node:path';
import { promisify } from 'node:util';
import { systemCode } from './unavailable.ts';

export interface LiveProcess {
  /** Start time in a machine-specific form; empty when unknown. */
  readonly started: string;
  /** Program name; empty when unknown. */
  readonly program: string;
}

const run = promisify(execFile);
const PS_LIMIT_MS = 5_000;
const STAT_START_FIELD = 19; // counted after the program name, which may itself contain spaces

/** The process with this id, or undefined when there is none. A zombie counts as gone. */
export async function findProcess(pid: number): Promise<LiveProcess | undefined> {
  if (!exists(pid)) return undefined;
  if (process.platform === 'win32') return { started: '', program: '' };
  return process.platform === 'linux' ? fromProc(pid) : fromPs(pid);
}

function exists(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return systemCode(error) === 'EPERM';
  }
}

async function fromProc(pid: number): Promise<LiveProcess | undefined> {
  const text = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  // Hidden or just gone: checking the id itself decides.
  if (text === undefined) return exists(pid) ? { started: '', program: '' } : undefined;
  const nameEnd = text.lastIndexOf(')');
  const fields = text.slice(nameEnd + 2).split(' ');
  if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
  return {
    started: fields[STAT_START_FIELD] ?? '',
    program: text.slice(text.indexOf('(') + 1, nameEnd),
  };
}

async function fromPs(pid: number): Promise<LiveProcess | undefined> {
  const options = { timeout: PS_LIMIT_MS, env: { ...process.env, LC_ALL: 'C' } };
  try {
    const seen = await run('ps', ['-o', 'stat=,lstart=,comm=', '-p', String(pid)], options);
    const [state = '', ...rest] = seen.stdout.trim().split(/\s+/);
    if (state === '' || state.startsWith('Z')) return undefined;
    return {
      started: rest.slice(0, 5).join('').replaceAll(/\W/g, ''),
      program: basename(rest.slice(5).join(' ')),
    };
  } catch {
    return exists(pid) ? { started: '', program: '' } : undefined;
  }
}
