/**
 * What `flowfabric` answers to its arguments: help, mistakes, and the migrate command.
 */
import { readFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { emptyDatabase } from '../setup/database.ts';
import { runCommand } from './processes.ts';

const NOWHERE = 'postgres://nobody@127.0.0.1:1/nothing';

describe('flowfabric', () => {
  it('explains itself with --help', async () => {
    const { exitCode, output } = await runCommand({ args: ['--help'] });
    expect(exitCode).toBe(0);
    expect(output).toContain('Usage: flowfabric <command>');
    expect(output).toMatch(/^ {2}demo /m);
    expect(output).toMatch(/^ {2}migrate /m);
    expect(output).not.toContain('demo-worker');
  });

  it('says its version', async () => {
    const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
    const { version } = JSON.parse(text) as { version: string };
    expect(await runCommand({ args: ['--version'] })).toEqual({
      exitCode: 0,
      output: `${version}\n`,
      errors: '',
    });
  });

  it.each([
    [['frobnicate'], 'There is no command "frobnicate".'],
    [['constructor'], 'There is no command "constructor".'],
    [[], 'Which command?'],
    [['demo', '--executions', 'many'], '--executions must be a whole number from 100 to 10000.'],
    [['demo', '--faster'], "Unknown option '--faster'"],
    [['migrate'], 'Which database? Give --url or set DATABASE_URL.'],
  ])('refuses %j with a sentence and the help', async (args, sentence) => {
    const { exitCode, output, errors } = await runCommand({ args });
    expect({ exitCode, output }).toEqual({ exitCode: 2, output: '' });
    expect(errors).toContain(sentence);
    expect(errors).toContain('Usage: flowfabric <command>');
  });

  it('tells a person who starts demo-worker by hand what to run', async () => {
    const { exitCode, errors } = await runCommand({ args: ['demo-worker'] });
    expect(exitCode).toBe(2);
    expect(errors).toContain('flowfabric demo');
  });

  it.each([[['migrate']], [['demo']]])(
    'names the code of an error that %j meets at the database',
    async (args) => {
      const { exitCode, errors } = await runCommand({ args, databaseUrl: NOWHERE });
      expect(exitCode).toBe(1);
      expect(errors).toMatch(/^unavailable: /);
    },
  );
});

describe('flowfabric migrate', () => {
  it('creates the schema it is told to, and finds nothing to do the second time', async () => {
    const database = await emptyDatabase();
    onTestFinished(() => database.drop());
    const args = ['migrate', '--schema', 'orders', '--url', database.url];
    const first = await runCommand({ args, databaseUrl: NOWHERE });
    expect(first.exitCode).toBe(0);
    expect(first.output).toContain('applied 0001_');
    const second = await runCommand({ args });
    expect(second).toEqual({ exitCode: 0, output: 'Schema orders is up to date.\n', errors: '' });
    const found = await database.query(`SELECT 1 FROM orders.ff_migration`);
    expect(found.rowCount).toBeGreaterThan(0);
  });
});
