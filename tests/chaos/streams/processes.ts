/**
 * Writers and readers of streams in processes of their own: started, listened to, and gone by the end of the test whatever happens.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { LeaseRef } from '../../../src/contract/engine.ts';

const FIXTURE = fileURLToPath(new URL('../fixtures/stream-process.mjs', import.meta.url));

export interface StreamProcessOptions {
  url: string;
  name: string;
  /** Writes so many frames, under this lease or one it claims; what it claimed it completes. */
  frames?: number;
  kind?: string;
  lease?: LeaseRef;
  /** Reads: so many tails of one execution. */
  readers?: number;
  executionId?: string;
}

export interface SeenFrame {
  attempt: number;
  id: string;
  payload: string;
}

interface Said {
  acknowledged?: { id: string; payload: string };
  /** What the host of the process takes for the time. */
  host?: number;
  begun?: number;
  /** A reader at its end: what it saw, or what that comes to. */
  reader?: number;
  digest?: string;
  seen?: SeenFrame[];
}

export interface StreamProcess {
  readonly said: readonly Said[];
  acknowledged(): string[];
  /** Its exit code, or the signal that killed it. */
  ended(): Promise<number | string>;
  kill(): Promise<void>;
}

/** Call it inside a test: the process does not outlive it. */
export function startStreamProcess(
  options: StreamProcessOptions,
  env: Record<string, string> = {},
): StreamProcess {
  const child = spawn(process.execPath, [FIXTURE, JSON.stringify(options)], {
    stdio: ['pipe', 'pipe', 'inherit'],
    env: { ...process.env, ...env },
  });
  const said: Said[] = [];
  const lines = createInterface({ input: child.stdout });
  lines.on('line', (line) => said.push(JSON.parse(line) as Said));
  child.stdin.on('error', () => undefined);
  const gone = Promise.all([once(child, 'exit'), once(lines, 'close')]);
  const kill = async (): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    await gone;
  };
  onTestFinished(kill);
  return {
    said,
    acknowledged: () => said.flatMap(({ acknowledged }) => acknowledged?.payload ?? []),
    async ended() {
      await gone;
      return child.signalCode ?? child.exitCode!;
    },
    kill,
  };
}
