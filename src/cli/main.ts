#!/usr/bin/env node
/**
 * The command `flowfabric`: reads the arguments and hands over to one command. Exit codes: 0 it went well, 1 it did
 * not, 2 the command was not understood. No work is done in this file.
 */
import { readFileSync } from 'node:fs';
import { parseArgs, type ParseArgsConfig } from 'node:util';
import { isEngineError } from '../contract/errors.ts';
import { DEFAULT_SCHEMA, migrate } from '../store/migrate.ts';
import { DEMO_EXECUTIONS, runDemo } from './demo.ts';
import { runDemoWorker } from './demo-worker.ts';

const HELP = `Usage: flowfabric <command> [options]

Commands
  demo       Show durable execution at work: three worker processes, one is killed, nothing is lost.
               --executions N   how many (default ${DEMO_EXECUTIONS.default})
             Starts a Postgres of its own unless DATABASE_URL names one.
  migrate    Create the schema in a Postgres database, or bring it up to date.
               --url URL        the database (default: DATABASE_URL)
               --schema NAME    the schema (default ${DEFAULT_SCHEMA})
               --grant-to ROLE  give this role the rights to run the engine

Options
  --help     Show this text.
  --version  Show the version.

Exit codes: 0 success, 1 failure, 2 the command was not understood.
`;

/** The arguments make no sense; the sentence says which. */
class UsageError extends Error {
  override readonly name = 'UsageError';
}

type Command = (args: string[]) => Promise<number>;

const COMMANDS: Readonly<Record<string, Command>> = {
  demo: demoCommand,
  migrate: migrateCommand,
  // Not in the help: the demo starts it.
  'demo-worker': () => runDemoWorker(),
};

async function demoCommand(args: string[]): Promise<number> {
  const { executions } = optionsOf(args, { executions: { type: 'string' } });
  const { min, max, default: usual } = DEMO_EXECUTIONS;
  const count = executions === undefined ? usual : Number(executions);
  if (!Number.isInteger(count) || count < min || count > max)
    throw new UsageError(`--executions must be a whole number from ${min} to ${max}.`);
  return runDemo({ executions: count, databaseUrl: databaseUrlOf(process.env) });
}

async function migrateCommand(args: string[]): Promise<number> {
  const options = optionsOf(args, {
    schema: { type: 'string' },
    url: { type: 'string' },
    'grant-to': { type: 'string' },
  });
  const databaseUrl = options['url'] ?? databaseUrlOf(process.env);
  if (databaseUrl === undefined) throw new UsageError('Which database? Give --url or set DATABASE_URL.');
  const schema = options['schema'] ?? DEFAULT_SCHEMA;
  const grantTo = options['grant-to'];
  const { applied } = await migrate({ databaseUrl, schema, ...(grantTo === undefined ? {} : { grantTo }) });
  for (const name of applied) console.log(`applied ${name}`);
  console.log(`Schema ${schema} is up to date.`);
  return 0;
}

function optionsOf(
  args: string[],
  options: NonNullable<ParseArgsConfig['options']>,
): Record<string, string | undefined> {
  try {
    return parseArgs({ args, options, strict: true, allowPositionals: false }).values as Record<
      string,
      string | undefined
    >;
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message : String(error));
  }
}

/** An empty variable is one somebody meant to unset. */
function databaseUrlOf(env: NodeJS.ProcessEnv): string | undefined {
  return env['DATABASE_URL'] === '' ? undefined : env['DATABASE_URL'];
}

function version(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

async function run([name, ...args]: string[]): Promise<number> {
  if (name === '--version') {
    console.log(version());
    return 0;
  }
  if (name === '--help' || name === '-h' || name === 'help' || args.includes('--help')) {
    process.stdout.write(HELP);
    return 0;
  }
  if (name === undefined) throw new UsageError('Which command?');
  const command = Object.hasOwn(COMMANDS, name) ? COMMANDS[name] : undefined;
  if (command === undefined) throw new UsageError(`There is no command ${JSON.stringify(name)}.`);
  return command(args);
}

function explain(error: unknown): number {
  if (error instanceof UsageError) {
    console.error(`${error.message}\n\n${HELP}`);
    return 2;
  }
  if (isEngineError(error)) console.error(`${error.code}: ${error.message}`);
  else console.error(error instanceof Error ? error.message : String(error));
  return 1;
}

// Not process.exit(): what was written to a pipe must get out first.
process.exitCode = await run(process.argv.slice(2)).catch(explain);
