/**
 * Short ids on the command line: printed on a terminal, whole elsewhere; every command takes an id, a uuid or the
 * beginning of one; a beginning that several have acts on none of them.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { connect, type Connection } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { runCommand } from './processes.ts';

const ONE = '{fp:7}:01890a5d-ac96-7740-8000-000000000001';
const TWO = '{fp:8}:01890a5d-ac96-7750-8000-000000000002';
const ALONE = '{fp:9}:01890b00-0000-7000-8000-000000000003';
const FLOW = '{fp:9}:01890c00-0000-7000-8000-000000000004';
const WHY = ['--reason', 'why'];

let database: TestDatabase;
let engine: Connection;

beforeAll(async () => {
  database = await plainDatabase();
  engine = await connect({ databaseUrl: database.url, reconcile: 'off' });
  for (const executionId of [ONE, TWO, ALONE])
    await engine.executions.submit({ kind: 'idle', executionId, tags: { shown: 'yes' } });
  await engine.flows.submit({ name: 'pair', flowId: FLOW, members: [{ name: 'one', kind: 'idle' }] });
});

afterAll(async () => {
  await engine?.close();
  await database?.drop();
});

function run(...args: string[]) {
  return runCommand({ args, databaseUrl: database.url });
}

function onTerminal(...args: string[]) {
  return runCommand({ args, databaseUrl: database.url, env: { NO_COLOR: '1' }, columns: 80 });
}

describe('an id is printed', () => {
  it('short on a terminal, as long as it must be to be told from others', async () => {
    const { output } = await onTerminal('list', '--tag', 'shown=yes');
    const ids = output.trimEnd().split('\n').slice(1);
    expect(ids.map((line) => line.split(' ')[0]).toSorted()).toEqual([
      '01890a5d-ac96-774',
      '01890a5d-ac96-775',
      '01890b00-0000',
    ]);
  });

  it('whole in a pipe and as JSON', async () => {
    const [piped, json] = [
      await run('list', '--tag', 'shown=yes'),
      await onTerminal('list', '--tag', 'shown=yes', '--json'),
    ];
    for (const id of [ONE, TWO, ALONE]) {
      expect(piped.output).toContain(`${id}  `);
      expect(json.output).toContain(`"executionId":"${id}"`);
    }
  });

  it('short in the command that helps, so that it can be pasted', async () => {
    const { output } = await onTerminal('flows', 'describe', '01890c00');
    expect(output).toMatch(/^01890c00-0000 {2}pair {2}running$/m);
    expect(output).toContain(`  id         ${FLOW}\n`);
    await engine.executions.setTags(ALONE, { set: { at: 'helps' } });
    await engine.executions.cancel(ALONE, { reason: 'why' });
    const { output: why } = await onTerminal('explain', ALONE);
    expect(why).toContain(`next: flowfabric replay 01890b00-0000 --reason '<why>'\n`);
  });
});

describe('a command takes', () => {
  it.each([ALONE, ALONE.slice(7), '01890b00-0000', '01890b'])('%s for the same execution', async (text) => {
    const { exitCode, output } = await run('describe', text, '--json');
    expect(exitCode).toBe(0);
    expect(JSON.parse(output)).toMatchObject({ executionId: ALONE });
  });

  it('the beginning of an id wherever it takes an id', async () => {
    const calls = [
      ['explain', '01890b'],
      ['set-tags', '01890b', 'a=b'],
      ['waitpoints', 'list', '01890b'],
      ['list', '--parent', '01890b'],
      ['events', 'tail', '--execution', '01890b', '--no-follow'],
      ['events', 'tail', '--flow', '01890c', '--no-follow'],
      ['flows', 'show', '01890c'],
    ];
    for (const args of calls) expect({ args, ...(await run(...args)) }).toMatchObject({ args, exitCode: 0 });
    // It was cancelled, which is what the exit code says.
    expect(await run('streams', 'read', '01890b')).toMatchObject({ exitCode: 1 });
    expect(await run('revoke-lease', '01890b', ...WHY)).toMatchObject({ exitCode: 4 });
    expect(await engine.executions.describe(ALONE)).toMatchObject({ tags: { a: 'b' } });
    const replayed = await run('replay', '01890b', ...WHY);
    expect(replayed).toEqual({ exitCode: 0, output: `${ALONE}  replayed (replay 1)\n`, errors: '' });
  });
});

describe('the beginning of several ids', () => {
  it('acts on none of them, lists them, and exits with 2', async () => {
    const { exitCode, output, errors } = await run('cancel', '01890b', '01890a5d', ...WHY);
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toMatch(
      /^flowfabric: 01890a5d is the beginning of the ids of 2 executions: give more of it\. \[ambiguous_id\]$/m,
    );
    expect(errors).toMatch(/^ID +TASK +STATE +AGE$/m);
    for (const id of [ONE, TWO])
      expect(errors).toMatch(new RegExp(`^${id.replaceAll(/[{}]/g, '.')} +idle +waiting +\\d+\\w+$`, 'm'));
    for (const id of [ONE, TWO])
      expect(await engine.executions.describe(id)).toMatchObject({ state: 'waiting' });
  });

  it('is an error with its candidates as JSON', async () => {
    const { exitCode, errors } = await run('describe', '01890a5d-ac96', '--json');
    expect(exitCode).toBe(2);
    const candidate = { kind: 'idle', state: 'waiting', createdAtMs: expect.any(Number) };
    expect(JSON.parse(errors)).toEqual({
      error: {
        code: 'ambiguous_id',
        message: '01890a5d-ac96 is the beginning of the ids of 2 executions: give more of it.',
        hint: '`flowfabric describe --help` has more',
        candidates: [
          { id: TWO, ...candidate },
          { id: ONE, ...candidate },
        ],
      },
    });
  });

  it('lists no more than ten', async () => {
    const kind = 'many';
    await engine.executions.submit(
      Array.from({ length: 11 }, (_, nth) => ({
        kind,
        executionId: `{fp:1}:01880000-0000-7000-8000-0000000000${10 + nth}`,
      })),
    );
    const { errors } = await run('explain', '0188');
    expect(errors).toContain('0188 is the beginning of the ids of more than 10 executions');
    expect(errors.match(/ many /g)).toHaveLength(10);
  });
});

describe('an unknown beginning', () => {
  it('is reported, with exit code 3', async () => {
    expect(await run('describe', 'ffff')).toEqual({
      exitCode: 3,
      output: '',
      errors: 'flowfabric: There is no execution ffff. [not_found]\n',
    });
  });

  it.each([
    [['describe', '01890c00'], 'it is a flow. See `flowfabric flows describe 01890c00`.'],
    [['explain', FLOW], `it is a flow. See \`flowfabric flows describe '${FLOW}'\`.`],
    [['flows', 'describe', '01890b00'], 'it is an execution. See `flowfabric describe 01890b00`.'],
  ])('is reported in %j with the command that was meant', async (args, sentence) => {
    const { exitCode, errors } = await run(...args);
    expect(exitCode).toBe(3);
    expect(errors).toContain(sentence);
  });

  it('is refused when it is too short to mean anything', async () => {
    const { exitCode, errors } = await run('describe', '018');
    expect(exitCode).toBe(2);
    expect(errors).toContain('at least 4 hex digits');
  });
});
