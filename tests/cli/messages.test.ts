/**
 * `flowfabric send`, and what `describe` and `why` show of messages and runs, against a real database.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, handle, startWorker, task, type Connection, type Worker } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand } from './processes.ts';

const UNKNOWN = '{fp:12}:01890a5d-ac96-774b-bcce-b302099a8057';

const counter = task<number>('counter');
let database: TestDatabase;
let engine: Connection;
let worker: Worker;

beforeAll(async () => {
  database = await plainDatabase();
  engine = await connect({ databaseUrl: database.url });
  const handler = handle(counter, async (sum, ctx) => {
    const { payload, reply } = await ctx.receive<number>('add');
    await reply(sum + payload);
    return payload === 0 ? sum : ctx.continueAs(sum + payload);
  });
  worker = startWorker(engine, { handlers: [handler], log: 'silent' });
});

afterAll(async () => {
  await worker?.stop();
  await engine?.close();
  await database?.drop();
});

function run(...args: string[]) {
  return runCommand({ args, databaseUrl: database.url });
}

describe('flowfabric send', () => {
  it('sends a message once by its id, waits for a reply, and shows what was not received', async () => {
    const { executionId: id, result } = await engine.submit(counter, 0);
    expect(await run('send', id, 'other', '{"note":1}', '--id', 'n')).toEqual({
      exitCode: 0,
      output: 'sent; it is kept until the execution receives it\n',
      errors: '',
    });
    expect((await run('send', id, 'other', '{"note":2}', '--id', 'n')).output).toBe(
      'a message with this id was sent before\n',
    );
    expect(await run('send', id, 'add', '5', '--reply', '--json')).toMatchObject({
      exitCode: 0,
      output: '{"outcome":"replied","reply":5}\n',
    });
    await expect.poll(async () => (await engine.executions.describe(id))?.state, PATIENCE).toBe('suspended');
    const { output: shown } = await run('describe', id);
    expect(shown).toMatch(/^ {2}run +2, since /m);
    expect(shown).toMatch(/^ {2}messages +1 not received$/m);
    expect(shown).toMatch(/other +\S+ +\{"note":1\}/);
    const { output: json } = await run('describe', id, '--json');
    expect(JSON.parse(json)).toMatchObject({ runs: { items: [{ run: '1', messages: 1 }] } });
    expect((await run('why', id)).output).toContain('waiting for a message: inbox:add');
    const events = await run('events', 'tail', '--no-follow', '--from', 'beginning', '--execution', id);
    expect(events.output).toContain('run 1 ended, run 2 begins');
    await engine.send(id, 'add', 0);
    expect(await result()).toBe(5);
    expect(await run('send', id, 'add', '5')).toMatchObject({
      exitCode: 4,
      output: 'the execution has finished\n',
    });
    expect(await run('send', id, 'add', '5', '--reply')).toMatchObject({ exitCode: 4 });
  });

  it('refuses bad calls, and says when nobody replied', async () => {
    const { executionId: id } = await engine.submit(counter, 0);
    expect(await run('send', id, 'add', 'five')).toMatchObject({ exitCode: 2 });
    expect(await run('send', id, 'add', '5', '--timeout', '1s')).toMatchObject({
      exitCode: 2,
      errors: expect.stringContaining('--timeout needs --reply'),
    });
    expect(await run('send', UNKNOWN, 'add', '5')).toMatchObject({ exitCode: 3 });
    expect(await run('send', id, 'nobody reads this', '--reply', '--timeout', '1ms')).toMatchObject({
      exitCode: 124,
    });
  });
});
