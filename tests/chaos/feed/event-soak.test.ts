/**
 * A short soak of the event feed, as its users would run a long one: late, aborted and prepared writers, killed
 * sequencers, a crashed server and interrupted readers. The naive reader in the same run must lose events, or the run
 * has shown nothing.
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { expect, onTestFailed, onTestFinished, test } from 'vitest';
import { patiently } from '../../setup/patience.ts';

const SOAK = fileURLToPath(new URL('../../../bench/soak/events.mjs', import.meta.url));
const SECONDS = 5;
const LIMIT_MS = patiently(150_000);

/** Its exit code and output. When terminated, it takes its processes and its server with it. */
async function runSoak(): Promise<{ code: number | null; lines: string[] }> {
  const child = spawn(process.execPath, [SOAK, '--seconds', String(SECONDS), '--json'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  onTestFinished(async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
    await exited;
  });
  let printed = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    printed += text;
  });
  await once(child, 'close');
  return { code: child.exitCode, lines: printed.trimEnd().split('\n') };
}

test(
  'every reader gets every committed event once and in order, where the naive reader loses some',
  { timeout: LIMIT_MS },
  async () => {
    const { code, lines } = await runSoak();
    onTestFailed(() => console.log(lines.join('\n')));
    const result = JSON.parse(lines.at(-1)!) as Record<string, number>;
    expect(result).toMatchObject({
      lost: 0,
      duplicated: 0,
      inversions: 0,
      different: 0,
      gaps: 0,
      acknowledged_absent: 0,
      aborted_present: 0,
      torn: 0,
      faults: 0,
      readers: 8,
      crashes: 1,
    });
    expect(result.events).toBeGreaterThan(0);
    expect(result.sequencer_kills).toBeGreaterThan(0);
    expect(result.naive_lost).toBeGreaterThan(0);
    expect(code).toBe(0);
  },
);
