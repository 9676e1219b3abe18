/**
 * Runs the command line and collects its output: the compiled program in a separate process when the test is about the
 * process, otherwise in this one. Every process is ended with its test.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished } from 'vitest';
import { runProgram } from '../../src/cli/run.ts';
import { findProcess } from '../../src/embedded/liveness.ts';
import { patiently } from '../setup/patience.ts';

const PROGRAM = fileURLToPath(new URL('../../dist/cli/main.js', import.meta.url));
export const PATIENCE = { timeout: patiently(20_000), interval: 10 };

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
  /** In this process only: what is written goes to a terminal of this width. */
  columns?: number;
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

interface Ended {
  exitCode: number | null;
  output: string;
  errors: string;
}

/** Runs it until it exits, in a separate process. */
export async function runProcess(options: StartOptions): Promise<Ended> {
  const started = startCommand(options);
  const exitCode = await started.exitCode;
  return { exitCode, output: started.output(), errors: started.errors() };
}

let before: Promise<unknown> = Promise.resolve();

/** The same in this process, which is faster; one after the other, because all of them write to the same streams. */
export function runCommand(options: Omit<StartOptions, 'cwd' | 'input'>): Promise<Ended> {
  // It reads stdin, which this process does not own.
  if (options.args.includes('-')) return runProcess(options);
  const ended = before.then(() => runHere(options));
  before = ended.catch(() => undefined);
  return ended;
}

async function runHere({ args, databaseUrl, env, columns }: StartOptions): Promise<Ended> {
  const { DATABASE_URL: _, ...kept } = process.env;
  const own = process.env;
  process.env = { ...kept, ...env, ...(databaseUrl === undefined ? {} : { DATABASE_URL: databaseUrl }) };
  const [output, errors] = [caught(process.stdout, columns), caught(process.stderr, columns)];
  try {
    return { exitCode: await runProgram(args), output: output.text(), errors: errors.text() };
  } finally {
    output.release();
    errors.release();
    process.env = own;
  }
}

/** Collects what is written; release() restores the stream and removes the listeners added since. */
function caught(stream: NodeJS.WriteStream, width?: number): { text(): string; release(): void } {
  const { write, isTTY, columns } = stream;
  // Tests are told apart from a terminal even when they are started from one.
  Object.assign(stream, { isTTY: width !== undefined, columns: width });
  const listeners = new Set(stream.listeners('error'));
  let text = '';
  stream.write = ((chunk: string | Uint8Array) => {
    text += typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString();
    return true;
  }) as typeof write;
  return {
    text: () => text,
    release() {
      Object.assign(stream, { write, isTTY, columns });
      for (const listener of stream.listeners('error'))
        if (!listeners.has(listener)) stream.off('error', listener as () => void);
    },
  };
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
