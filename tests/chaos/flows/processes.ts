/**
 * Processes that work on one flow, to be killed at a chosen statement: started, listened to, and gone by the end of the test whatever
 * happens.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';

const FIXTURE = fileURLToPath(new URL('../fixtures/flow-process.mjs', import.meta.url));

export interface FlowProcessOptions {
  url: string;
  flowId: string;
  /** What kinds of members begin with; the rest is the member's name. */
  kind?: string;
  leaseMs?: number;
  /** Members to be claimed and ended, in order, some with all that follows. Without them the flow is cancelled. */
  steps?: readonly (readonly [name: string, end: 'complete' | 'fail', follows?: 'follows'])[];
  /** Kills itself instead of sending this statement, counted from 1. */
  dieAt?: number;
}

export interface FlowProcess {
  /** What killed it or its exit code, and the statements it named. */
  ended(): Promise<{ fate: string | number; statements: string[] }>;
}

/** Call it inside a test: the process does not outlive it. */
export function startFlowProcess(options: FlowProcessOptions): FlowProcess {
  const child = spawn(process.execPath, [FIXTURE, JSON.stringify(options)], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const statements: string[] = [];
  const lines = createInterface({ input: child.stdout });
  lines.on('line', (line) => statements.push((JSON.parse(line) as { statement: string }).statement));
  child.stdin.on('error', () => undefined);
  const gone = Promise.all([once(child, 'exit'), once(lines, 'close')]);
  onTestFinished(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL');
    await gone;
  });
  return {
    async ended() {
      await gone;
      return { fate: child.signalCode ?? child.exitCode!, statements };
    },
  };
}
