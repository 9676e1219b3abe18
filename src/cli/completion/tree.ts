/**
 * The command tree as shell completion needs it: for each place in a command line, what may follow. Read from the
 * commands themselves, so that it cannot differ from them.
 */
import type { Command } from 'commander';

export interface OptionEntry {
  /** With its dashes. */
  name: string;
  help: string;
  takesValue: boolean;
  /** The values it may have; null when any. */
  choices: readonly string[] | null;
}

/** A command by one of its names. */
export interface Place {
  /** The words that lead to it: `lanes pause`; empty for the program itself. */
  path: string;
  commands: readonly { name: string; help: string }[];
  options: readonly OptionEntry[];
  /** What its arguments may be, where that is known. */
  choices: readonly string[];
}

export function placesOf(program: Command): Place[] {
  const everywhere = optionsOf(program).filter(({ name }) => name !== '--version');
  return placesBelow(program, '', everywhere);
}

function placesBelow(command: Command, path: string, globals: readonly OptionEntry[]): Place[] {
  const below = visibleBelow(command);
  const own = optionsOf(command);
  const options = [...own, ...globals.filter(({ name }) => own.every((each) => each.name !== name))];
  return [
    {
      path,
      commands: below.map(({ name, child }) => ({ name, help: child.summary() || child.description() })),
      options,
      choices: command.registeredArguments.flatMap(({ argChoices = [] }) => argChoices),
    },
    ...below.flatMap(({ name, child }) => placesBelow(child, `${path} ${name}`.trim(), globals)),
  ];
}

/** Each command once for each of its names. The help shows the same ones. */
function visibleBelow(command: Command): { name: string; child: Command }[] {
  return command
    .createHelp()
    .visibleCommands(command)
    .flatMap((child) => [child.name(), ...child.aliases()].map((name) => ({ name, child })));
}

function optionsOf(command: Command): OptionEntry[] {
  return command
    .createHelp()
    .visibleOptions(command)
    .flatMap(({ long, description, required, optional, argChoices = null }) =>
      long === undefined || long === null
        ? []
        : [{ name: long, help: description, takesValue: required || optional, choices: argChoices }],
    );
}
