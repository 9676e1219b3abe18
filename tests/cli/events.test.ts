/**
 * `flowfabric events tail` against a real database: what it prints, as text and as JSON, what it omits, and how it ends.
 * Consumers have a file of their own.
 */
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, encodeCursor, type Connection, type FeedEvent } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand, startCommand, type Started } from './processes.ts';
import { workerPort } from '../../src/connect/port.ts';

const NOWHERE = 'postgres://nobody@127.0.0.1:1/nothing';
const WORKER = { workerId: 'w', workerInstanceId: 'w-1' };
const SECRET = 'only-in-the-payload';

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

function start(...args: string[]): Started {
  return startCommand({ args, databaseUrl: database.url });
}

type Printed = Omit<FeedEvent, 'position'> & { position: string; executionId?: string };

function lines<Value = Printed>(output: string): Value[] {
  const text = output.trimEnd();
  return text === '' ? [] : text.split('\n').map((line) => JSON.parse(line) as Value);
}

/** The cursor before everything that is committed from here on. */
async function here(): Promise<string> {
  const subscription = await engine.events.subscribe();
  await subscription.close();
  return subscription.cursor;
}

async function submit(kind: string, request: object = {}): Promise<string> {
  return (await engine.executions.submit({ kind, payload: { secret: SECRET }, ...request })).executionId;
}

/** Submits an execution and claims it. */
async function claim(kind: string, request: object = {}) {
  await submit(kind, request);
  const asked = { ...WORKER, kinds: [kind], limit: 1, leaseMs: 600_000 };
  let [lease] = (await workerPort(engine).claim(asked)).claims;
  await expect
    .poll(async () => (lease ??= (await workerPort(engine).claim(asked)).claims[0]), PATIENCE)
    .toBeDefined();
  return lease!;
}

async function complete(kind: string, request: object = {}): Promise<string> {
  const lease = await claim(kind, request);
  await workerPort(engine).complete(lease, { secret: SECRET });
  return lease.executionId;
}

/** An event without an execution: the lane is paused, or resumed. */
async function stir(lane: string): Promise<void> {
  const { repeated } = await engine.lanes.pause(lane);
  if (repeated) await engine.lanes.resume(lane);
}

/** Makes events until the command has printed one: before, it may not have begun to follow. */
async function untilItFollows(started: Started, lane: string): Promise<void> {
  await expect
    .poll(async () => {
      await stir(lane);
      return started.output();
    }, PATIENCE)
    .toContain('lane_');
}

describe('flowfabric events tail', () => {
  it('prints a line per event, in order, with what matters most about it', async () => {
    const from = await here();
    const id = await complete('lined', { lane: 'slow', tags: { secret: 'no' } });
    const { executionId: stopped } = await claim('stopped');
    await engine.cancel(stopped, { reason: 'enough', by: 'ada' });
    const waiting = await submit('queued');
    await engine.executions.changePriority(waiting, { priority: 9, by: 'ada' });
    await engine.executions.setTags(waiting, { set: { note: 'a\u001B[31m\nb' }, remove: ['x'], by: 'ada' });
    await engine.lanes.pause('line', { by: 'ada', reason: 'mail is down' });
    const { exitCode, output, errors } = await run('events', 'tail', '--from', from, '--limit', '8');
    expect(exitCode).toBe(0);
    const time = String.raw`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z`;
    const printed = output.trimEnd().split('\n');
    const expected = [
      `lease.acquired +${id} +lined +slow +attempt 1 on w-1`,
      `completion.success +${id} +lined +slow +attempt 1 on w-1`,
      `lease.acquired +${stopped} +stopped +default +attempt 1 on w-1`,
      `lease.revoked +${stopped} +stopped +default +from w-1, by ada: cancel`,
      `completion.cancelled +${stopped} +stopped +default.*`,
      `operator.priority_changed +${waiting} +queued +default +0 -> 9, by ada`,
      String.raw`tag.tags_changed +${waiting} +queued +default +note=a \[31m b -x, by ada`,
      `operator.lane_paused +line +by ada: mail is down`,
    ].map((line) => new RegExp(`^${time} +${line.replaceAll(/[{}]/g, String.raw`\$&`)}$`));
    expect(printed).toEqual(expected.map((line) => expect.stringMatching(line)));
    const columns = printed.slice(0, 5).map((line) => line.indexOf('{fp:'));
    expect(new Set(columns).size).toBe(1);
    expect(errors).toMatch(/^continue with\n {2}flowfabric events tail --limit 8 --from \S+\n$/);
  });

  it('prints an object per line with --json, without payloads, and on stderr the command that continues', async () => {
    const from = await here();
    const id = await complete('objects', { tags: { customer: '42' }, namespace: 'shop' });
    const first = await run('events', 'tail', '--from', from, '--limit', '1', '--json');
    expect(first.exitCode).toBe(0);
    const found = lines(first.output);
    expect(found).toMatchObject([
      {
        family: 'lease',
        type: 'acquired',
        executionId: id,
        workerInstanceId: 'w-1',
        tags: { customer: '42' },
      },
    ]);
    const { cursor, command } = JSON.parse(first.errors) as { cursor: string; command: string };
    expect(cursor).toBe(found[0]!.cursor);
    const second = await run(...command.split(' ').slice(1), '--json');
    const [next] = lines(second.output);
    expect(next).toMatchObject({ family: 'completion', type: 'success', executionId: id, namespace: 'shop' });
    expect(next!.position).toBe(String(BigInt(found[0]!.position) + 1n));
    expect(first.output + second.output).not.toContain(SECRET);
  });

  it('prints only what matches every condition', async () => {
    const from = await here();
    const other = await complete('asked', {
      namespace: 'elsewhere',
      lane: 'quick',
      tags: { a: '1', b: '2' },
    });
    const id = await complete('asked', { namespace: 'mine', lane: 'quick', tags: { a: '1', b: '3' } });
    const ask = async (...conditions: string[]): Promise<(string | undefined)[]> => {
      const words = ['events', 'tail', '--from', from, '--family', 'completion', '--json'];
      const { output } = await run(...words, ...conditions);
      return lines(output).map(({ executionId }) => executionId);
    };
    const answers = await Promise.all([
      ask('--kind', 'asked', '--limit', '2'),
      ask('--namespace', 'mine', '--limit', '1'),
      ask('--tag', 'a=1', '--tag', 'b=3', '--limit', '1'),
      ask('--execution', id, '--limit', '1'),
      ask('--lane', 'quick', '--kind', 'asked', '--family', 'tag', '--limit', '2'),
    ]);
    expect(answers).toEqual([[other, id], [id], [id], [id], [other, id]]);
  });

  it('prints only the requested types, and repeats them in the command that continues', async () => {
    const from = await here();
    await complete('typed');
    await engine.cancel(await submit('typed'), { reason: 'enough' });
    await claim('typed');
    const asked = ['--type', 'success', '--type', 'acquired'];
    const { exitCode, output, errors } = await run(
      'events',
      'tail',
      ...asked,
      '--from',
      from,
      '--no-follow',
      '--json',
    );
    expect(exitCode).toBe(0);
    expect(lines(output).map(({ type }) => type)).toEqual(['acquired', 'success', 'acquired']);
    const { cursor, command } = JSON.parse(errors) as { cursor: string; command: string };
    expect(command).toBe(`flowfabric events tail ${asked.join(' ')} --no-follow --from ${cursor}`);
  });

  it('with --no-follow stops after what was committed before, and continues from there', async () => {
    const from = await here();
    for (const lane of ['still', 'stiller']) await engine.lanes.pause(lane);
    const first = await run('events', 'tail', '--from', from, '--no-follow', '--json');
    expect(first.exitCode).toBe(0);
    expect(lines(first.output)).toMatchObject([{ lane: 'still' }, { lane: 'stiller' }]);
    const { cursor, command } = JSON.parse(first.errors) as { cursor: string; command: string };
    expect(cursor).toBe(lines(first.output)[1]!.cursor);
    await engine.lanes.pause('stillest');
    const second = await run(...command.split(' ').slice(1), '--json');
    expect(second.exitCode).toBe(0);
    expect(lines(second.output)).toMatchObject([{ lane: 'stillest' }]);
  });

  it('with --no-follow stops where nothing matches, past everything that did not', async () => {
    const from = await here();
    await stir('unmatched');
    const beyond = await here();
    const none = ['--family', 'worker', '--no-follow', '--json'];
    const ends = await Promise.all([
      run('events', 'tail', '--from', from, ...none),
      run('events', 'tail', '--from', 'now', ...none),
      run('events', 'tail', ...none),
    ]);
    for (const { exitCode, output, errors } of ends) {
      expect({ exitCode, output }).toEqual({ exitCode: 0, output: '' });
      expect(JSON.parse(errors)).toMatchObject({ cursor: beyond });
    }
  });

  it('names the families in its help', async () => {
    const { output } = await run('events', 'tail', '--help');
    const families = 'lease, completion, signal, operator, flow, tag, worker, execution';
    expect(output.replaceAll(/\s+/g, ' ')).toContain(`one of ${families};`);
  });

  it('follows until Ctrl-C, and the command it prints continues without a gap', async () => {
    await stir('before');
    const following = ['--family', 'operator', '--family', 'tag'];
    const started = start('events', 'tail', ...following, '--json');
    await untilItFollows(started, 'after');
    started.child.kill('SIGINT');
    expect(await started.exitCode).toBe(130);
    expect(started.output()).not.toContain('"before"');
    const { cursor, command } = JSON.parse(started.errors()) as { cursor: string; command: string };
    expect(command).toBe(`flowfabric events tail --family operator --family tag --from ${cursor}`);
    await stir('later');
    const printed = lines(started.output()).length;
    const again = start(...command.split(' ').slice(1), '--json');
    await expect.poll(() => again.output(), PATIENCE).toContain('"later"');
    again.child.kill('SIGINT');
    expect(await again.exitCode).toBe(130);
    const all = lines(started.output() + again.output());
    expect(all.length).toBeGreaterThan(printed);
    const { cursor: first, position } = all[0]!;
    const known = await run(
      'events',
      'tail',
      ...following,
      '--from',
      encodeCursor(BigInt(position) - 1n),
      '--json',
      '--limit',
      String(all.length),
    );
    expect(lines(known.output)).toEqual(all);
    expect(lines(known.output)[0]!.cursor).toBe(first);
  });

  it('ends quietly when the reader of its output is gone', async () => {
    const started = start('events', 'tail', '--family', 'operator');
    await untilItFollows(started, 'head');
    started.child.stdout!.destroy();
    let exitCode: number | null | undefined;
    void once(started.child, 'exit').then(([code]) => (exitCode = code as number | null));
    await expect
      .poll(async () => {
        await stir('head');
        return exitCode;
      }, PATIENCE)
      .toBe(141);
    expect(started.errors()).toBe('');
  });
});

describe('a lost connection', () => {
  const LISTENERS = `SELECT pid FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'flowfabric listener' AND state = 'idle'`;

  async function listeners(): Promise<number[]> {
    return (await database.query<{ pid: number }>(LISTENERS)).rows.map(({ pid }) => pid);
  }

  it.each([
    [[], 'errors' as const, 'Nothing is lost'],
    [['--json'], 'output' as const, '"type":"disconnected"'],
  ])('is reported with %j, and what was committed meanwhile is printed', async (args, where, words) => {
    const before = await listeners();
    const started = start('events', 'tail', '--family', 'operator', ...args);
    await untilItFollows(started, 'cut');
    await expect
      .poll(async () => {
        const own = (await listeners()).filter((pid) => !before.includes(pid));
        await database.query('SELECT pg_terminate_backend(pid) FROM unnest($1::integer[]) pid', [own]);
        return started[where]();
      }, PATIENCE)
      .toContain(words);
    const lane = `meanwhile${args.length}`;
    await engine.lanes.pause(lane);
    await expect.poll(() => started.output(), PATIENCE).toContain(lane);
    started.child.kill('SIGINT');
    expect(await started.exitCode).toBe(130);
  });
});

describe('a cursor', () => {
  it('whose events are gone is refused with the oldest one that is left', async () => {
    await using old = await plainDatabase();
    await using owner = await connect({ databaseUrl: old.url });
    for (const lane of ['a', 'b', 'c']) await owner.lanes.pause(lane);
    const kept = await owner.events.subscribe({ from: 'beginning' });
    const { value: first } = await kept.next();
    await kept.close();
    await old.query('UPDATE ff_sequencer SET floor_position = $1', [String(first.position + 1n)]);
    const from = encodeCursor(first.position - 1n);
    const tail = ['events', 'tail', '--family', 'operator', '--limit', '2'];
    const refused = await runCommand({ args: [...tail, '--from', from], databaseUrl: old.url });
    expect(refused).toMatchObject({ exitCode: 1, output: '' });
    expect(refused.errors).toContain('are no longer kept. Read what is left with: flowfabric events tail');
    expect(refused.errors).not.toContain('error.oldest');
    const command = /: (flowfabric events tail .*) \[cursor_expired\]$/m.exec(refused.errors)![1]!;
    expect(command).toBe(`flowfabric ${tail.join(' ')} --from ${first.cursor}`);
    const { exitCode, output } = await runCommand({
      args: [...command.split(' ').slice(1), '--json'],
      databaseUrl: old.url,
    });
    expect(exitCode).toBe(0);
    expect(lines(output)).toMatchObject([{ lane: 'b' }, { lane: 'c' }]);
  });

  it('beyond the last event is refused', async () => {
    const { exitCode, output, errors } = await run('events', 'tail', '--from', encodeCursor(2n ** 62n));
    expect({ exitCode, output }).toEqual({ exitCode: 1, output: '' });
    expect(errors).toMatch(/^flowfabric: --from is position .* \[cursor_ahead\]$/m);
  });
});

describe('an invalid cursor', () => {
  const HINT = 'a cursor is what events tail printed or event.cursor contains; or use now or beginning';
  const POSITION = `this is a position, not a cursor; ${HINT}`;

  it.each([
    ['', '--from is empty: use now or beginning.', HINT],
    ['42', '--from has digits only.', POSITION],
    ['123456789012', '--from has digits only.', POSITION],
    ['yesterday', '--from is not base64url.', HINT],
    ['Now', '--from has 2 bytes; a cursor has 9.', HINT],
  ])('such as %j is refused with a hint, before the database is asked', async (from, message, hint) => {
    const args = ['events', 'tail', '--from', from];
    expect(await runCommand({ args, databaseUrl: NOWHERE })).toEqual({
      exitCode: 2,
      output: '',
      errors: `flowfabric: ${message} [invalid_cursor]\nhint: ${hint}\n`,
    });
    const { exitCode, output, errors } = await runCommand({
      args: [...args, '--json'],
      databaseUrl: NOWHERE,
    });
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(JSON.parse(errors)).toEqual({ error: { code: 'invalid_cursor', message, hint } });
  });
});

describe('an invalid value', () => {
  it.each([
    [['--from', 'AgAA'], '--from has 3 bytes'],
    [['--from', 'AQAAAAAAAAAA'], '--from starts with byte 1'],
    [['--from', 'Av__________'], '--from has a negative position'],
    [['--family', 'leases'], '--family must be one of lease, completion, signal'],
    [['--execution', 'me'], '--execution must be {fp:N}:<uuid>, or the beginning of its uuid'],
    [['--limit', '0'], '--limit must be a whole number from 1 to'],
  ])('such as %j is refused before the database is asked', async (args, sentence) => {
    const { exitCode, output, errors } = await runCommand({
      args: ['events', 'tail', ...args],
      databaseUrl: NOWHERE,
    });
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(sentence);
  });

  it.each([
    [['--tag', 'customer'], '--tag must be key=value'],
    [['--tag', 'a=1', '--tag', 'a=2'], '--tag names a key twice'],
    [['--lane', ''], '--lane'],
    [['--type', 'success', '--type', 'done'], '--type must be one of acquired, '],
    [['--family', 'completion', '--type', 'acquired'], '--type must be one of success, failed, cancelled'],
    [
      ['--family', 'flow', '--type', 'success'],
      '--type must be one of submitted, cancel_requested, completed',
    ],
  ])('such as %j is refused with a message that names the option', async (args, sentence) => {
    const { exitCode, output, errors } = await run('events', 'tail', ...args);
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(sentence);
    expect(errors).not.toContain('filter.');
  });
});
