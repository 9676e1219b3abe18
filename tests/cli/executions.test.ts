/**
 * `flowfabric submit`, `describe`, `cancel`, `revoke-lease` and `workers list` against a real database and a real worker:
 * what they print, as text and as JSON, and how they exit.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { connect, handle, startWorker, task, TaskFailed, type Connection } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand, runProcess, startCommand } from './processes.ts';
import { workerPort } from '../../src/connect/port.ts';

const UNKNOWN = '{fp:12}:01890a5d-ac96-774b-bcce-b302099a8057';
const ID = /^\{fp:\d+\}:[0-9a-f-]{36}$/;

let database: TestDatabase;
let engine: Connection;

beforeAll(async () => {
  database = await plainDatabase();
  engine = await connect({ databaseUrl: database.url });
});

afterAll(async () => {
  await engine?.close();
  await database?.drop();
});

interface Answer {
  exitCode: number | null;
  output: string;
  errors: string;
}

function run(...args: string[]): Promise<Answer> {
  return runCommand({ args, databaseUrl: database.url });
}

/** The one object a command printed. */
async function json<Value>(...args: string[]): Promise<Value> {
  const { output } = await run(...args, '--json');
  expect(output.trimEnd().split('\n')).toHaveLength(1);
  return JSON.parse(output) as Value;
}

function lines(output: string): unknown[] {
  return output
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown);
}

/** Greets by name, and fails without a name. */
function startGreeter() {
  const greet = task<{ name: string }>('greet');
  const worker = startWorker(engine, {
    log: 'silent',
    workerId: 'greeter',
    handlers: [
      handle(greet, ({ name }) => {
        if (name === '') throw new TaskFailed('nobody\u001B[31m to greet', { retry: 'never' });
        return { greeting: `hello ${name}` };
      }),
    ],
  });
  onTestFinished(() => worker.stop());
  return worker;
}

describe('flowfabric submit', () => {
  it('prints the id, and nothing else', async () => {
    const { exitCode, output, errors } = await run('submit', 'idle');
    expect({ exitCode, errors }).toEqual({ exitCode: 0, errors: '' });
    expect(output.trimEnd()).toMatch(ID);
    expect(await engine.executions.describe(output.trimEnd())).toMatchObject({
      kind: 'idle',
      lane: 'default',
    });
  });

  it('passes every option on to the execution', async () => {
    const options = ['--lane', 'slow', '--priority', '7', '--namespace', 'shop', '--delay', '1h30m'];
    const tags = ['--tag', 'customer=42', '--tag', 'note=a=b'];
    const answer = await json('submit', 'idle', ...options, ...tags, '--id', UNKNOWN);
    expect(answer).toEqual({ executionId: UNKNOWN, outcome: 'submitted' });
    const found = await engine.executions.describe(UNKNOWN);
    expect(found).toMatchObject({
      lane: 'slow',
      priority: 7,
      namespace: 'shop',
      tags: { customer: '42', note: 'a=b' },
      state: 'delayed',
    });
    expect(found!.eligibleAtMs! - found!.createdAtMs).toBe(5_400_000);
  });

  it('notes that an id already exists, and succeeds', async () => {
    const { executionId } = await engine.executions.submit({ kind: 'idle' });
    const { exitCode, output, errors } = await run('submit', 'idle', '--id', executionId);
    expect({ exitCode, output }).toEqual({ exitCode: 0, output: `${executionId}\n` });
    expect(errors).toContain('already exists');
  });

  it('waits for the result with --wait, from JSON, a file or stdin', async () => {
    startGreeter();
    const directory = await mkdtemp(join(tmpdir(), 'flowfabric-cli-'));
    onTestFinished(() => rm(directory, { recursive: true, force: true }));
    const file = join(directory, 'input.json');
    await writeFile(file, '{ "name": "file" }\n');
    const waiting = ['submit', 'greet', '--wait', '--input'];
    const [typed, fromFile, fromStdin] = await Promise.all([
      run(...waiting, '{"name":"Ada"}'),
      run(...waiting, `@${file}`),
      runProcess({ args: [...waiting, '-'], databaseUrl: database.url, input: '{"name":"stdin"}' }),
    ]);
    expect(typed).toMatchObject({ exitCode: 0, output: '{"greeting":"hello Ada"}\n' });
    expect(fromFile).toMatchObject({ exitCode: 0, output: '{"greeting":"hello file"}\n' });
    expect(fromStdin).toMatchObject({ exitCode: 0, output: '{"greeting":"hello stdin"}\n' });
  });

  it('prints the submission and the outcome as one object with --wait --json', async () => {
    startGreeter();
    expect(await json('submit', 'greet', '--wait', '--input', '{"name":"Ada"}')).toEqual({
      executionId: expect.stringMatching(ID),
      outcome: 'submitted',
      end: { outcome: 'success', result: { greeting: 'hello Ada' } },
    });
  });

  it('exits with 1 when the execution failed', async () => {
    startGreeter();
    const { exitCode, output, errors } = await run('submit', 'greet', '--wait', '--input', '{"name":""}');
    expect({ exitCode, output }).toEqual({ exitCode: 1, output: '' });
    expect(errors).toMatch(/ended as failed: nobody.* to greet/);
    expect(errors).not.toContain('\u001B');
    const answer = await run('submit', 'greet', '--wait', '--json', '--input', '{"name":""}');
    expect(answer.exitCode).toBe(1);
    expect(JSON.parse(answer.output)).toMatchObject({ end: { outcome: 'failed' } });
  });

  it('exits with 124 when the time to wait is over, and the execution continues', async () => {
    const { exitCode, output, errors } = await run('submit', 'idle', '--wait', '--timeout', '1ms', '--json');
    expect(exitCode).toBe(124);
    const { executionId, end } = JSON.parse(output) as { executionId: string; end: null };
    expect(end).toBeNull();
    expect(errors).toContain('continues');
    expect(await engine.executions.result(executionId)).toMatchObject({ outcome: 'pending' });
  });

  it('exits with 130 when it is interrupted while it waits, and notes that the execution continues', async () => {
    const started = startCommand({ args: ['submit', 'idle', '--wait'], databaseUrl: database.url });
    await expect.poll(started.errors, PATIENCE).toContain('waiting for');
    started.child.kill('SIGINT');
    expect(await started.exitCode).toBe(130);
    expect(started.output()).toBe('');
    expect(started.errors()).toMatch(/Interrupted\. \{fp:.* continues/);
  });

  it.each([
    [['--input', '{"name":'], '--input must be JSON'],
    [['--input', '@no/such/file'], 'no/such/file cannot be read (ENOENT)'],
    [['--input', '-'], 'stdin is not JSON'],
    [['--tag', 'customer'], '--tag must be key=value'],
    [['--delay', '5'], '--delay must be a duration'],
    [['--priority', 'high'], '--priority must be a whole number'],
    [['--priority', '9001'], '--priority must be a whole number from 0 to 9000'],
    [['--id', 'mine'], '--id does not begin with {fp:'],
    [['--timeout', '5s'], '--timeout needs --wait.'],
    [['--wait', '--timeout', 'soon'], '--timeout must be a duration'],
    [['--lane', ''], 'lane'],
  ])('refuses %j with exit code 2', async (options, sentence) => {
    const { exitCode, output, errors } = await run('submit', 'idle', ...options);
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(sentence);
  });
});

describe('flowfabric describe', () => {
  it('explains what a waiting execution waits for', async () => {
    const { executionId } = await engine.executions.submit({ kind: 'idle', tags: { customer: '42' } });
    const { exitCode, output, errors } = await run('describe', executionId);
    expect({ exitCode, errors }).toEqual({ exitCode: 0, errors: '' });
    expect(output).toContain(`${executionId}  waiting`);
    expect(output).toMatch(/^ {2}why +No worker has sent a heartbeat in the last 30s\.$/m);
    expect(output).toContain('customer=42');
    expect(output).toMatch(/attempts +0 /);
    expect(output).not.toContain('\u001B');
  });

  it('never lets stored text move the cursor or reverse letters', async () => {
    const odd = 'a\u009B31mb\u202Ec\u001B[2Jd\u2066e';
    const { executionId } = await engine.executions.submit({
      kind: 'odd',
      namespace: odd,
      tags: { odd },
      payload: { odd },
    });
    // New lines are the command's own.
    const controls = /(?!\n)[\p{Cc}\u202A-\u202E\u2066-\u2069]/u;
    for (const args of [
      ['describe', executionId],
      ['list', '--kind', 'odd'],
      ['explain', executionId],
    ])
      expect((await run(...args)).output).not.toMatch(controls);
    const { output } = await run('describe', executionId, '--json');
    expect(output).not.toMatch(controls);
    expect(JSON.parse(output)).toMatchObject({ namespace: odd, tags: { odd } });
    expect((await run('describe', odd)).errors).not.toMatch(controls);
  });

  it('shows lease, progress, steps and parent of a running execution', async () => {
    const parent = await engine.executions.submit({ kind: 'parent' });
    const claimed = async (kind: string) => {
      const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: [kind], limit: 1, leaseMs: 60_000 };
      return expect
        .poll(async () => (await workerPort(engine).claim(request)).claims, PATIENCE)
        .toHaveLength(1);
    };
    await claimed('parent');
    const parentLease = { executionId: parent.executionId, attemptIndex: 0, leaseEpoch: 1 };
    const spawned = await workerPort(engine).spawn(parentLease, [{ kind: 'child' }]);
    if (spawned.outcome !== 'spawned') throw new Error(spawned.outcome);
    const { executionId } = spawned.children[0]!;
    await claimed('child');
    const lease = { executionId, attemptIndex: 0, leaseEpoch: 1 };
    await workerPort(engine).recordStep(lease, { name: 'one', value: 1 });
    await workerPort(engine).reportProgress(lease, { percent: 40, message: 'half\nway' });
    const { output } = await run('describe', executionId);
    expect(output).toMatch(
      /why +Worker w-1 is running it, but is not registered; its lease expires in \d+s unless/,
    );
    expect(output).toMatch(/lease +w \(w-1\) since/);
    expect(output).toMatch(/progress +40 %, half way at/);
    expect(output).toMatch(/steps +1\n +one +- +1$/m);
    expect(output).toContain(`parent     ${parent.executionId}`);
    expect(await json('describe', executionId)).toMatchObject({
      executionId,
      state: 'active',
      lease: { workerId: 'w' },
      stepCount: 1,
      parentId: parent.executionId,
      why: expect.stringContaining('Worker w-1 is running it'),
      result: null,
    });
  });

  it('shows how an execution ended and how its attempts failed', async () => {
    startGreeter();
    const good = await engine.executions.submit({ kind: 'greet', payload: { name: 'Ada' } });
    const bad = await engine.executions.submit({ kind: 'greet', payload: { name: '' } });
    await engine.executions.wait(good.executionId);
    await engine.executions.wait(bad.executionId);
    const shown = await run('describe', good.executionId);
    expect(shown.output).toContain('completed');
    expect(shown.output).toMatch(/why +It completed \d+m?s ago;/);
    expect(shown.output).toContain('{"greeting":"hello Ada"}');
    const failed = await run('describe', bad.executionId);
    expect(failed.output).toMatch(/why +It failed \d+m?s ago \(nobody/);
    expect(failed.output).toMatch(/input +\{"name":""\}/);
    expect(failed.output).toMatch(/failure +.*nobody/);
    expect(failed.output).toMatch(/^ +at .*executions\.test\.ts:\d+:\d+/m);
    expect(failed.output).toMatch(/1\. failed by /);
    expect(await json('describe', bad.executionId)).toMatchObject({
      state: 'failed',
      result: { outcome: 'failed' },
      attempts: [{ outcome: 'failed', failureDetail: { stack: expect.stringContaining('at ') } }],
      input: { name: '' },
      steps: { items: [], truncated: false },
      timeline: { items: [{ what: 'submitted' }, { what: 'attempts' }, { what: 'ended' }] },
    });
  });

  it('waits for the end with --watch where there is no terminal', async () => {
    const { executionId } = await engine.executions.submit({ kind: 'watched' });
    const shown = run('show', executionId, '--watch');
    const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: ['watched'], limit: 1, leaseMs: 60_000 };
    const port = workerPort(engine);
    const claim = await vi.waitUntil(async () => (await port.claim(request)).claims[0], PATIENCE);
    await port.complete(claim, 'done');
    const { exitCode, output } = await shown;
    expect(exitCode).toBe(0);
    expect(output).toContain(`${executionId}  completed`);
  });

  it('exits with 3 when there is no such execution', async () => {
    const { exitCode, output, errors } = await run('describe', UNKNOWN.replace('12', '13'));
    expect({ exitCode, output }).toEqual({ exitCode: 3, output: '' });
    expect(errors).toContain('[not_found]');
  });
});

describe('flowfabric steps', () => {
  it('lists steps with their values, in the order they were recorded', async () => {
    const { executionId } = await engine.executions.submit({ kind: 'stepped' });
    expect((await run('steps', executionId)).output).toContain('No steps yet.');
    const port = workerPort(engine);
    const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: ['stepped'], limit: 1, leaseMs: 60_000 };
    const claim = await vi.waitUntil(async () => (await port.claim(request)).claims[0], PATIENCE);
    await port.recordStep(claim, {
      name: 'load',
      key: '7',
      value: { a: 'x'.repeat(5_000) },
      durationMs: 1_200,
    });
    await port.recordStep(claim, { name: 'rest', sleepMs: 0 });
    const { output } = await run('steps', executionId);
    expect(output).toMatch(
      /^load \[7\] +step +1 +\S+Z +1s +\{"a":"x{5000}"\}\nrest +sleep +1 +\S+Z +- +slept$/m,
    );
    expect(lines((await run('steps', executionId, '--json')).output)).toMatchObject([
      { name: 'load', key: '7', kind: 'step', durationMs: 1_200, attemptIndex: 0 },
      { name: 'rest', kind: 'sleep', durationMs: null },
    ]);
  });

  it('exits with 3 when there is no such execution', async () => {
    const { exitCode, errors } = await run('steps', UNKNOWN.replace('12', '13'));
    expect(exitCode).toBe(3);
    expect(errors).toContain('[not_found]');
  });
});

describe('flowfabric cancel', () => {
  it('cancels, keeps the reason, and succeeds again the second time', async () => {
    const { executionId } = await engine.executions.submit({ kind: 'idle' });
    const first = await run('cancel', executionId, '--reason', 'sent twice', '--by', 'ada');
    expect(first).toEqual({ exitCode: 0, output: `${executionId}  cancelled\n`, errors: '' });
    expect(await engine.executions.result(executionId)).toMatchObject({ outcome: 'cancelled', by: 'ada' });
    const second = await run('cancel', executionId, '--reason', 'again');
    expect(second).toMatchObject({ exitCode: 0, output: `${executionId}  was already cancelled\n` });
    const shown = await run('describe', executionId);
    expect(shown.output).toMatch(/why +It was cancelled \d+m?s ago by ada \(sent twice\);/);
  });

  it('prints a line per id, and exits with the worst: 4 for one that had ended, 3 for an unknown one', async () => {
    startGreeter();
    const ended = await engine.executions.submit({ kind: 'greet', payload: { name: 'Ada' } });
    await engine.executions.wait(ended.executionId);
    const open = await engine.executions.submit({ kind: 'idle' });
    const missing = UNKNOWN.replace('12', '13');
    const ids = [open.executionId, missing, ended.executionId];
    const all = await run('cancel', ...ids, '--reason', 'r', '--json');
    expect(all.exitCode).toBe(4);
    expect(lines(all.output)).toEqual([
      { executionId: open.executionId, outcome: 'cancelled' },
      { executionId: missing, outcome: 'not_found' },
      { executionId: ended.executionId, outcome: 'not_active', terminalOutcome: 'success' },
    ]);
    const two = await run('cancel', open.executionId, missing, '--reason', 'r');
    expect(two.exitCode).toBe(3);
    expect(two.output).toContain(`${missing}  not cancelled: there is no such execution`);
  });
});

describe('flowfabric revoke-lease', () => {
  it('takes a running execution away from its worker, and is refused when none holds it', async () => {
    const { executionId } = await engine.executions.submit({ kind: 'held' });
    const revoke = (...args: string[]) => run('revoke-lease', executionId, '--reason', 'it hangs', ...args);
    const early = await revoke();
    expect(early).toMatchObject({
      exitCode: 4,
      output: `${executionId}  not revoked: no worker holds it (runnable)\n`,
    });
    const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: ['held'], limit: 1, leaseMs: 60_000 };
    await expect.poll(async () => (await workerPort(engine).claim(request)).claims, PATIENCE).toHaveLength(1);
    expect(await revoke('--by', 'ada')).toEqual({
      exitCode: 0,
      output: `${executionId}  revoked\n`,
      errors: '',
    });
    expect(await engine.executions.describe(executionId)).toMatchObject({ lease: null, reclaimCount: 1 });
    const unknown = await run('revoke-lease', UNKNOWN.replace('12', '13'), '--reason', 'r', '--json');
    expect(unknown.exitCode).toBe(3);
    expect(JSON.parse(unknown.output)).toMatchObject({ outcome: 'not_found' });
  });
});

describe('flowfabric workers list', () => {
  it('lists the registered workers, one object per line with --json', async () => {
    const none = await run('workers', 'list', '--json');
    expect(none).toMatchObject({ exitCode: 0, output: '' });
    expect(none.errors).toContain('no worker is running. Start one');
    const { workerInstanceId } = startGreeter();
    await expect.poll(() => engine.workers.list(), PATIENCE).toHaveLength(1);
    const text = await run('workers', 'list');
    expect(text).toMatchObject({ exitCode: 0, errors: '' });
    expect(text.output).toMatch(/^WORKER +INSTANCE +STATE +RUNNING +SEEN/);
    expect(text.output).toMatch(
      new RegExp(`^greeter +${workerInstanceId} +working +0/10 .* greet +all$`, 'm'),
    );
    const listed = await run('workers', 'list', '--json');
    expect(lines(listed.output)).toMatchObject([
      { workerInstanceId, workerId: 'greeter', kinds: ['greet'], lanes: null, stopping: false },
    ]);
  });
});
