/**
 * Worker processes for the tests that kill them: started, read from, and gone by the end of the test whatever happens.
 * They run the compiled package, because not every supported version of Node runs TypeScript.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished } from 'vitest';
import { SOON } from '../worker/crew.ts';

const FIXTURE = fileURLToPath(new URL('./fixtures/worker-process.mjs', import.meta.url));

export interface WorkerProcessOptions {
  url: string;
  kind: string;
  mode: 'hold' | 'work';
  concurrency: number;
  leaseMs: number;
  name: string;
}

interface Said {
  stats?: { released: number; completed: number };
  ready?: string;
  started?: string;
  answers?: string[];
  aborted?: boolean;
}

export interface WorkerProcess {
  readonly pid: number;
  readonly said: Said[];
  /** The worker instance, once the process is ready. */
  ready(): Promise<string>;
  signal(name: 'SIGKILL' | 'SIGSTOP' | 'SIGCONT' | 'SIGTERM'): void;
  /** Its exit code, once it is gone. */
  ended(): Promise<number | null>;
  /** Lets its handlers continue. */
  go(): void;
  /** Kills it, frozen or not, and waits until it is gone. */
  kill(): Promise<void>;
  /** Lets it finish its running work, and waits until it is gone. */
  finish(): Promise<void>;
}

/** Call it inside a test: the process is killed when the test ends. */
export function startWorkerProcess(options: WorkerProcessOptions): WorkerProcess {
  const child = spawn(process.execPath, [FIXTURE, JSON.stringify(options)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const said: Said[] = [];
  createInterface({ input: child.stdout }).on('line', (line) => said.push(JSON.parse(line) as Said));
  child.stdin.on('error', () => undefined);
  const exited = once(child, 'exit');
  const kill = async (): Promise<void> => {
    if (isRunning(child)) child.kill('SIGKILL');
    await exited;
  };
  onTestFinished(kill);
  return {
    pid: child.pid!,
    said,
    ended: async () => (await exited)[0] as number | null,
    async ready() {
      await expect.poll(() => said.some((item) => item.ready !== undefined), SOON).toBe(true);
      return said.find((item) => item.ready !== undefined)!.ready!;
    },
    signal: (name) => void child.kill(name),
    go: () => void child.stdin.write('go\n'),
    kill,
    async finish() {
      child.stdin.end();
      await exited;
    },
  };
}

function isRunning(child: ChildProcess): boolean {
  return child.exitCode === null && child.signalCode === null;
}
