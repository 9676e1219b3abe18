/**
 * `flowfabric list`, `explain`, `replay`, `change-priority`, `set-tags`, `lanes` and `describe --attempts` against a real
 * database: what they print, as text and as JSON, and how they exit. Filters in place of ids have a file of their own.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, type Connection } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand, runProcess } from './processes.ts';
import { workerPort } from '../../src/connect/port.ts';

const UNKNOWN = '{fp:12}:01890a5d-ac96-774b-bcce-b302099a8057';
const NOWHERE = 'postgres://nobody@127.0.0.1:1/nothing';
const WORKER = { workerId: 'w', workerInstanceId: 'w-1' };

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

function run(...args: string[]) {
  return runCommand({ args, databaseUrl: database.url });
}

function lines<Value>(output: string): Value[] {
  const text = output.trimEnd();
  return text === '' ? [] : text.split('\n').map((line) => JSON.parse(line) as Value);
}

async function submit(kind: string, request: object = {}): Promise<string> {
  return (await engine.executions.submit({ kind, ...request })).executionId;
}

/** Claims the one waiting execution of this kind. */
async function claim(kind: string) {
  const request = { ...WORKER, kinds: [kind], limit: 1, leaseMs: 600_000 };
  let [lease] = (await workerPort(engine).claim(request)).claims;
  await expect
    .poll(async () => {
      lease ??= (await workerPort(engine).claim(request)).claims[0];
      return lease;
    }, PATIENCE)
    .toBeDefined();
  return lease!;
}

async function failed(kind: string, message: string, request: object = {}): Promise<string> {
  const executionId = await submit(kind, request);
  await workerPort(engine).fail(await claim(kind), { message, retry: 'never' });
  return executionId;
}

describe('flowfabric list', () => {
  it('prints a table whose last column has what matters: worker, time or failure', async () => {
    const tags = { list: 'table' };
    const bad = await failed('broken', `no\u001B[31m\nluck ${'x'.repeat(200)}`, { tags });
    const active = await submit('running', { tags });
    await claim('running');
    const delayed = await submit('later', { tags, delay: 3_600_000 });
    const waiting = await submit('idle', { tags, priority: 7, lane: 'slow' });
    const { exitCode, output, errors } = await run('list', '--tag', 'list=table');
    expect({ exitCode, errors }).toEqual({ exitCode: 0, errors: '' });
    const [heading, ...rows] = output.trimEnd().split('\n');
    expect(heading).toMatch(/^ID +STATE +TASK +LANE +AGE +ATTEMPT +DETAIL$/);
    expect(rows).toHaveLength(4);
    const rowOf = (id: string): string => rows.find((row) => row.startsWith(id))!.slice(id.length);
    expect(rowOf(waiting)).toMatch(/^ +waiting +idle +slow +\d+\w+ +1 +priority 7$/);
    expect(rowOf(delayed)).toMatch(/^ +delayed +later +default +\d+\w+ +1 +due in 59m59s$/);
    expect(rowOf(active)).toMatch(/^ +active +running +default +\d+\w+ +1 +on w-1$/);
    expect(rowOf(bad)).toMatch(/^ +failed +broken +default +\d+\w+ +1 +permanent: no \[31m luck x{200}$/);
    expect(output).not.toContain('\u001B');
  });

  it('prints an object per line with --json, and on stderr the command that continues', async () => {
    const ids = [];
    for (let left = 3; left > 0; left -= 1) ids.push(await submit('paged', { lane: 'pages' }));
    const filter = ['--lane', 'pages', '--created-after', '1h', '--state', 'waiting'];
    const first = await run('list', ...filter, '--limit', '2', '--json');
    const found = lines<{ executionId: string; state: string }>(first.output);
    expect(found).toMatchObject([{ state: 'waiting' }, { state: 'waiting' }]);
    const { cursor, command } = JSON.parse(first.errors) as { cursor: string; command: string };
    // An age is another time a moment later; the cursor is valid only for the time it was read as.
    expect(command).toMatch(/^flowfabric list .*--created-after \d{4}-\S+Z .*--cursor \S+$/);
    expect(command).toContain(cursor);
    const second = await run(...command.split(' ').slice(1), '--json');
    expect(second).toMatchObject({ exitCode: 0, errors: '' });
    found.push(...lines<(typeof found)[0]>(second.output));
    expect(found.map(({ executionId }) => executionId).toSorted()).toEqual(ids.toSorted());
    const all = await run('list', '--lane', 'pages', '--all');
    expect(all).toMatchObject({ exitCode: 0, errors: '' });
    expect(all.output.trimEnd().split('\n')).toHaveLength(4);
  });

  it('filters by part of a failure message, by parent and by age', async () => {
    const id = await failed('declined', 'card declined: 4242');
    const parent = await submit('family');
    const lease = await claim('family');
    const spawned = await workerPort(engine).spawn(lease, [{ kind: 'child' }]);
    if (spawned.outcome !== 'spawned') throw new Error(spawned.outcome);
    const child = spawned.children[0]!.executionId;
    const [byFailure, byParent, none] = await Promise.all([
      run('list', '--error-contains', 'declined: 42', '--ended-after', '1h', '--json'),
      run('list', '--parent', parent, '--json'),
      run('list', '--kind', 'declined', '--created-before', '1h'),
    ]);
    expect(lines(byFailure.output)).toMatchObject([{ executionId: id, failure: { category: 'permanent' } }]);
    expect(lines(byParent.output)).toMatchObject([{ executionId: child, parentId: parent }]);
    expect(none).toEqual({
      exitCode: 0,
      output: '',
      errors: expect.stringContaining('no execution matches.'),
    });
  });
});

describe('an invalid value', () => {
  const cases: [string[], string][] = [
    [['list', '--state', 'faild'], '--state must be one of active, waiting'],
    [['list', '--created-after', 'yesterday'], '--created-after must be an age such as 90s, 2h or 7d'],
    [
      ['list', '--created-after', '1h', '--created-before', '2h'],
      '--created-before must be later than --created-after',
    ],
    [['list', '--state', 'waiting', '--error-contains', 'x'], '--error-contains requires terminal states'],
    [['list', '--tag', 'a=1', '--tag', 'a=2'], '--tag names a key twice'],
    [['list', '--parent', 'me'], '--parent must be {fp:N}:<uuid>, or the beginning of its uuid'],
    [['list', '--limit', '0'], '--limit must be a whole number from 1 to 1000.'],
    [['list', '--cursor', 'abc'], '--cursor is malformed.'],
    [['set-tags', UNKNOWN, 'customer'], 'A tag must be key=value, not "customer".'],
    [['change-priority', 'high', UNKNOWN], 'The priority must be a whole number from 0 to 9000.'],
    [['replay', UNKNOWN], `Required option '--reason <text>' not specified.`],
    [['replay', UNKNOWN, '--reason', 'r', '--from', 'end'], '--from must be one of failed_step, start.'],
    [['replay', UNKNOWN, '--reason', 'r', '--step-key', 'k'], '--step-key needs --from-step.'],
    [
      ['replay', UNKNOWN, '--reason', 'r', '--from', 'start', '--from-step', 's'],
      'Give either --from or --from-step.',
    ],
    [['list', '--descendants'], '--descendants requires --parent'],
  ];

  it.each(cases)('is refused in %j with exit code 2 and a message that names it', async (args, sentence) => {
    const { exitCode, output, errors } = await run(...args);
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(sentence);
  });
});

describe('every command for operators', () => {
  it('exits with 69 when the database is unreachable', async () => {
    const calls = [
      ['list', '--created-after', '1h'],
      ['explain', UNKNOWN],
      ['set-tags', UNKNOWN, 'a=b'],
      ['lanes'],
    ];
    const answers = await Promise.all(calls.map((args) => runProcess({ args, databaseUrl: NOWHERE })));
    for (const { exitCode, errors } of answers) {
      expect(exitCode).toBe(69);
      expect(errors).toMatch(/^flowfabric: While .* \[unavailable\]$/m);
    }
  });
});

describe('flowfabric lanes', () => {
  it('lists lanes, pauses one and resumes it; explain names the pause and the command that helps', async () => {
    const id = await submit('letter', { lane: 'mail' });
    expect(await run('lanes', 'pause', 'mail', '--reason', 'server down', '--by', 'ada')).toEqual({
      exitCode: 0,
      output: 'mail  paused\n',
      errors: '',
    });
    const [again, text, json, reason] = await Promise.all([
      run('lanes', 'pause', 'mail', '--json'),
      run('lanes'),
      run('lanes', '--json'),
      run('explain', id),
    ]);
    expect(JSON.parse(again.output)).toEqual({
      lane: 'mail',
      outcome: 'paused',
      repeated: true,
      isNew: false,
    });
    expect(text.output).toMatch(/^LANE +STATE +DEPTH +RUNNING +OLDEST +IN\/S +OUT\/S +PAUSED$/m);
    expect(text.output).toMatch(
      /^mail +paused +1 +0 +\d+m?s +\d+\.\d +\d+\.\d +\d+m?s ago by ada: server down$/m,
    );
    expect(text.output).toMatch(/^default +open .*\d$/m);
    const note = { pausedAtMs: expect.any(Number), pausedBy: 'ada', pauseReason: 'server down' };
    expect(lines(json.output)).toContainEqual(
      expect.objectContaining({ lane: 'mail', paused: true, depth: 1, depthIsCapped: false, ...note }),
    );
    const [state, sentence, ...rest] = reason.output.trimEnd().split('\n');
    expect(state).toBe(`${id}  waiting`);
    expect(sentence).toMatch(/^Lane mail has been paused for \d.* by ada \(server down\);/);
    expect(rest[0]).toBe('  holds  no worker  No worker has sent a heartbeat in the last 30s.');
    expect(rest).toHaveLength(2);
    const all = (await run('explain', id, '--all')).output.trimEnd().split('\n');
    expect(all.filter((line) => /^ {2}(?:holds|open) /.test(line))).toHaveLength(14);
    expect(rest.at(-1)).toBe('next: flowfabric lanes resume mail');
    expect(await run('lanes', 'resume', 'mail')).toMatchObject({ exitCode: 0, output: 'mail  resumed\n' });
    const after = JSON.parse((await run('explain', id, '--json')).output) as object;
    expect(after).toMatchObject({ state: 'waiting', holding: { gate: 'no_worker' } });
    expect(after).toMatchObject({ next: 'flowfabric workers list', gates: expect.any(Array) });
  });

  it('writes all events about a lane, or the usual ones', async () => {
    const all = { exitCode: 0, output: 'told  events: all\n', errors: '' };
    expect(await run('lanes', 'set-events', 'told', 'all')).toEqual(all);
    expect((await run('lanes', 'set-events', 'told', 'all')).output).toBe('told  had events: all already\n');
    expect(await run('lanes', 'set-events', 'told', 'some')).toMatchObject({ exitCode: 2, output: '' });
    expect((await engine.lanes.list()).lanes.find(({ lane }) => lane === 'told')?.events).toBe('all');
    expect((await run('lanes', 'set-events', 'told', 'usual')).output).toBe('told  events: usual\n');
  });

  it('notes that a paused lane never had any work', async () => {
    const note = 'flowfabric: No work was ever submitted to lane emials.\n';
    const paused = await run('lanes', 'pause', 'emials');
    expect(paused).toEqual({ exitCode: 0, output: 'emials  paused\n', errors: note });
    const again = await run('lanes', 'pause', 'emials');
    expect(again).toEqual({ exitCode: 0, output: 'emials  was already paused\n', errors: '' });
  });
});

describe('flowfabric replay', () => {
  it('runs finished executions again, prints a line per id, and exits with the worst', async () => {
    const id = await failed('flaky', 'the server is gone');
    expect((await run('explain', id)).output).toContain(`next: flowfabric replay '${id}' --reason '<why>'\n`);
    const once = await run('replay', id, '--reason', 'it is back', '--by', 'ada', '--from', 'start');
    expect(once).toEqual({ exitCode: 0, output: `${id}  replayed (replay 1)\n`, errors: '' });
    await workerPort(engine).complete(await claim('flaky'));
    const both = await run('replay', id, UNKNOWN, '--reason', 'again');
    expect(both.exitCode).toBe(3);
    expect(both.output).toBe(
      `${id}  replayed (replay 2)\n${UNKNOWN}  not replayed: there is no such execution\n`,
    );
    const refused = await run('replay', id, '--reason', 'again', '--json');
    expect(refused.exitCode).toBe(4);
    expect(JSON.parse(refused.output)).toEqual({
      executionId: id,
      outcome: 'not_terminal',
      lifecyclePhase: 'runnable',
    });
  });
});

describe('flowfabric replay --from-step', () => {
  it('keeps the steps before it, and says so when there is none of that name', async () => {
    const id = await submit('stepped');
    const port = workerPort(engine);
    const lease = await claim('stepped');
    for (const [name, key] of [
      ['first', ''],
      ['second', 'a'],
      ['third', ''],
    ] as const)
      await port.recordStep(lease, { name, key, value: name });
    await port.complete(lease);
    const none = await run('replay', id, '--reason', 'r', '--from-step', 'second');
    expect(none).toEqual({
      exitCode: 4,
      output: `${id}  not replayed: it has recorded no such step\n`,
      errors: '',
    });
    const done = await run('replay', id, '--reason', 'r', '--from-step', 'second', '--step-key', 'a');
    expect(done).toEqual({ exitCode: 0, output: `${id}  replayed (replay 1)\n`, errors: '' });
    expect(await port.readSteps(id)).toMatchObject([{ name: 'first' }]);
  });
});

describe('flowfabric list --descendants', () => {
  it('finds everything below an execution', async () => {
    const root = await submit('root');
    const port = workerPort(engine);
    await port.spawn(await claim('root'), [{ kind: 'middle' }]);
    await port.spawn(await claim('middle'), [{ kind: 'leaf' }]);
    const { output } = await run('list', '--parent', root, '--descendants', '--json');
    expect(lines<{ kind: string }>(output).map(({ kind }) => kind)).toEqual(['middle', 'leaf']);
  });
});

describe('flowfabric describe', () => {
  it('shows replays, the deadline and, with --attempts, every attempt', async () => {
    const id = await failed('tried', 'first', { policy: { deadline: 3_600_000 } });
    await engine.executions.replay(id, { reason: 'again' });
    await claim('tried');
    const { output } = await run('describe', id, '--attempts');
    expect(output).toMatch(/^ {2}deadline +\d{4}-.*Z$/m);
    expect(output).toMatch(/^ {2}replays +1$/m);
    expect(output).toMatch(/^ {2}attempts +2 \(0 retries, 0 leases lost since the last replay\)$/m);
    expect(output).toMatch(/1\. failed by w-1, begun \S+Z, took \d+m?s: first \(permanent\)/);
    expect(output).toMatch(/2\. running by w-1, begun \S+Z$/m);
    const json = JSON.parse((await run('describe', id, '--attempts', '--json')).output) as object;
    expect(json).toMatchObject({
      replayCount: 1,
      attempts: [
        { attemptIndex: 0, outcome: 'failed', workerId: 'w' },
        { attemptIndex: 1, outcome: null, workerId: 'w' },
      ],
    });
  });
});

describe('flowfabric change-priority and set-tags', () => {
  it('move an execution in the queue and label it', async () => {
    const id = await submit('queued', { tags: { draft: 'yes' } });
    const moved = await run('change-priority', '9', id);
    expect(moved).toEqual({ exitCode: 0, output: `${id}  priority 9, was 0\n`, errors: '' });
    const tagged = await run('set-tags', id, 'customer=42', 'note=a=b', '--remove', 'draft');
    expect(tagged).toEqual({ exitCode: 0, output: 'customer=42\nnote=a=b\n', errors: '' });
    expect(await engine.executions.describe(id)).toMatchObject({
      priority: 9,
      tags: { customer: '42', note: 'a=b' },
    });
    await claim('queued');
    const refused = await run('change-priority', '1', id, '--json');
    expect(refused.exitCode).toBe(4);
    expect(JSON.parse(refused.output)).toEqual({ executionId: id, outcome: 'not_eligible' });
  });

  it('exit with 3 when there is no such execution, like explain', async () => {
    const answers = await Promise.all([
      run('change-priority', '1', UNKNOWN),
      run('set-tags', UNKNOWN, 'a=b'),
      run('explain', UNKNOWN),
    ]);
    expect(answers.map(({ exitCode }) => exitCode)).toEqual([3, 3, 3]);
    expect(answers[0]!.output).toContain('not changed: there is no such execution');
    for (const { errors } of answers.slice(1)) expect(errors).toContain('[not_found]');
  });
});

describe('flowfabric top', () => {
  it('prints one snapshot where there is no terminal, and one object with --json', async () => {
    await submit('crowd', { lane: 'crowded' });
    const { exitCode, output, errors } = await run('top');
    expect({ exitCode, errors }).toEqual({ exitCode: 0, errors: '' });
    expect(output).toMatch(/^\d\d:\d\d:\d\d {2}\d+ lanes {2}\d+ waiting {2}\d+ running {2}\d+\.\d\/s in /);
    expect(output).toMatch(/^crowded +open +1 +0 +\d+m?s +\d+\.\d +\d+\.\d$/m);
    expect(output).toContain('No worker is running: waiting work stays where it is until one starts.\n');
    const json = await run('top', '--json');
    expect(JSON.parse(json.output)).toMatchObject({
      atMs: expect.any(Number),
      lanes: expect.arrayContaining([expect.objectContaining({ lane: 'crowded', depth: 1 })]),
      workers: [],
    });
  });
});
