/**
 * Processes that work on one flow or one family, to be killed at a chosen statement: started, read from, and gone by the end of the
 * test whatever happens.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';

const FIXTURE = fileURLToPath(new URL('../fixtures/flow-process.mjs', import.meta.url));

export interface FlowProcessOptions {
  url: string;
  flowId?: string;
  /** How many to spawn, before their parent is ended and they with it. */
  children?: number;
  /** Prefix of the members' kinds; the rest is the member's name. */
  kind?: string;
  leaseMs?: number;
  /** Members to claim and end, in order, some with all consequences. Without them the flow is cancelled. */
  steps?: readonly (readonly [name: string, end: 'complete' | 'fail', follows?: 'follows'])[];
  /** Kills itself instead of sending this statement, counted from 1. */
  dieAt?: number;
}

export interface FlowProcess {
  /** The signal that killed it or its exit code, and the statements it printed. */
  ended(): Promise<{ fate: string | number; statements: string[] }>;
}

/** Call it inside a test: the process is killed when the test ends. */
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
