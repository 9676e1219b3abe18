/**
 * Worker processes whose handlers use steps, sleeps and children, for the tests that kill them at a chosen statement:
 * started, read from, and gone by the end of the test whatever happens; and the effects of their steps.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { TestDatabase } from '../../../src/testing/test-database.ts';
import { patiently } from '../../setup/patience.ts';

const FIXTURE = fileURLToPath(new URL('../fixtures/task-process.mjs', import.meta.url));

/** The lease of these processes: nobody waits for it to expire, the database's clock is moved. */
export const LEASE_MS = 3_600_000;

/** How long one process may take to start, work and exit on a busy machine; nothing is timed by it. */
const PROCESS_LIMIT_MS = patiently(30_000);
/** For a test that starts about this many processes, one after another. */
export function timeFor(processes: number): { timeout: number } {
  return { timeout: processes * PROCESS_LIMIT_MS };
}

export interface TaskProcessOptions {
  url: string;
  mode: 'tenSteps' | 'threeSteps' | 'parent' | 'extender' | 'sleeper' | 'inbox';
  kinds: readonly string[];
  childKind?: string;
  /** Messages of one run. */
  runLength?: number;
  /** Kills itself when it receives this message. */
  dieAtMessage?: number;
  name: string;
  concurrency?: number;
  /** Stays in the middle of its work. */
  hold?: boolean;
  /** Prints every statement of the work; does not poll, and repairs nothing. */
  counted?: boolean;
  /** Kills itself instead of sending this statement, counted from 1. */
  dieAt?: number;
}

interface Said {
  ready?: string;
  started?: string;
  statement?: string;
  stats?: { released: number; completed: number; lost: number };
}

export interface TaskProcess {
  readonly said: readonly Said[];
  /** How it ended: the signal that killed it, its exit code, or undefined while it runs. */
  readonly fate: string | number | undefined;
  statements(): string[];
  started(): string[];
  /** Lets its handlers continue. */
  go(): void;
  terminate(): void;
  ended(): Promise<void>;
  /** Kills it with SIGKILL, and waits until it is gone. */
  kill(): Promise<void>;
}

/** Call it inside a test: the process is killed when the test ends. */
export function startTaskProcess(options: TaskProcessOptions): TaskProcess {
  const child = spawn(process.execPath, [FIXTURE, JSON.stringify(options)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const said: Said[] = [];
  const lines = createInterface({ input: child.stdout });
  lines.on('line', (line) => said.push(JSON.parse(line) as Said));
  child.stdin.on('error', () => undefined);
  const ended = Promise.all([once(child, 'exit'), once(lines, 'close')]).then(() => undefined);
  const fate = () => child.signalCode ?? child.exitCode ?? undefined;
  const kill = async (): Promise<void> => {
    if (fate() === undefined) child.kill('SIGKILL');
    await ended;
  };
  onTestFinished(kill);
  return {
    said,
    get fate() {
      return fate();
    },
    statements: () => said.flatMap(({ statement }) => statement ?? []),
    started: () => said.flatMap(({ started }) => started ?? []),
    go: () => void child.stdin.write('go\n'),
    terminate: () => void child.kill('SIGTERM'),
    ended: () => ended,
    kill,
  };
}

/** Runs the pieces of work with limited concurrency, because starting a process takes a processor. */
export async function inTurns<Item>(
  places: number,
  items: readonly Item[],
  work: (item: Item) => Promise<void>,
): Promise<void> {
  const left = [...items];
  const place = async (): Promise<void> => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: places }, place));
}

export async function createEffects(database: TestDatabase): Promise<void> {
  await database.query(
    `CREATE TABLE IF NOT EXISTS public.effect (
       id bigint GENERATED ALWAYS AS IDENTITY, execution_id text NOT NULL, step text NOT NULL, attempt integer NOT NULL)`,
  );
}

export interface Effect {
  id: number;
  step: string;
  attempt: number;
}

/** The effects of an execution's step bodies, in order. */
export async function effectsOf(database: TestDatabase, executionId: string): Promise<Effect[]> {
  const found = await database.query<Effect>(
    'SELECT id, step, attempt FROM public.effect WHERE execution_id = $1 ORDER BY id',
    [executionId],
  );
  return found.rows;
}
