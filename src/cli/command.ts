/**
 * The shape every command has, and how it is registered with commander. A command is described as data (name, texts,
 * arguments, options, examples) and one function; a noun is a command with commands of its own. Which commands exist is
 * listed in program.ts, and each is described in a file of its own.
 */
import { Argument, Help, Option, type Command } from 'commander';
import { placeOfId, withKey, withKeyOptions } from './by-key.ts';
import { UsageError } from './exit-codes.ts';
import { runCommand, type GlobalOptions, type Session } from './session.ts';
import { throwFrom, type StrictCommand } from './usage-errors.ts';

/** Receives the exit code of the command that ran. */
export type OnExit = (exitCode: number) => void;

export interface OptionMore {
  /** Shown, and used when the option is absent. */
  readonly default?: string;
  readonly isRepeatable?: true;
  /** Any other value is refused. */
  readonly choices?: readonly string[];
}

export type OptionSpec = readonly [flags: string, help: string, more?: OptionMore];

export interface CommandSpec {
  readonly name: string;
  /** Another name on the same level. */
  readonly alias?: string;
  /** The line in the list of commands. */
  readonly summary: string;
  readonly description: string;
  /** Each as `<name>`, `[name]` or `[name...]`, with its help, and the values it may have. */
  readonly arguments?: readonly (readonly [name: string, help: string, choices?: readonly string[]])[];
  readonly options?: readonly OptionSpec[];
  readonly examples: readonly string[];
  /** Options of every command that this one refuses; its help does not list them. */
  readonly refused?: readonly string[];
  /** A noun's commands; the first one runs when none is named. */
  readonly commands?: readonly CommandSpec[];
  /** Receives the arguments in their order. Returns the exit code; a noun has none. */
  action?(session: Session, options: object, ...given: unknown[]): Promise<number>;
  /** In place of `action`, for a command that handles interruptions itself. */
  standalone?(globals: GlobalOptions, options: object): Promise<number>;
}

export { ID_ARGUMENT, IDS_ARGUMENT, MAYBE_ID_ARGUMENT } from './by-key.ts';

/** An id in an example. */
export const AN_ID = '"$id"';
export const BY_OPTION: OptionSpec = ['--by <name>', 'who requests it (default: operator)'];
export const REASON_OPTION: OptionSpec = ['--reason <text>', 'why (required)'];
export const CURSOR_OPTION: OptionSpec = ['--cursor <cursor>', 'continue after an earlier page'];

/** What `help` says about itself, here and below every noun. */
export const HELP_COMMAND = ['help [command]', 'show the help of a command'] as const;

/** Registers a command, and a noun's commands below it. */
export function register(
  parent: StrictCommand,
  spec: CommandSpec,
  onExit: OnExit,
  isDefault = false,
): Command {
  const { name, alias, commands = [], action, standalone } = spec;
  const command = parent.command(name, { isDefault }) as StrictCommand;
  command
    .exitOverride((error) => throwFrom(command, error))
    .summary(spec.summary)
    .description(
      commands[0] === undefined
        ? spec.description
        : `${spec.description}\nDefault command: ${commands[0].name}.`,
    )
    .addHelpText('after', examplesText(spec.examples));
  if (alias !== undefined) command.alias(alias);
  const placeOfKey = placeOfId(spec);
  for (const argument of spec.arguments ?? []) addArgument(command, argument, placeOfKey !== undefined);
  if (placeOfKey !== undefined) command.usage(usageOf(spec));
  for (const option of withKeyOptions(spec)) addOption(command, option);
  if (spec.refused !== undefined) hideOptions(command, spec.refused);
  if (commands.length > 0) command.helpCommand(...HELP_COMMAND);
  if (commands.length > 0) command.hook('preSubcommand', () => refuseMistyped(command));
  commands.forEach((each, index) => register(command, each, onExit, index === 0));
  const globals = (): GlobalOptions => command.optsWithGlobals<GlobalOptions>();
  if (standalone !== undefined)
    command.action(async (options: object) =>
      onExit(await standalone(globals(), options).catch((error: unknown) => throwFrom(command, error))),
    );
  else if (action !== undefined)
    command.action(async (...given: unknown[]) => {
      // Commander appends the options and the command itself.
      const [options, values] = [given.at(-2) as object, given.slice(0, -2)];
      const work = async (session: Session): Promise<number> => {
        try {
          if (placeOfKey === undefined) return await action(session, options, ...values);
          const named = withKey(spec, placeOfKey, options, values);
          return await action(session, named.options, ...named.values);
        } catch (error) {
          return throwFrom(command, error);
        }
      };
      onExit(await runCommand(globals(), work));
    });
  return command;
}

/** As commander writes it, when it must take every argument for optional. */
function usageOf({ arguments: given = [] }: CommandSpec): string {
  return ['[options]', ...given.map(([name]) => name)].join(' ');
}

/** With --key in the place of an id, only the command knows which argument is missing: `mayMove`. */
function addArgument(
  command: Command,
  [name, help, choices]: NonNullable<CommandSpec['arguments']>[number],
  mayMove: boolean,
): void {
  const argument = new Argument(mayMove ? name.replace(/^<(.*)>$/, '[$1]') : name, help);
  if (choices !== undefined) {
    argument.argChoices = [...choices];
    argument.argParser((value) => {
      if (choices.includes(value)) return value;
      throwFrom(command, new UsageError(`<${argument.name()}> must be one of ${choices.join(', ')}.`));
    });
  }
  command.addArgument(argument);
}

function addOption(command: Command, [flags, help, more = {}]: OptionSpec): void {
  const option = new Option(flags, more.isRepeatable ? `${help}; repeatable` : help);
  if (more.default !== undefined) option.default(more.default, more.default);
  // Not `choices()`: it has words of its own for a wrong value, and cannot be repeated.
  if (more.choices !== undefined) option.argChoices = [...more.choices];
  const check = (value: string): string => {
    if (more.choices?.includes(value) === false)
      throwFrom(command, new UsageError(`${option.long} must be one of ${more.choices.join(', ')}.`));
    return value;
  };
  if (more.isRepeatable)
    option.argParser((value, before: string[] | undefined) => [...(before ?? []), check(value)]);
  else if (more.choices !== undefined) option.argParser(check);
  command.addOption(option);
}

/** A plain word in the place of a noun's command is a mistyped command, and no id for its default command. */
const COMMAND_WORD = /^[a-z][a-z-]*$/i;

function refuseMistyped(noun: StrictCommand): void {
  const [word = ''] = noun.args;
  const isKnown = noun.commands.some((each) => [each.name(), ...each.aliases()].includes(word));
  if (COMMAND_WORD.test(word) && !isKnown) noun.refuseUnknown(word);
}

function hideOptions(command: Command, hidden: readonly string[]): void {
  command.configureHelp({
    ...command.configureHelp(),
    visibleGlobalOptions(shown) {
      const all = Help.prototype.visibleGlobalOptions.call(this, shown);
      return all.filter(({ long }) => long === undefined || !hidden.includes(long));
    },
  });
}

function examplesText(lines: readonly string[]): string {
  return `\n${lines.length === 1 ? 'Example' : 'Examples'}:\n${lines.map((line) => `  $ ${line}\n`).join('')}`;
}

/** A noun's command under a short name of its own at the top level. */
export function shortcut(name: string, noun: CommandSpec, verb: string): CommandSpec {
  const spec = noun.commands!.find((each) => each.name === verb)!;
  const whole = `${noun.name} ${verb}`;
  return {
    ...spec,
    name,
    summary: `short for ${whole}`,
    description: `${spec.description}\nShort for: flowfabric ${whole}`,
    examples: spec.examples.map((line) => line.replaceAll(`flowfabric ${whole}`, `flowfabric ${name}`)),
  };
}
