/**
 * What every command of `flowfabric` shares: help, usage errors, exit codes, JSON, secrets and Ctrl-C.
 * What a command does is tested in a file of its own.
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
/** With the alias, as the help lists them. */
const COMMANDS = [
  'submit',
  'publish',
  'demo',
  'list',
  'describe|show',
  'steps',
  'explain|why',
  'flows',
  'streams',
  'events',
  'send',
  'cancel',
  'replay',
  'change-priority|priority',
  'set-tags|tag',
  'revoke-lease',
  'waitpoints',
  'approvals',
  'approve',
  'signal',
  'signing-keys',
  'migrate',
  'doctor',
  'top',
  'lanes',
  'workers',
  'consumers',
  'completion',
  'help',
];
const SUBCOMMANDS = [
  'flows list',
  'flows describe|show',
  'flows cancel',
  'streams tail',
  'streams read',
  'events tail',
  'waitpoints list',
  'waitpoints approve',
  'waitpoints issue-token',
  'waitpoints revoke-tokens',
  'signing-keys list',
  'signing-keys rotate',
  'signing-keys revoke',
  'lanes list',
  'lanes pause',
  'lanes resume',
  'workers list',
  'consumers list',
  'consumers move',
  'consumers forget',
];

describe('flowfabric', () => {
  it.each([['--help'], ['-h'], ['help']])('lists the commands in groups with %s', async (flag) => {
    const { exitCode, output, errors } = await runCommand({ args: [flag] });
    expect({ exitCode, errors }).toEqual({ exitCode: 0, errors: '' });
    expect(output).toContain('Usage: flowfabric <command>');
    const groups = output.slice(output.indexOf('Run:'), output.indexOf('Exit codes: 0 ok'));
    expect(groups.match(/^\w+:$/gm)).toEqual(['Run:', 'Inspect:', 'Act:', 'Approve:', 'Operate:']);
    expect([...groups.matchAll(/^ {2}(\S+) /gm)].map(([, name]) => name)).toEqual(COMMANDS);
    expect(groups).toMatch(/^ {2}approvals +short for waitpoints list$/m);
  });

  it('explains every command with an example, within 80 columns', async () => {
    const commands = [...COMMANDS.filter((name) => name !== 'help'), ...SUBCOMMANDS];
    const names = commands.map((name) => name.replace(/\|.*/, ''));
    const helps = await Promise.all(
      names.map((name) => runCommand({ args: [...name.split(' '), '--help'] })),
    );
    helps.forEach(({ exitCode, output }, index) => {
      expect(exitCode).toBe(0);
      expect(output).toContain(`Usage: flowfabric ${commands[index]}`);
      expect(output).toMatch(new RegExp(`^ {2}\\$ .*flowfabric ${names[index]}`, 'm'));
      expect(output).toContain('--url <url>');
      expect(output.split('\n').filter((line) => line.length > 80)).toEqual([]);
    });
  });

  it.each([
    ['show', 'describe'],
    ['why', 'explain'],
    ['tag', 'set-tags'],
    ['priority', 'change-priority'],
    ['flows show', 'flows describe'],
  ])('takes %s for %s', async (alias, name) => {
    const [short, long] = await Promise.all(
      [alias, name].map((words) => runCommand({ args: [...words.split(' '), '--help'] })),
    );
    expect(short).toEqual(long);
  });

  it('prints its version', async () => {
    const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
    const { version } = JSON.parse(text) as { version: string };
    expect(await runProcess({ args: ['--version'] })).toEqual({
      exitCode: 0,
      output: `${version}\n`,
      errors: '',
    });
  });

  it('prints its help on stderr when no command is given, and that is a usage error', async () => {
    const { exitCode, output, errors } = await runProcess({ args: [] });
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain('Usage: flowfabric <command>');
  });

  it.each([
    [['frobnicate'], `Unknown command 'frobnicate'.`],
    [['shwo'], `Unknown command 'shwo'. (Did you mean show?)`],
    [['constructor'], `Unknown command 'constructor'.`],
    [['help', 'nope'], `Unknown command 'nope'.`],
    [['lanes', 'puase', 'x'], `Unknown command 'lanes puase'. (Did you mean lanes pause?)`],
    [['streams', 'raed', ID], `Unknown command 'streams raed'. (Did you mean streams read?)`],
    [['lanes', 'help', 'nope'], `Unknown command 'lanes nope'.`],
    [['demo', '--executions', 'many'], '--executions must be a whole number from 100 to 10000.'],
    [['demo', '--faster'], `Unknown option '--faster'.`],
    [['demo', '--schema', 'mine'], 'demo uses its own schema: omit --schema.'],
    [['migrate'], 'Which database? Give --url or set DATABASE_URL.'],
    [['migrate', '--url', NOWHERE, '--show-sql'], '--show-sql needs --dry-run.'],
    [['migrate', '--url', NOWHERE, 'now'], 'Too many arguments'],
    [
      ['migrate', '--url', NOWHERE, '--schema', 'No-Name'],
      'schema must consist of at most 48 lower-case letters',
    ],
    [['migrate', '--url', 'app'], '--url must be a postgres:// URL.'],
    [['demo', '--url', 'mysql://localhost/app'], '--url must be a postgres:// URL.'],
    [['submit', '--url', NOWHERE], `Missing required argument 'task'.`],
    [['describe', '--url', NOWHERE], `Missing required argument 'id'.`],
    [['show', '--url', NOWHERE, 'me'], 'id must be {fp:N}:<uuid>, or the beginning of its uuid'],
    [['cancel', '--url', NOWHERE, ID], `Required option '--reason <text>' not specified.`],
    [['cancel', '--url', NOWHERE, ID, '--reason', ' '], '--reason must not be empty.'],
    [['cancel', '--url', NOWHERE, ID, '{fp:300}:x', '--reason', 'r'], 'id has a partition'],
    [['flows', 'describe', '--url', NOWHERE, 'me'], 'id must be {fp:N}:<uuid>, or the beginning of its uuid'],
    [['flows', 'describe', '--url', NOWHERE, ID, '--dot', '--mermaid'], '--mermaid or --dot, not both.'],
    [['flows', '--url', NOWHERE, '--limit', '0'], '--limit must be a whole number from 1 to 1000.'],
    [['flows', 'cancel', '--url', NOWHERE, ID], `Required option '--reason <text>' not specified.`],
    [
      ['flows', 'cancel', '--url', NOWHERE, ID, '--reason', 'r', '--policy', 'all'],
      '--policy must be one of',
    ],
    [['revoke-lease', '--url', NOWHERE, ID], `Required option '--reason <text>' not specified.`],
    [['workers'], 'Which database?'],
    [['workers', '--url', NOWHERE, 'all'], `Unknown command 'workers all'.`],
    [['streams', 'read', '--url', NOWHERE], `Missing required argument 'id'.`],
    [['streams', 'tail', '--url', NOWHERE, ID, '--mode', 'some'], '--mode must be one of all, durable.'],
    [
      ['streams', 'tail', '--url', NOWHERE, ID, '--attempt', '0'],
      '--attempt must be a whole number from 1 to',
    ],
    [['streams', 'tail', '--url', NOWHERE, ID, '--from', '1-1'], 'a printed cursor such as'],
    [['events', 'tail'], 'Which database?'],
    [['events', 'tail', '--url', NOWHERE, 'all'], 'Too many arguments'],
    [['events', 'tail', '--url', NOWHERE, '--from', ''], '--from is empty: use now or beginning.'],
    [['consumers'], 'Which database?'],
    [['consumers', 'move', '--url', NOWHERE, 'a'], `Required option '--to <cursor>' not specified.`],
    [['consumers', 'forget', '--url', NOWHERE], `Missing required argument 'name'.`],
    [['top', '--url', NOWHERE, '--every', '1ms'], '--every must be at least 500ms.'],
    [['completion', 'tcsh'], '<shell> must be one of bash, zsh, fish.'],
    [['doctor', '--url', NOWHERE, '--pool-size', '0'], '--pool-size must be a whole number from 1 to 1000.'],
    [['doctor', '--url', NOWHERE, '--transaction-age', '5'], '--transaction-age must be a duration'],
  ])('refuses %j with exit code 2 and a message', async (args, sentence) => {
    const { exitCode, output, errors } = await runCommand({ args });
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(`flowfabric: `);
    expect(errors).toContain(sentence);
  });

  it.each([
    [['frobnicate'], 'flowfabric --help'],
    [['lanes', 'puase', 'x'], 'flowfabric lanes --help'],
    [['lanes', 'pause'], 'flowfabric lanes pause --help'],
    [['describe', ID, '--url', 'app'], 'flowfabric describe --help'],
    [['demo', '--executions', 'many'], 'flowfabric demo --help'],
  ])('refuses %j with a hint at the help of that command', async (args, help) => {
    const { errors } = await runCommand({ args });
    expect(errors).toContain(`hint: \`${help}\` has more\n`);
  });

  it('shows the limits of the demo in its help, and no option that the demo refuses', async () => {
    const { output } = await runCommand({ args: ['demo', '--help'] });
    expect(output).toContain('how many, 100 to 10000 (default: 1000)');
    expect(output).toContain('--url <url>');
    expect(output).not.toMatch(/--schema|--json/);
  });

  it('says what to run instead when demo-worker is started by hand', async () => {
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
  it('about an unreachable database makes every command exit with 69', async () => {
    const commands = [
      ['migrate'],
      ['migrate', '--dry-run'],
      ['demo'],
      ['submit', 'greet'],
      ['describe', ID],
      ['cancel', ID, '--reason', 'r'],
      ['workers'],
      ['streams', 'tail', ID],
      ['events', 'tail'],
      ['consumers', 'list'],
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
    [['describe', ID]],
    [['cancel', ID, '--reason', 'r']],
    [['workers']],
    [['events', 'tail']],
  ])('about a missing schema makes %j name the command that creates it', async (args) => {
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
  it('ends a command that waits for a server that does not answer', async () => {
    const sockets: Socket[] = [];
    const server = createServer((socket) => void sockets.push(socket)).listen(0, '127.0.0.1');
    onTestFinished(() => {
      for (const socket of sockets) socket.destroy();
      server.close();
    });
    await once(server, 'listening');
    const { port } = server.address() as AddressInfo;
    const connected = once(server, 'connection');
    const started = startCommand({ args: ['describe', ID], databaseUrl: `postgres://x@127.0.0.1:${port}/x` });
    await connected;
    started.child.kill('SIGINT');
    expect(await started.exitCode).toBe(130);
    expect(started.output()).toBe('');
  });
});
