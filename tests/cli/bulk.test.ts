/**
 * Acting on every execution that matches a filter: the preview, the confirmation, the progress, an interruption in the
 * middle, and continuing after it.
 */
import { PassThrough } from 'node:stream';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ask, openMeter } from '../../src/cli/bulk.ts';
import { connect, type Connection } from '../../src/index.ts';
import type { TestDatabase } from '../../src/testing/test-database.ts';
import { plainDatabase } from '../setup/database.ts';
import { PATIENCE, runCommand, startCommand } from './processes.ts';

const ID = '{fp:12}:01890a5d-ac96-774b-bcce-b302099a8057';
/** Enough for the interruption to come long before all are done, one execution at a time. */
const MANY = 3_000;

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

async function submit(count: number, lane: string): Promise<string[]> {
  const requests = Array.from({ length: count }, () => ({ kind: 'letter', lane }));
  return (await engine.executions.submit(requests)).map(({ executionId }) => executionId);
}

async function countOf(lane: string, state: 'waiting' | 'cancelled'): Promise<number> {
  let matched = 0;
  const filter = { lane, states: [state] };
  const verb = state === 'waiting' ? 'cancel' : 'replay';
  for await (const progress of engine.executions.bulk({ verb, reason: 'count', filter, dryRun: 'on' }))
    ({ matched } = progress);
  return matched;
}

describe('a filter instead of ids', () => {
  it('only counts with --dry-run, shows the first ten, and needs no reason', async () => {
    await submit(12, 'look');
    const text = await run('cancel', '--lane', 'look', '--dry-run');
    expect(text).toMatchObject({ exitCode: 0, errors: '' });
    expect(text.output.match(/ waiting +letter +look /g)).toHaveLength(10);
    expect(text.output).toMatch(/\n12 match; nothing was changed\.\n$/);
    const json = await run('replay', '--lane', 'look', '--state', 'failed', '--dry-run', '--json');
    expect(JSON.parse(json.output)).toEqual({ verb: 'replay', dryRun: true, matched: 0, first: [] });
    expect(await countOf('look', 'waiting')).toBe(12);
  });

  it('cancels what is open, a chunk at a time, with a line now and then', async () => {
    await submit(25, 'chunks');
    const chunks = ['--lane', 'chunks', '--chunk', '2'];
    const { exitCode, output, errors } = await run('cancel', ...chunks, '--reason', 'no more', '--yes');
    expect({ exitCode, output }).toEqual({ exitCode: 0, output: '25 matched: 25 cancelled.\n' });
    expect(errors).toMatch(/^flowfabric: \d+ matched, [\d,]+\/s: \d+ cancelled\n$/);
    const again = await run('cancel', '--lane', 'chunks', '--reason', 'no more', '--yes');
    expect(again).toEqual({ exitCode: 0, output: 'Nothing matched.\n', errors: '' });
  });

  it('changes priorities of what waits, and replays what has ended', async () => {
    const ids = await submit(6, 'verbs');
    const moved = await run('change-priority', '5', '--lane', 'verbs', '--yes', '--json');
    expect(JSON.parse(moved.output)).toEqual({
      verb: 'change_priority',
      matched: 6,
      outcomes: { changed: 6 },
      cursor: null,
    });
    await engine.cancel(ids.slice(0, 4), { reason: 'too early' });
    const filter = ['--lane', 'verbs', '--state', 'cancelled', '--ended-after', '1h'];
    const replayed = await run('replay', ...filter, '--reason', 'now', '--by', 'ada', '--yes');
    expect(replayed).toEqual({ exitCode: 0, output: '4 matched: 4 replayed.\n', errors: '' });
    expect(await countOf('verbs', 'waiting')).toBe(6);
  });

  it.each([
    [['cancel', '--lane', 'look', '--reason', 'r'], 'Not a terminal: pass --yes (try --dry-run first).'],
    [['replay', '--lane', 'look', '--reason', 'r'], '--state must be given, from'],
    [['cancel', '--reason', 'r'], 'Give ids, or a filter such as --state failed.'],
    [['cancel', ID, '--lane', 'look', '--reason', 'r'], 'Give ids or a filter, not both.'],
    [['cancel', ID, '--dry-run'], '--dry-run needs a filter, not ids.'],
    [['replay', '--lane', 'look', '--reason', 'r', '--yes'], '--state must be given, from'],
    [['replay', '--ended-after', '1h', '--dry-run'], '--ended-after requires terminal states only'],
    [
      ['cancel', '--state', 'failed', '--dry-run'],
      '--state contains failed, but cancel accepts only delayed',
    ],
    [['change-priority', '1', '--state', 'active', '--yes'], '--state contains active'],
    [
      ['change-priority', '1', '--lane', 'look', '--yes', '--chunk', '0'],
      '--chunk must be a whole number from 1',
    ],
    [['change-priority', '1', '--lane', 'look', '--yes', '--cursor', 'x'], '--cursor is malformed.'],
  ])('is refused in %j with exit code 2 and a message', async (args, sentence) => {
    const { exitCode, output, errors } = await run(...args);
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(sentence);
  });
});

describe('Ctrl-C', () => {
  it('stops after the current chunk and prints the command to continue with', async () => {
    await submit(MANY, 'stop');
    const args = ['cancel', '--lane', 'stop', '--created-after', '1h', '--reason', 'moved', '--yes'];
    const started = startCommand({ args: [...args, '--chunk', '1', '--json'], databaseUrl: database.url });
    await expect.poll(started.errors, PATIENCE).toContain('10 matched');
    started.child.kill('SIGINT');
    expect(await started.exitCode).toBe(130);
    const told = JSON.parse(started.output()) as { matched: number; cursor: string };
    expect(told).toMatchObject({ verb: 'cancel', cursor: expect.any(String) });
    expect(told.matched).toBeLessThan(MANY);
    expect(await countOf('stop', 'cancelled')).toBe(told.matched);
    const command = /^ {2}flowfabric (cancel .*)$/m.exec(started.errors())![1]!;
    expect(command).toContain(`--cursor ${told.cursor}`);
    const rest = await run(...command.replace('--chunk 1', '--chunk 1000').split(' '));
    expect(rest.exitCode).toBe(0);
    expect(rest.output).toContain(`${(MANY - told.matched).toLocaleString('en-US')} cancelled`);
    expect(await countOf('stop', 'waiting')).toBe(0);
  });
});

describe('on a terminal', () => {
  it('the progress is one redrawn line, cut to the width, and erased at the end', () => {
    const written: string[] = [];
    const output = { isTTY: true, columns: 30, write: (text: string) => written.push(text) > 0 } as never;
    const meter = openMeter(output, {});
    meter.show({ matched: 12_500, outcomes: { cancelled: 12_480, moved: 20 }, cursor: 'c' });
    meter.settle();
    expect(written).toHaveLength(2);
    expect(written[0]!.startsWith('\r12,500 matched, ')).toBe(true);
    expect(written[0]!.endsWith('…\u001B[K')).toBe(true);
    expect(written[0]!.slice(1, -3)).toHaveLength(29);
    expect(written[1]).toBe('\r\u001B[K');
  });

  it.each([
    ['what is typed', 'yes\nmore\n', 'yes'],
    ['nothing when the input ends', '', ''],
  ])('a question is answered with %s', async (_, typed, answer) => {
    const input = new PassThrough();
    input.end(typed);
    const output = new PassThrough();
    const { signal } = new AbortController();
    expect(await ask('Sure? ', { input, output: output as never, signal })).toBe(answer);
    expect(String(output.read())).toBe('Sure? ');
  });

  it('an interruption ends a question', async () => {
    const stop = new AbortController();
    const asked = ask('Sure? ', {
      input: new PassThrough(),
      output: new PassThrough() as never,
      signal: stop.signal,
    });
    stop.abort();
    expect(await asked).toBe('');
  });
});
