/**
 * `flowfabric waitpoints`, `signal`, `signing-keys` and `describe` of a suspended execution, against a real database: what
 * they print, how they exit, and that no error message contains a token or a secret.
 */
import { userInfo } from 'node:os';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { atLeast, connect, type Connection } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand, runProcess } from './processes.ts';
import { workerPort } from '../../src/connect/port.ts';

const NOWHERE = 'postgres://nobody@127.0.0.1:1/nothing';
const UNKNOWN = '{fp:12}:01890a5d-ac96-774b-bcce-b302099a8057';
const SECRET = 'hunter2-hunter2-hunter2-hunter2-hunter2';
const TOKEN = /^ffw1_\w+\n$/;

let database: TestDatabase;
let engine: Connection;

beforeAll(async () => {
  database = await plainDatabase();
  engine = await connect({ databaseUrl: database.url, signingSecret: SECRET });
});

afterAll(async () => {
  await engine?.close();
  await database?.drop();
});

const env = { FLOWFABRIC_SIGNING_SECRET: SECRET };

function run(...args: string[]) {
  return runCommand({ args, databaseUrl: database.url, env });
}

/** An execution that waits for two people at `manager`. */
async function suspended(kind: string): Promise<string> {
  const { executionId } = await engine.executions.submit({ kind });
  const request = { workerId: 'w', workerInstanceId: 'w-1', kinds: [kind], limit: 1, leaseMs: 600_000 };
  let [lease] = (await workerPort(engine).claim(request)).claims;
  await expect
    .poll(async () => (lease ??= (await workerPort(engine).claim(request)).claims[0]), PATIENCE)
    .toBeDefined();
  const condition = { ...atLeast(2).distinctSources().at('manager') };
  const { outcome } = await workerPort(engine).suspend(lease!, {
    waits: [{ name: 'manager', condition, timeoutMs: 86_400_000, reason: 'approval' }],
  });
  expect(outcome).toBe('suspended');
  return executionId;
}

describe('a waitpoint', () => {
  it('is listed, shown, and approved by operators; the same operator counts once', async () => {
    expect(await run('waitpoints', 'list')).toEqual({
      exitCode: 0,
      output: '',
      errors: expect.stringContaining('nothing is waiting for a signal.'),
    });
    const id = await suspended('order');
    await engine.waitpoints.approve(id, 'manager', { by: userInfo().username });
    expect(await run('waitpoints', 'approve', id, 'manager')).toEqual({
      exitCode: 0,
      output: 'accepted, but not counted: one like it has already been counted\n',
      errors: '',
    });
    const [table, one, shown] = await Promise.all([
      run('approvals'),
      run('waitpoints', 'list', id, '--json'),
      run('describe', id),
    ]);
    const [heading, row] = table.output.trimEnd().split('\n');
    expect(heading).toMatch(/^ID +TASK +WAITPOINT +REASON +WAITING +LEFT +SIGNALS +TAKES +TOKEN$/);
    expect(row!.startsWith(id)).toBe(true);
    expect(row).toMatch(/ +order +manager +approval +\d+\w+ +23h\d+m +2 +any +-$/);
    expect(JSON.parse(one.output)).toMatchObject({ executionId: id, name: 'manager', signalCount: 2 });
    expect(shown.output).toMatch(/^ {2}waits at +manager: 2 signals so far, 23h\d+m left$/m);
    expect(shown.output).toMatch(/^ {2}why +Suspended for \d+m?s, waiting for an approval: manager has /m);
    const last = await run('approve', id, 'manager', '--by', 'grace', '--payload', '{"ok":true}');
    expect(last.output).toBe('accepted: it was the last one needed; the execution resumes\n');
    const [late, nowhere] = await Promise.all([
      run('approve', id, 'manager', '--json'),
      run('approve', id, 'elsewhere'),
    ]);
    expect(late).toEqual({ exitCode: 4, output: '{"outcome":"closed"}\n', errors: '' });
    expect(nowhere).toMatchObject({ exitCode: 3, output: '' });
    const [{ end } = { end: null }] = await engine.executions.listSteps(id);
    expect(end?.signals.map(({ source, payload }) => [source.identity, payload])).toEqual([
      [userInfo().username, null],
      [userInfo().username, null],
      ['grace', { ok: true }],
    ]);
  });
});

describe('a token', () => {
  it('is printed alone, or as a link, and read from stdin', async () => {
    const id = await suspended('parcel');
    const [bound, link] = await Promise.all([
      run('waitpoints', 'issue-token', id, 'manager', '--for', 'user:ada', '--once', '--expires', '2d'),
      run(
        'waitpoints',
        'issue-token',
        id,
        'manager',
        '--says',
        'approved',
        '--link',
        'https://example.org/answer?lang=en',
      ),
    ]);
    expect(bound).toMatchObject({ exitCode: 0, output: expect.stringMatching(TOKEN), errors: '' });
    expect(link.output).toMatch(/^https:\/\/example\.org\/answer\?lang=en&ff_token=ffw1_\w+\n$/);
    const send = (input: string, ...args: string[]) =>
      runProcess({ args: ['signal', '-', ...args], databaseUrl: database.url, env, input });
    const first = await send(bound.output);
    expect(first).toEqual({ exitCode: 0, output: 'accepted: it counts; more are needed\n', errors: '' });
    const [twice, other, said, forged] = await Promise.all([
      send(bound.output),
      send(bound.output, '--source', 'user:grace'),
      send(link.output, '--name', 'rejected'),
      run(
        'signal',
        bound.output.trim().replace(/.$/, (digit) => (digit === '0' ? '1' : '0')),
      ),
    ]);
    expect(twice).toMatchObject({
      exitCode: 0,
      output: 'was already delivered: it counts; more are needed\n',
    });
    expect(other).toMatchObject({ exitCode: 2, output: '' });
    expect(other.errors).toContain('--source is not the source the token was issued for.');
    expect(said).toMatchObject({ exitCode: 2, output: '' });
    expect(said.errors).toContain('--name is fixed by the token; leave it out.');
    expect(forged).toMatchObject({ exitCode: 4, output: '' });
    expect(forged.errors).toBe('flowfabric: The token is not valid. [invalid_token]\n');
    const revoked = await run('waitpoints', 'revoke-tokens', id, 'manager', '--json');
    expect(JSON.parse(revoked.output)).toEqual({ executionId: id, waitpoint: 'manager', outcome: 'revoked' });
    expect(await send(link.output)).toMatchObject({ exitCode: 4, output: '' });
    const fresh = await run('waitpoints', 'issue-token', id, 'manager', '--says', 'approved');
    const resumed = await send(fresh.output);
    expect(resumed.output).toBe('accepted: it was the last one needed; the execution resumes\n');
  });

  it('is never quoted, and neither is the secret', async () => {
    const token = `ffw1_4f2a91c0_${'0'.repeat(78)}_${'0'.repeat(64)}`;
    const short = { FLOWFABRIC_SIGNING_SECRET: `${SECRET},short-hunter2` };
    const said = await Promise.all([
      run(token),
      run('signal', `--nmae=${token}`),
      runCommand({ args: ['signal', token], databaseUrl: NOWHERE, env: short }),
      runCommand({ args: ['signal', token], databaseUrl: database.url }),
    ]);
    for (const { exitCode, output, errors } of said) {
      expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
      expect(errors).not.toMatch(/4f2a91c0|0000|hunter2/);
    }
    expect(said[2]!.errors).toContain('secret 2 of 2 has less than 32 bytes');
    expect(said[3]!.errors).toContain('[signing_not_configured]');
  });
});

describe('flowfabric signing-keys', () => {
  it('lists, rotates and revokes, but not the current key', async () => {
    const id = await suspended('keyed');
    const { token } = await engine.waitpoints.issueToken(id, 'manager');
    const rotated = await run('signing-keys', 'rotate', '--grace', '2d', '--json');
    const { kid, previousKid } = JSON.parse(rotated.output) as { kid: string; previousKid: string };
    const [list, current, revoked] = await Promise.all([
      run('signing-keys'),
      run('signing-keys', 'revoke', kid),
      run('signing-keys', 'revoke', previousKid),
    ]);
    const rows = list.output.split('\n');
    expect(rows[0]).toMatch(/^KEY +STATE +SECRET +AGE +LEFT$/);
    expect(list.output).toMatch(new RegExp(`^${kid} +signing +known +\\d+\\w+ +-$`, 'm'));
    expect(list.output).toMatch(
      new RegExp(`^${previousKid} +(verifying +known +\\d+\\w+ +1d23h|revoked +known +\\d+\\w+ +-)$`, 'm'),
    );
    expect(current).toMatchObject({
      exitCode: 4,
      output: expect.stringContaining('signing-keys rotate --grace 0'),
    });
    expect(revoked).toMatchObject({ exitCode: 0, output: expect.stringContaining('no longer valid') });
    await expect(engine.signal({ token })).rejects.toMatchObject({ code: 'invalid_token' });
  });
});

describe('an invalid value', () => {
  it.each([
    ['two values from stdin', ['signal', '-', '--payload', '-'], 'Only one of the token and --payload'],
    ['a source without a type', ['signal', 'x', '--source', ':ada'], '--source must be type:identity'],
    ['half a payload', ['signal', 'x', '--payload', '{'], '--payload must be JSON'],
    [
      'a payload without a name',
      ['waitpoints', 'issue-token', UNKNOWN, 'w', '--payload', '{}'],
      '--payload needs --says.',
    ],
    ['a number as a grace period', ['signing-keys', 'rotate', '--grace', '5'], '--grace must be a duration'],
    [
      'a page of one execution',
      ['waitpoints', 'list', UNKNOWN, '--limit', '5'],
      '--limit and --cursor apply only to the list of all executions.',
    ],
  ])('is refused before the database is asked: %s', async (_, args, sentence) => {
    const { exitCode, output, errors } = await runCommand({ args, databaseUrl: NOWHERE, env });
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(sentence);
    expect(errors).toContain('[usage]');
  });
});
