/**
 * `flowfabric streams` against a real database: it follows what is written, continues from a cursor, and its exit code
 * says how the execution ended. How items look is tested beside the code.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { connect, type Connection } from '../../src/index.ts';
import type { Claim, FrameRequest } from '../../src/protocol/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand, startCommand } from './processes.ts';
import { workerPort } from '../../src/connect/port.ts';

let database: TestDatabase;
let engine: Connection;

beforeAll(async () => {
  database = await plainDatabase();
  engine = await connect({ databaseUrl: database.url, defaultPolicy: {} });
});

afterAll(async () => {
  await engine?.close();
  await database?.drop();
});

async function claim(kind: string): Promise<Claim> {
  const worker = { workerId: 'w', workerInstanceId: 'w-1', limit: 1, leaseMs: 600_000 };
  const claimed: Claim[] = [];
  await expect
    .poll(async () => {
      await workerPort(engine).fireTimers();
      claimed.push(...(await workerPort(engine).claim({ ...worker, kinds: [kind] })).claims);
      return claimed.length;
    }, PATIENCE)
    .toBe(1);
  return claimed[0]!;
}

async function running(kind: string, request: object = {}): Promise<Claim> {
  await engine.executions.submit({ kind, ...request });
  return claim(kind);
}

async function write(lease: Claim, ...frames: FrameRequest[]): Promise<void> {
  expect(await workerPort(engine).appendFrames(lease, frames)).toMatchObject({ outcome: 'appended' });
}

function start(...args: string[]) {
  return startCommand({ args: ['streams', 'tail', ...args], databaseUrl: database.url });
}

function run(...args: string[]) {
  return runCommand({ args: ['streams', ...args], databaseUrl: database.url });
}

interface Line {
  type: string;
  cursor: string;
  attemptIndex: number;
  reason?: string;
  frame?: { payload: unknown; encoding: string };
}

function lines(output: string): Line[] {
  return output
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as Line);
}

it('prints text as it is written, notes on stderr, and ends with the execution', async () => {
  const lease = await running('told');
  await write(lease, { payload: 'Dear ' });
  const started = start(lease.executionId);
  await expect.poll(started.output, PATIENCE).toBe('Dear ');
  await write(lease, { payload: 'Ada' }, { payload: { tokens: 2 } }, { payload: Buffer.from([1, 2, 3]) });
  await expect.poll(started.output, PATIENCE).toBe('Dear Ada\n{"tokens":2}\n');
  await workerPort(engine).complete(lease, null);
  expect(await started.exitCode).toBe(0);
  expect(started.output()).toBe('Dear Ada\n{"tokens":2}\n');
  expect(started.errors()).toBe(
    'flowfabric: 3 bytes of type event.\nflowfabric: attempt 1 ended: attempt_success.\n',
  );
});

it('continues after Ctrl-C from the printed cursor, over attempts, and fails with the execution', async () => {
  const policy = { retry: { maxRetries: 1, backoff: { type: 'fixed', delay: 0 } } };
  const first = await running('tried', { policy });
  await write(first, { payload: 'one' }, { payload: 'seen', mode: 'best_effort' });
  const started = start(first.executionId, '--json', '--mode', 'durable');
  await expect.poll(started.output, PATIENCE).toContain('one');
  started.child.kill('SIGINT');
  expect(await started.exitCode).toBe(130);
  const { command } = JSON.parse(started.errors()) as { command: string };
  expect(command).toContain(` --mode durable --from 0/`);

  await write(first, { payload: Buffer.from([0, 255]) });
  await workerPort(engine).fail(first, { message: 'not yet' });
  const second = await claim('tried');
  await write(second, { payload: 'two' });
  await workerPort(engine).fail(second, { message: 'never' });
  const words = command.split(' ').slice(2);
  expect(words[0]).toBe('tail');
  const rest = await run(...words.map((word) => word.replaceAll("'", '')), '--json');
  expect(rest.exitCode).toBe(1);
  expect(
    lines(rest.output).map(({ type, attemptIndex, reason, frame }) => [
      type,
      attemptIndex,
      reason ?? frame?.payload,
    ]),
  ).toEqual([
    ['frame', 0, 'AP8='],
    ['closed', 0, 'attempt_failure'],
    ['superseded', 0, undefined],
    ['frame', 1, 'two'],
    ['closed', 1, 'attempt_failure'],
  ]);
  expect(JSON.parse(rest.errors)).toMatchObject({ outcome: 'failed', reason: 'attempt_failure' });
});

it('prints what is there with read or --no-follow, and the command that continues', async () => {
  const lease = await running('asked');
  const none = await run('read', lease.executionId);
  expect(none).toEqual({ exitCode: 0, output: '', errors: '' });
  await write(lease, { payload: 'a' }, { payload: 'b', mode: 'best_effort' });
  const some = await run('tail', lease.executionId, '--no-follow', '--mode', 'durable', '--attempt', '1');
  expect({ ...some, errors: '' }).toEqual({ exitCode: 0, output: 'a', errors: '' });
  expect(some.errors).toMatch(
    /^continue with\n {2}flowfabric streams read '\S+' --attempt 1 --mode durable --from \d+-2\n$/,
  );
});

it('reports an execution that does not exist', async () => {
  const { exitCode, output, errors } = await run('tail', '{fp:12}:01890a5d-ac96-774b-bcce-b302099a8057');
  expect({ exitCode, output }).toEqual({ exitCode: 3, output: '' });
  expect(errors).toContain('[not_found]');
});
