/**
 * Writers and readers of streams in their own processes: started, read from, and gone by the end of the test whatever
 * happens.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { LeaseRef } from '../../../src/contract/protocol.ts';

const FIXTURE = fileURLToPath(new URL('../fixtures/stream-process.mjs', import.meta.url));

export interface StreamProcessOptions {
  url: string;
  name: string;
  /** Writes this many frames, under this lease or one it claims; a claimed execution it completes. */
  frames?: number;
  kind?: string;
  lease?: LeaseRef;
  /** Reads with this many tails of one execution. */
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
  /** The time by the clock of the process. */
  host?: number;
  begun?: number;
  /** A reader that has finished: the frames it saw, or only their digest. */
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

/** Call it inside a test: the process is killed when the test ends. */
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
