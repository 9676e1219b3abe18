/**
 * Runs the installed command as a person would: the compiled program in a process of its own, its output collected.
 * Whatever a test starts with it is gone when the test ends.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished } from 'vitest';
import { findProcess } from '../../src/embedded/liveness.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
export const PATIENCE = { timeout: 20_000, interval: 10 };

export interface Started {
  readonly child: ChildProcess;
  /** Everything written so far. */
  output(): string;
  errors(): string;
  /** The exit code, once it has ended and all output is in. */
  readonly exitCode: Promise<number | null>;
}

export interface StartOptions {
  args: string[];
  /** Absent: no DATABASE_URL at all. */
  databaseUrl?: string;
  cwd?: string;
  /** What stdin gives; absent: nothing. */
  input?: string;
  /** Variables besides. */
  env?: Record<string, string>;
}

export function startCommand({ args, databaseUrl, cwd, input, env: more }: StartOptions): Started {
  const { DATABASE_URL: _, ...env } = process.env;
  const child = spawn(process.execPath, [PROGRAM, ...args], {
    env: { ...env, ...more, ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }) },
    ...(cwd === undefined ? {} : { cwd }),
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  child.stdin.end(input);
  let output = '';
  let errors = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errors += text;
  });
  const exitCode = once(child, 'close').then(([code]) => code as number | null);
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await exitCode;
  });
  return { child, output: () => output, errors: () => errors, exitCode };
}

/** Runs it to its end. */
export async function runCommand(
  options: StartOptions,
): Promise<{ exitCode: number | null; output: string; errors: string }> {
  const started = startCommand(options);
  const exitCode = await started.exitCode;
  return { exitCode, output: started.output(), errors: started.errors() };
}

/** The process ids the demo names when it starts its workers. */
export function workerPids(output: string): number[] {
  return [...output.matchAll(/worker-\d \(pid (\d+)\)/g)].map(([, pid]) => Number(pid));
}

/** Waits until none of the processes runs any more. */
export async function expectGone(pids: readonly number[]): Promise<void> {
  await expect
    .poll(
      async () => (await Promise.all(pids.map(findProcess))).filter((found) => found !== undefined),
      PATIENCE,
    )
    .toEqual([]);
}
