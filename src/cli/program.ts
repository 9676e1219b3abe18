/**
 * The command line of `flowfabric`: the options every command has, and the list of commands in the groups and the order
 * of the help. Each command is described in a file of its own; nothing is done here.
 */
import { readFileSync } from 'node:fs';
import type { Argument, Command, Option } from 'commander';
import { DEFAULT_SCHEMA } from '../engine/database/migrations/migrate.ts';
import { HELP_COMMAND, register, shortcut, type CommandSpec, type OnExit } from './command.ts';
import { cancel } from './commands/cancel.ts';
import { changePriority } from './commands/change-priority.ts';
import { completion } from './commands/completion.ts';
import { consumers } from './commands/consumers.ts';
import { demo } from './commands/demo.ts';
import { describe } from './commands/describe.ts';
import { doctor } from './commands/doctor.ts';
import { events } from './commands/events.ts';
import { explain } from './commands/explain.ts';
import { flows } from './commands/flows.ts';
import { lanes } from './commands/lanes.ts';
import { list } from './commands/list.ts';
import { migrate } from './commands/migrate.ts';
import { publish } from './commands/publish.ts';
import { replay } from './commands/replay.ts';
import { revokeLease } from './commands/revoke-lease.ts';
import { send } from './commands/send.ts';
import { setTags } from './commands/set-tags.ts';
import { signal } from './commands/signal.ts';
import { signingKeys } from './commands/signing-keys.ts';
import { steps } from './commands/steps.ts';
import { streams } from './commands/streams.ts';
import { submit } from './commands/submit.ts';
import { top } from './commands/top.ts';
import { waitpoints } from './commands/waitpoints.ts';
import { workers } from './commands/workers.ts';
import { runDemoWorker } from './demo/worker.ts';
import { StrictCommand, throwFrom } from './usage-errors.ts';

/** A command without a noun acts on executions. */
const GROUPS: Readonly<Record<string, readonly CommandSpec[]>> = {
  'Run:': [submit, publish, demo],
  'Inspect:': [list, describe, steps, explain, flows, streams, events],
  'Act:': [send, cancel, replay, changePriority, setTags, revokeLease],
  'Approve:': [
    waitpoints,
    shortcut('approvals', waitpoints, 'list'),
    shortcut('approve', waitpoints, 'approve'),
    signal,
    signingKeys,
  ],
  'Operate:': [migrate, doctor, top, lanes, workers, consumers],
};

const LAST_GROUP = Object.keys(GROUPS).at(-1)!;

const EXIT_CODES_HELP = `
Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 refused by state,
  69 unavailable, 124 timed out, 130 interrupted.

Example:
  $ export DATABASE_URL=postgres://user@localhost/app
  $ flowfabric migrate
  $ flowfabric submit greet --input '{"name":"Ada"}' --wait
`;

/** The whole command line. Usage errors are thrown, with nothing printed. */
export function buildProgram(onExit: OnExit): Command {
  const program = new StrictCommand('flowfabric')
    .description('Durable execution on plain Postgres. Commands without a noun act on executions.')
    .usage('<command> [options]')
    .option('--url <url>', 'the database (default: the variable DATABASE_URL)')
    .option('--schema <name>', `the schema (default: ${DEFAULT_SCHEMA})`)
    .option('--json', 'print JSON: one object, or one per line for lists')
    .option('--no-color', 'print no colours (also: the variable NO_COLOR)')
    .version(version(), '--version', 'show the version')
    .helpOption('-h, --help', 'show this text')
    .configureHelp({
      showGlobalOptions: true,
      subcommandTerm: namesOf,
      optionDescription,
      argumentDescription,
    })
    .configureOutput({ outputError: () => undefined })
    .addHelpText('after', EXIT_CODES_HELP);
  program.exitOverride((error) => throwFrom(program, error));
  for (const [heading, commands] of Object.entries(GROUPS))
    for (const spec of commands) register(program, spec, onExit).helpGroup(heading);
  register(
    program,
    completion(() => program),
    onExit,
  ).helpGroup(LAST_GROUP);
  program.commandsGroup(LAST_GROUP).helpCommand(...HELP_COMMAND);
  // Hidden from the help: the demo starts it.
  program.command('demo-worker', { hidden: true }).action(async () => onExit(await runDemoWorker()));
  return program;
}

/** Without arguments and options, which are in the help of the command, so that the list fits a terminal. */
function namesOf(command: Command): string {
  return [command.name(), ...command.aliases()].join('|');
}

/** In the words of the command: commander would append the choices, which they explain. */
function optionDescription({ description, defaultValueDescription }: Option): string {
  return defaultValueDescription === undefined
    ? description
    : `${description} (default: ${defaultValueDescription})`;
}

function argumentDescription({ description }: Argument): string {
  return description;
}

function version(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}
