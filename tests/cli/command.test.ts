/**
 * What `flowfabric` answers to its arguments, whatever the command: help, mistakes, exit codes, JSON, secrets, Ctrl-C.
 */
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished } from 'vitest';
import { EXIT } from '../../src/cli/exit-codes.ts';
import { emptyDatabase } from '../setup/database.ts';
import { runCommand, runProcess, startCommand } from './processes.ts';

const NOWHERE = 'postgres://nobody@127.0.0.1:1/nothing';
const ID = '{fp:12}:01890a5d-ac96-774b-bcce-b302099a8057';
const COMMANDS = [
  'demo',
  'migrate',
  'submit',
  'show',
  'list',
  'why',
  'replay',
  'cancel',
  'priority',
  'tag',
  'flow',
  'flows',
  'cancel-flow',
  'approvals',
  'approve',
  'signal',
  'token',
  'keys',
  'lanes',
  'workers',
  'stream',
  'tail',
  'consumers',
  'doctor',
];

describe('flowfabric', () => {
  it.each([['--help'], ['-h'], ['help']])('explains itself with %s', async (flag) => {
    const { exitCode, output, errors } = await runCommand({ args: [flag] });
    expect({ exitCode, errors }).toEqual({ exitCode: 0, errors: '' });
    expect(output).toContain('Usage: flowfabric <command>');
    for (const name of COMMANDS) expect(output).toMatch(new RegExp(`^ {2}${name} `, 'm'));
    expect(output).toContain('Exit codes: 0 ok');
    expect(output).not.toContain('demo-worker');
  });

  it('explains every command with an example', async () => {
    const said = await Promise.all(COMMANDS.map((name) => runCommand({ args: [name, '--help'] })));
    said.forEach(({ exitCode, output }, index) => {
      const name = COMMANDS[index]!;
      expect(exitCode).toBe(0);
      expect(output).toContain(`Usage: flowfabric ${name}`);
      expect(output).toMatch(new RegExp(`^ {2}\\$ .*flowfabric ${name}`, 'm'));
      expect(output).toContain('--url <url>');
    });
  });

  it('says its version', async () => {
    const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
    const { version } = JSON.parse(text) as { version: string };
    expect(await runProcess({ args: ['--version'] })).toEqual({
      exitCode: 0,
      output: `${version}\n`,
      errors: '',
    });
  });

  it('shows its help on stderr when no command is given, and that is a mistake', async () => {
    const { exitCode, output, errors } = await runProcess({ args: [] });
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain('Usage: flowfabric <command>');
  });

  it.each([
    [['frobnicate'], `Unknown command 'frobnicate'.`],
    [['shwo'], `Unknown command 'shwo'. (Did you mean show?)`],
    [['constructor'], `Unknown command 'constructor'.`],
    [['demo', '--executions', 'many'], '--executions must be a whole number from 100 to 10000.'],
    [['demo', '--faster'], `Unknown option '--faster'.`],
    [['demo', '--schema', 'mine'], 'demo has a schema of its own'],
    [['migrate'], 'Which database? Give --url or set DATABASE_URL.'],
    [['migrate', '--url', NOWHERE, '--show-sql'], '--show-sql needs --dry-run.'],
    [['migrate', '--url', NOWHERE, 'now'], 'Too many arguments'],
    [['migrate', '--url', NOWHERE, '--schema', 'No-Name'], 'schema must be lower-case letters'],
    [['migrate', '--url', 'app'], 'must be a postgres:// URL'],
    [['submit', '--url', NOWHERE], `Missing required argument 'task'.`],
    [['show', '--url', NOWHERE], `Missing required argument 'id'.`],
    [['show', '--url', NOWHERE, 'me'], 'id does not begin with {fp: as an id of the form'],
    [['cancel', '--url', NOWHERE, ID], `Required option '--reason <text>' not specified.`],
    [['cancel', '--url', NOWHERE, ID, '--reason', ' '], '--reason must say why.'],
    [['cancel', '--url', NOWHERE, ID, '{fp:300}:x', '--reason', 'r'], 'id has a partition'],
    [['flow', '--url', NOWHERE, 'me'], 'id does not begin with {fp: as an id of the form'],
    [['flow', '--url', NOWHERE, ID, '--dot', '--mermaid'], '--mermaid or --dot, not both.'],
    [['flows', '--url', NOWHERE, '--limit', '0'], '--limit must be a whole number from 1 to 1000.'],
    [['cancel-flow', '--url', NOWHERE, ID], `Required option '--reason <text>' not specified.`],
    [['cancel-flow', '--url', NOWHERE, ID, '--reason', 'r', '--policy', 'all'], '--policy must be one of'],
    [['workers'], 'Which database?'],
    [['workers', '--url', NOWHERE, 'all'], 'Too many arguments'],
    [['stream', '--url', NOWHERE], `Missing required argument 'id'.`],
    [['stream', '--url', NOWHERE, ID, '--mode', 'some'], '--mode must be one of all, durable.'],
    [['stream', '--url', NOWHERE, ID, '--attempt', '0'], '--attempt must be a whole number from 1 to'],
    [['stream', '--url', NOWHERE, ID, '--from', '1-1'], 'a cursor that was printed'],
    [['tail'], 'Which database?'],
    [['tail', '--url', NOWHERE, 'all'], 'Too many arguments'],
    [['tail', '--url', NOWHERE, '--from', ''], '--from is empty: say now or beginning.'],
    [['consumers'], 'Which database?'],
    [['consumers', '--url', NOWHERE, '--move', 'a'], '--move needs --to: now, beginning or a cursor.'],
    [['consumers', '--url', NOWHERE, '--to', 'now'], '--to needs --move.'],
    [['consumers', '--url', NOWHERE, '--forget', 'a', '--to', 'now'], '--to needs --move.'],
    [['consumers', '--url', NOWHERE, '--forget', 'a', '--move', 'a', '--to', 'now'], 'not both.'],
    [['doctor', '--url', NOWHERE, '--pool-size', '0'], '--pool-size must be a whole number from 1 to 1000.'],
    [['doctor', '--url', NOWHERE, '--transaction-age', '5'], '--transaction-age must be a duration'],
  ])('refuses %j with exit code 2 and a sentence', async (args, sentence) => {
    const { exitCode, output, errors } = await runCommand({ args });
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(`flowfabric: `);
    expect(errors).toContain(sentence);
  });

  it('tells a person who starts demo-worker by hand what to run', async () => {
    const { exitCode, errors } = await runProcess({ args: ['demo-worker'] });
    expect(exitCode).toBe(2);
    expect(errors).toContain('flowfabric demo');
  });
});

describe('the exit codes', () => {
  it('are all in the documentation, and no others', () => {
    const page = readFileSync(new URL('../../docs/cli.md', import.meta.url), 'utf8');
    const documented = [...page.matchAll(/^\| (\d+) +\|/gm)].map(([, code]) => Number(code));
    expect(documented).toEqual([...Object.values(EXIT), 130]);
  });
});

describe('an error', () => {
  it('of a database that is not there makes every command exit with 69', async () => {
    const commands = [
      ['migrate'],
      ['migrate', '--dry-run'],
      ['demo'],
      ['submit', 'greet'],
      ['show', ID],
      ['cancel', ID, '--reason', 'r'],
      ['workers'],
      ['stream', ID],
      ['tail'],
      ['consumers'],
      ['doctor'],
    ];
    // Side by side: each tries for a while to reach the database.
    const ends = await Promise.all(commands.map((args) => runProcess({ args, databaseUrl: NOWHERE })));
    for (const { exitCode, errors } of ends) {
      expect(errors).toMatch(/^flowfabric: While .* \[unavailable\]$/m);
      expect(exitCode).toBe(69);
    }
  });

  it.each([
    [['submit', 'greet']],
    [['show', ID]],
    [['cancel', ID, '--reason', 'r']],
    [['workers']],
    [['tail']],
  ])('of a schema that is not there makes %j say which command makes it', async (args) => {
    await using database = await emptyDatabase();
    const { exitCode, output, errors } = await runCommand({ args, databaseUrl: database.url });
    expect({ exitCode, output }).toEqual({ exitCode: 1, output: '' });
    expect(errors).toContain('[schema_missing]');
    expect(errors).toContain('flowfabric migrate');
  });

  it('is an object on stderr with --json, and stdout stays empty', async () => {
    const { exitCode, output, errors } = await runCommand({ args: ['shwo', '--json'] });
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(JSON.parse(errors)).toEqual({
      error: { code: 'usage', message: expect.stringContaining('shwo'), hint: expect.any(String) },
    });
  });
});

describe('a password', () => {
  it.each([
    [['migrate', '--url', 'postgres://ada:hunter2@127.0.0.1:1/x']],
    [['doctor', '--url', 'postgres://ada@127.0.0.1:1/x?password=hunter2']],
    [['migrate', '--rul=postgres://ada:hunter2@127.0.0.1:1/x']],
    [['postgres://ada:hunter2@127.0.0.1:1/x']],
    [['workers', '--json', '--url', 'postgres://ada:hunter2@127.0.0.1:1/x', 'postgres://a:hunter2@h/x']],
  ])('is not printed by %j', async (args) => {
    const { exitCode, output, errors } = await runCommand({ args });
    expect(exitCode).toBeGreaterThan(0);
    expect(output + errors).not.toContain('hunter2');
  });
});

describe('Ctrl-C', () => {
  it('ends a command that waits for a server without an answer', async () => {
    const sockets: Socket[] = [];
    const server = createServer((socket) => void sockets.push(socket)).listen(0, '127.0.0.1');
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const connected = once(server, 'connection');
    const started = startCommand({ args: ['show', ID], databaseUrl: `postgres://x@127.0.0.1:${port}/x` });
    await connected;
    started.child.kill('SIGINT');
    expect(await started.exitCode).toBe(130);
    expect(started.output()).toBe('');
  });
});
