/**
 * The demo as a person runs it: real worker processes, a real SIGKILL, and a clean machine afterwards.
 */
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { emptyDatabase } from '../setup/database.ts';
import { expectGone, PATIENCE, runProcess, startCommand, workerPids } from './processes.ts';
import { patiently } from '../setup/patience.ts';

const EXECUTIONS = 120;
const ARGS = ['demo', '--executions', String(EXECUTIONS)];
const TEST_LIMIT_MS = patiently(90_000);

let database: TestDatabase;

beforeAll(async () => {
  database = await emptyDatabase();
});

afterAll(async () => {
  await database.drop();
});

/** A number of the closing table. */
function closing(output: string, label: string): number {
  const found = new RegExp(`^  ${label} +([\\d,]+)`, 'm').exec(output);
  return Number(found?.[1]?.replaceAll(',', ''));
}

describe('flowfabric demo', { timeout: TEST_LIMIT_MS }, () => {
  it('loses nothing although a worker is killed while it holds leases', async () => {
    const { exitCode, output, errors } = await runProcess({ args: ARGS, databaseUrl: database.url });
    expect({ exitCode, errors }).toEqual({ exitCode: 0, errors: '' });
    expect(output).toMatch(/killed worker-2 \(SIGKILL\) holding [1-9]/);
    expect(output).toMatch(/worker-[13] took over \S+ \d+ from worker-2/);
    expect(closing(output, 'submitted')).toBe(EXECUTIONS);
    expect(closing(output, 'completed')).toBe(EXECUTIONS);
    expect(closing(output, 'taken over')).toBeGreaterThanOrEqual(1);
    expect(closing(output, 'retried')).toBeGreaterThanOrEqual(1);
    expect(closing(output, 'failed')).toBe(0);
    expect(closing(output, 'lost')).toBe(0);
    expect(output).toContain('nothing was lost');
    expect(workerPids(output)).toHaveLength(3);
    await expectGone(workerPids(output));
    // A pipe gets plain lines: neither colours nor cursor movements.
    expect(output).toMatch(/ of 120 done, \d+ running on [23] workers/);
    expect(output).not.toContain('\u001B');
  });

  it('cancels what is left and ends its workers when it is interrupted', async () => {
    const demo = startCommand({ args: ['demo'], databaseUrl: database.url });
    await expect.poll(demo.output, PATIENCE).toContain(' failed (');
    demo.child.kill('SIGINT');
    expect(await demo.exitCode).toBe(130);
    expect(demo.output()).toMatch(/Interrupted\. \d+ executions were cancelled\./);
    await expectGone(workerPids(demo.output()));
    const left = await database.query(
      `SELECT 1 FROM flowfabric_demo.ff_execution WHERE lifecycle_phase <> 'terminal'`,
    );
    expect(left.rowCount).toBe(0);
  });

  it('leaves no worker behind when it is killed, and the next demo finishes what was left', async () => {
    const demo = startCommand({ args: ['demo'], databaseUrl: database.url });
    await expect.poll(demo.output, PATIENCE).toContain(' failed (');
    demo.child.kill('SIGKILL');
    await expectGone(workerPids(demo.output()));
    const next = await runProcess({ args: ARGS, databaseUrl: database.url });
    expect(next.exitCode).toBe(0);
    expect(closing(next.output, 'completed')).toBe(EXECUTIONS);
    expect(next.output).toMatch(/\d+ executions left by an interrupted run were completed as well\./);
  });

  it('starts its own Postgres without DATABASE_URL, and stops it', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'flowfabric-demo-'));
    onTestFinished(() => rm(directory, { recursive: true, force: true, maxRetries: 3 }));
    await chmod(directory, 0o755);
    const demo = startCommand({ args: ARGS, cwd: directory });
    const pidFile = join(directory, '.flowfabric', 'postgres', 'pgdata', 'postmaster.pid');
    await expect.poll(demo.output, PATIENCE).toContain(' failed (');
    expect(existsSync(pidFile)).toBe(true);
    expect(await demo.exitCode).toBe(0);
    expect(existsSync(pidFile)).toBe(false);
    expect(closing(demo.output(), 'lost')).toBe(0);
  });
});
