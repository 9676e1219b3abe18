/**
 * The command line of `flowfabric`: which commands and options there are, and what their help says. Each command is
 * one call into a file of its own; no work is done here.
 */
import { readFileSync } from 'node:fs';
import { Command } from 'commander';
import { DEFAULT_SCHEMA } from '../engine/database/migrate.ts';
import { addBulkOptions } from './commands/bulk.ts';
import { cancelCommand, type CancelOptions } from './commands/cancel.ts';
import { consumersCommand, describeConsumers, type ConsumersOptions } from './commands/consumers.ts';
import { DEMO_EXECUTIONS, runDemo } from './demo/demo.ts';
import { runDemoWorker } from './demo/worker.ts';
import { doctorCommand, type DoctorOptions } from './commands/doctor.ts';
import { UsageError } from './exit-codes.ts';
import { addFilterOptions, collect } from './filter-options.ts';
import { FLOW_COMMANDS } from './commands/flow-commands.ts';
import { parseWhole } from './input.ts';
import { laneCommand, lanesCommand, type LaneOptions, type LaneVerb } from './commands/lanes.ts';
import { listCommand, type ListOptions } from './commands/list.ts';
import { migrateCommand, type MigrateCommandOptions } from './commands/migrate.ts';
import { priorityCommand, type PriorityOptions } from './commands/priority.ts';
import { replayCommand, type ReplayOptions } from './commands/replay.ts';
import { AN_ID, examples, ID_HELP, IDS_HELP, run, type OnExit } from './registering.ts';
import { databaseUrlOf, environmentFor, type GlobalOptions } from './session.ts';
import { showCommand, type ShowOptions } from './commands/show.ts';
import { SIGNAL_COMMANDS } from './commands/signal-commands.ts';
import { describeStream, streamCommand, type StreamOptions } from './commands/stream.ts';
import { submitCommand, type SubmitOptions } from './commands/submit.ts';
import { tagCommand, type TagOptions } from './commands/tag.ts';
import { describeTail, tailCommand, type TailOptions } from './commands/tail.ts';
import { whyCommand } from './commands/why.ts';
import { workersCommand } from './commands/workers.ts';

/** The whole command line. Usage errors are thrown as commander's own, with nothing printed. */
export function buildProgram(onExit: OnExit): Command {
  const program = new Command('flowfabric')
    .description('Durable execution on plain Postgres.')
    .usage('<command> [options]')
    .option('--url <url>', 'the database (default: the variable DATABASE_URL)')
    .option('--schema <name>', `the schema (default: ${DEFAULT_SCHEMA})`)
    .option('--json', 'print JSON: one object, or one per line for lists')
    .option('--no-color', 'print no colours (also: the variable NO_COLOR)')
    .version(version(), '--version', 'show the version')
    .helpOption('-h, --help', 'show this text')
    .helpCommand('help [command]', 'show the help of a command')
    .configureHelp({ showGlobalOptions: true })
    .configureOutput({ outputError: () => undefined })
    .exitOverride()
    .addHelpText('after', EXIT_CODES_HELP);
  for (const add of COMMANDS) add(program, onExit);
  // Not in the help: the demo starts it.
  program.command('demo-worker', { hidden: true }).action(async () => onExit(await runDemoWorker()));
  return program;
}

/** In the order of the help. */
const COMMANDS = [
  addDemo,
  addMigrate,
  addSubmit,
  addList,
  addShow,
  addWhy,
  addCancel,
  addReplay,
  addPriority,
  addTag,
  ...FLOW_COMMANDS,
  ...SIGNAL_COMMANDS,
  addLanes,
  addWorkers,
  addStream,
  addTail,
  addConsumers,
  addDoctor,
];

const EXIT_CODES_HELP = `
Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 refused by state, 69 unavailable, 124 timed out, 130 interrupted.

Example:
  $ export DATABASE_URL=postgres://user@localhost/app
  $ flowfabric migrate && flowfabric submit greet --input '{"name":"Ada"}' --wait
`;

function version(): string {
  const text = readFileSync(new URL('../../package.json', import.meta.url), 'utf8');
  return (JSON.parse(text) as { version: string }).version;
}

function addDemo(program: Command, onExit: OnExit): void {
  program
    .command('demo')
    .summary('show durable execution at work')
    .description(
      'Three worker processes, one is killed in the middle, nothing is lost.\n' +
        'Starts a Postgres of its own unless --url or DATABASE_URL names one.',
    )
    .option('--executions <n>', 'how many', String(DEMO_EXECUTIONS.default))
    .addHelpText('after', examples('flowfabric demo --executions 200'))
    .action(async (options: { executions: string }, command: Command) => {
      const globals = command.optsWithGlobals<GlobalOptions>();
      const executions = parseWhole(options.executions, '--executions', DEMO_EXECUTIONS);
      if (globals.schema !== undefined)
        throw new UsageError('demo has a schema of its own; leave --schema out.');
      if (globals.json) throw new UsageError('demo is for people and prints no JSON.');
      onExit(
        await runDemo({ executions, databaseUrl: databaseUrlOf(globals), env: environmentFor(globals) }),
      );
    });
}

function addMigrate(program: Command, onExit: OnExit): void {
  program
    .command('migrate')
    .summary('create the schema, or bring it up to date')
    .description(
      'Create the schema in a Postgres database, or bring it up to date. Safe to run again, and from many\n' +
        'processes at once.',
    )
    .option('--grant-to <role>', 'give this role the rights to run the engine')
    .option('--dry-run', 'say what would be applied and change nothing')
    .option('--show-sql', 'with --dry-run: print the SQL as well')
    .addHelpText(
      'after',
      examples(
        'flowfabric migrate --url postgres://owner@localhost/app --grant-to app',
        'flowfabric migrate --dry-run --show-sql > next.sql',
      ),
    )
    .action((options: MigrateCommandOptions, command: Command) =>
      run(command, onExit, (session) => migrateCommand(options, session)),
    );
}

function addSubmit(program: Command, onExit: OnExit): void {
  program
    .command('submit')
    .summary('submit an execution of a task')
    .description('Submit an execution of a task and print its id; with --wait, its result.')
    .argument('<task>', 'the name a worker handles it under')
    .option('--input <json>', 'the input: JSON, @file, or - for stdin')
    .option('--lane <name>', 'the queue')
    .option('--priority <n>', '0 to 9000, higher first')
    .option('--namespace <name>', 'whose it is')
    .option('--tag <key=value>', 'a tag; may be given more than once', collect)
    .option('--delay <duration>', 'start no sooner than this from now, such as 90s, 5m, 1h30m')
    .option('--deadline <duration>', 'end as expired when it has not ended this long from now')
    .option('--key <key>', 'an idempotency key: a second submit with it is a duplicate')
    .option('--id <id>', 'submit under this id, {fp:N}:uuid; a second time it is a duplicate')
    .option('--wait', 'wait for the end: print the result, exit 1 when there is none')
    .option('--timeout <duration>', 'with --wait: give up waiting, with exit code 124; the execution goes on')
    .addHelpText(
      'after',
      examples(
        `flowfabric submit greet --input '{"name":"Ada"}' --wait --timeout 30s`,
        'flowfabric submit report --input @report.json --lane slow --tag customer=42 --delay 5m',
        'generate | flowfabric submit import --input -',
      ),
    )
    .action((task: string, options: SubmitOptions, command: Command) =>
      run(command, onExit, (session) => submitCommand(task, options, session)),
    );
}

const FILTER_NOTE = 'Either ids or a filter. A filter asks before it acts; --dry-run only looks.';

function addList(program: Command, onExit: OnExit): void {
  addFilterOptions(
    program
      .command('list')
      .summary('find executions')
      .description('List executions that fit all conditions: newest first, ends by when they ended.'),
  )
    .option('--limit <n>', 'how many, 1 to 1000 (default: 50)')
    .option('--cursor <cursor>', 'go on after a page that was listed before')
    .option('--all', 'all of them')
    .addHelpText(
      'after',
      examples(
        'flowfabric list --state failed --ended-after 2h --error-contains timeout',
        'flowfabric list --lane mail --tag customer=42 --limit 200',
        'flowfabric list --state active --all --json | jq -r .workerInstanceId | sort | uniq -c',
      ),
    )
    .action((options: ListOptions, command: Command) =>
      run(command, onExit, (session) => listCommand(options, session)),
    );
}

function addShow(program: Command, onExit: OnExit): void {
  program
    .command('show')
    .summary('show one execution')
    .description('Show an execution: its state and why, its lease, attempts, progress, steps and result.')
    .argument('<id>', ID_HELP)
    .option('--attempts', 'list all attempts, with what is known about each')
    .addHelpText('after', examples(`flowfabric show ${AN_ID}`))
    .action((id: string, options: ShowOptions, command: Command) =>
      run(command, onExit, (session) => showCommand(id, options, session)),
    );
}

function addWhy(program: Command, onExit: OnExit): void {
  program
    .command('why')
    .summary('say why an execution is not running')
    .description('Say what keeps an execution from running, all that may do so, and what helps.')
    .argument('<id>', ID_HELP)
    .addHelpText('after', examples(`flowfabric why ${AN_ID}`))
    .action((id: string, _options: object, command: Command) =>
      run(command, onExit, (session) => whyCommand(id, session)),
    );
}

function addCancel(program: Command, onExit: OnExit): void {
  const cancel = program
    .command('cancel')
    .summary('cancel executions')
    .description(`Cancel executions for good. Their handlers are told; the reason is kept.\n${FILTER_NOTE}`)
    .argument('[id...]', IDS_HELP)
    .option('--reason <text>', 'why (required)')
    .option('--by <name>', 'who asks (default: operator)');
  addBulkOptions(cancel)
    .addHelpText(
      'after',
      examples(
        `flowfabric cancel ${AN_ID} --reason 'sent twice' --by ada`,
        'flowfabric cancel --lane mail --tag customer=42 --dry-run',
      ),
    )
    .action((ids: string[], options: CancelOptions, command: Command) =>
      run(command, onExit, (session) => cancelCommand(ids, options, session)),
    );
}

function addReplay(program: Command, onExit: OnExit): void {
  const replay = program
    .command('replay')
    .summary('run executions again')
    .description(`Run executions again after they have ended. Their history stays.\n${FILTER_NOTE}`)
    .argument('[id...]', IDS_HELP)
    .option('--from <place>', 'failed_step keeps finished steps, start does all again (default: failed_step)')
    .option('--reason <text>', 'why (required)')
    .option('--by <name>', 'who asks (default: operator)');
  addBulkOptions(replay)
    .addHelpText(
      'after',
      examples(
        `flowfabric replay ${AN_ID} --reason 'the mail server is back'`,
        `flowfabric replay --state failed --ended-after 2h --error-contains ECONNREFUSED --reason 'it is back'`,
      ),
    )
    .action((ids: string[], options: ReplayOptions, command: Command) =>
      run(command, onExit, (session) => replayCommand(ids, options, session)),
    );
}

function addPriority(program: Command, onExit: OnExit): void {
  const priority = program
    .command('priority')
    .summary('move waiting executions in the queue')
    .description(`Change the priority of executions that wait for a worker.\n${FILTER_NOTE}`)
    .argument('<n>', '0 to 9000, higher first')
    .argument('[id...]', IDS_HELP)
    .option('--by <name>', 'who asks (default: operator)');
  addBulkOptions(priority)
    .addHelpText(
      'after',
      examples(`flowfabric priority 9000 ${AN_ID}`, 'flowfabric priority 0 --lane mail --kind newsletter'),
    )
    .action((n: string, ids: string[], options: PriorityOptions, command: Command) =>
      run(command, onExit, (session) => priorityCommand(n, ids, options, session)),
    );
}

function addTag(program: Command, onExit: OnExit): void {
  program
    .command('tag')
    .summary('change the tags of an execution')
    .description('Add, replace and remove tags of an execution, and print those it has then.')
    .argument('<id>', ID_HELP)
    .argument('[key=value...]', 'tags to add or to replace')
    .option('--remove <key>', 'a tag to remove; may be given more than once', collect)
    .option('--by <name>', 'who asks (default: operator)')
    .addHelpText('after', examples(`flowfabric tag ${AN_ID} ticket=4711 --remove draft`))
    .action((id: string, pairs: string[], options: TagOptions, command: Command) =>
      run(command, onExit, (session) => tagCommand(id, pairs, options, session)),
    );
}

function addLanes(program: Command, onExit: OnExit): void {
  const lanes = program
    .command('lanes')
    .summary('list the lanes; hold one, let it go')
    .description('List the lanes: how much waits, since when, and how fast it goes.')
    .addHelpText(
      'after',
      examples('flowfabric lanes', 'flowfabric lanes pause mail', 'flowfabric lanes --json'),
    )
    .action((_options: object, command: Command) => run(command, onExit, (session) => lanesCommand(session)));
  const verb = (name: LaneVerb, description: string): Command =>
    lanes
      .command(name)
      .description(description)
      .argument('<lane>', 'its name')
      .action((lane: string, options: LaneOptions, command: Command) =>
        run(command, onExit, (session) => laneCommand(name, lane, options, session)),
      );
  verb('pause', 'Give out no work of a lane from now on; what runs goes on.')
    .option('--reason <text>', 'why')
    .option('--by <name>', 'who asks (default: operator)')
    .addHelpText('after', examples(`flowfabric lanes pause mail --reason 'the mail server is down'`));
  verb('resume', 'Give out work of a lane again.').addHelpText(
    'after',
    examples('flowfabric lanes resume mail'),
  );
}

function addWorkers(program: Command, onExit: OnExit): void {
  program
    .command('workers')
    .summary('list the workers')
    .description(
      'List the registered workers, the newest first. A live one is heard of about every 10 seconds.',
    )
    .addHelpText('after', examples('flowfabric workers', 'flowfabric workers --json | jq .workerId'))
    .action((_options: object, command: Command) =>
      run(command, onExit, (session) => workersCommand(session)),
    );
}

function addStream(program: Command, onExit: OnExit): void {
  describeStream(program.command('stream'))
    .addHelpText(
      'after',
      examples(
        `flowfabric stream ${AN_ID}`,
        `flowfabric stream ${AN_ID} --from 0/1794802913416-17 --json | jq .cursor`,
      ),
    )
    .action((id: string, options: StreamOptions, command: Command) =>
      run(command, onExit, (session) => streamCommand(id, options, session)),
    );
}

function addTail(program: Command, onExit: OnExit): void {
  describeTail(program.command('tail'))
    .addHelpText(
      'after',
      examples(
        'flowfabric tail --family completion --type failed',
        'flowfabric tail --from beginning --no-follow --json | jq .type',
      ),
    )
    .action((options: TailOptions, command: Command) =>
      run(command, onExit, (session) => tailCommand(options, session)),
    );
}

function addConsumers(program: Command, onExit: OnExit): void {
  describeConsumers(program.command('consumers'))
    .addHelpText('after', examples('flowfabric consumers', 'flowfabric consumers --move billing --to now'))
    .action((options: ConsumersOptions, command: Command) =>
      run(command, onExit, (session) => consumersCommand(options, session)),
    );
}

function addDoctor(program: Command, onExit: OnExit): void {
  program
    .command('doctor')
    .summary('look for trouble in the installation')
    .description(
      'Examine the server, the schema, the role and what runs. Exit code 1 when there is a problem.',
    )
    .option('--listen-url <url>', 'where your processes listen, when that is another URL')
    .option('--pool-size <n>', 'connections in the pool of one of your processes', '10')
    .option('--transaction-age <duration>', 'report open transactions older than this', '5m')
    .addHelpText('after', examples('flowfabric doctor', 'flowfabric doctor --json --pool-size 20'))
    .action((options: DoctorOptions, command: Command) =>
      run(command, onExit, (session) => doctorCommand(options, session)),
    );
}
