/**
 * `--key` on the command line: submitting by it, and naming an execution by it wherever an id is accepted.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, type Connection } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { testDatabase } from '../setup/database.ts';
import { runCommand } from './processes.ts';

let database: TestDatabase;
let engine: Connection;

beforeAll(async () => {
  database = await testDatabase();
  engine = await connect({ databaseUrl: database.url, reconcile: 'off', listen: 'off' });
});
afterAll(async () => {
  await engine?.close();
  await database?.drop();
});

const run = (...args: string[]) => runCommand({ args, databaseUrl: database.url });

async function json(...args: string[]): Promise<Record<string, unknown>> {
  const { output, errors, exitCode } = await run(...args, '--json');
  expect([exitCode, errors]).toEqual([0, '']);
  return JSON.parse(output) as Record<string, unknown>;
}

describe('submit --key', () => {
  it('attaches, refuses and replaces', async () => {
    const first = (await run('submit', 'pack', '--key', 'order-1')).output.trim();
    const again = await run('submit', 'pack', '--key', 'order-1');
    expect(again).toMatchObject({ exitCode: 0, output: `${first}\n` });
    expect(again.errors).toContain('has this key and has not ended; nothing was submitted');
    const refused = await run('submit', 'pack', '--key', 'order-1', '--if-exists', 'refuse');
    expect(refused).toMatchObject({ exitCode: 4, output: '' });
    expect(refused.errors).toContain(`not submitted: ${first} has this key`);
    const replacing = await run('submit', 'pack', '--key', 'order-1', '--if-exists', 'replace');
    expect(replacing.errors).toContain(`${first} had this key and was cancelled`);
    expect(await engine.executions.byKey('order-1')).toMatchObject({ executionId: replacing.output.trim() });
    const other = await run('submit', 'ship', '--key', 'order-1');
    expect(other.exitCode).toBe(4);
    expect(other.errors).toContain('key names an execution of another task');
  });

  it('refuses an id or --if-exists that does not fit', async () => {
    for (const args of [
      ['--if-exists', 'refuse'],
      ['--key', 'a', '--id', '{fp:0}:01890a5d-ac96-774b-bcce-b302099a8057'],
      ['--key', 'a', '--if-exists', 'ignore'],
      ['--key', '{fp:0}:01890a5d-ac96-774b-bcce-b302099a8057'],
    ])
      expect(await run('submit', 'pack', ...args)).toMatchObject({ exitCode: 2 });
  });

  it('submits nothing twice with --idempotency-key', async () => {
    const first = await run('submit', 'pack', '--idempotency-key', 'once');
    const again = await run('submit', 'pack', '--idempotency-key', 'once');
    expect(again.output).toBe(first.output);
    expect(again.errors).toContain('already exists');
  });
});

describe('--key in the place of an id', () => {
  it('names the execution for every command that takes one, before and after other arguments', async () => {
    const key = 'order-2';
    const { executionId } = await engine.executions.submit({ kind: 'pack', key, namespace: 'shop' });
    const named = ['--key', key, '--namespace', 'shop'];
    expect(await json('describe', ...named)).toMatchObject({ executionId, key });
    expect((await run('show', ...named)).output).toMatch(/key +order-2/);
    expect((await run('why', ...named)).exitCode).toBe(0);
    expect((await run('steps', ...named)).exitCode).toBe(0);
    expect(await json('tag', ...named, 'a=1', 'b=2')).toMatchObject({ tags: { a: '1', b: '2' } });
    expect(await json('tag', 'c=3', ...named)).toMatchObject({ tags: { a: '1', b: '2', c: '3' } });
    expect(await json('priority', '9', ...named)).toMatchObject({ executionId, outcome: 'changed' });
    expect((await run('waitpoints', 'list', ...named)).exitCode).toBe(0);
    expect((await run('approve', ...named, 'manager')).errors).toContain('manager');
    expect(await json('cancel', ...named, '--reason', 'test')).toEqual({ executionId, outcome: 'cancelled' });
    expect(await json('replay', ...named, '--reason', 'test')).toMatchObject({ executionId });
  });

  it('says that there is none', async () => {
    const { exitCode, errors } = await run('show', '--key', 'nobody');
    expect(exitCode).toBe(3);
    expect(errors).toContain('There is no execution with the key nobody in the namespace default.');
  });

  it('is refused beside an id, and a missing argument is named', async () => {
    const id = '01890a5d-ac96-774b';
    for (const args of [
      ['show', id, '--key', 'a'],
      ['cancel', id, '--key', 'a', '--reason', 'x'],
      ['approve', id, 'manager', '--key', 'a'],
    ]) {
      const { exitCode, errors } = await run(...args);
      expect(exitCode).toBe(2);
      expect(errors).toContain('Give an id or --key, not both.');
    }
    expect((await run('show')).errors).toContain("Missing required argument 'id'.");
    expect((await run('approve', '--key', 'a')).errors).toContain("Missing required argument 'waitpoint'.");
    expect((await run('show', id, '--namespace', 'a')).errors).toContain('--namespace needs --key.');
    expect((await run('flows', 'describe', '--key', 'a')).errors).toContain("nknown option '--key'");
  });

  it('appears in the help of these commands, with their usage', async () => {
    const { output } = await run('approve', '--help');
    expect(output).toContain('Usage: flowfabric approve [options] <id> <waitpoint>');
    expect(output).toContain('--key <key>');
  });
});
