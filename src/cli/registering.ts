/**
 * What every command is registered with: running it, its examples, and the words that help texts share. Which commands there are
 * is in program.ts.
 */
import type { Command } from 'commander';
import { runCommand, type CommandWork, type GlobalOptions } from './session.ts';

/** Hears the exit code of the command that ran. */
export type OnExit = (exitCode: number) => void;

export const ID_HELP = 'its id, {fp:N}:uuid; mind the quotes';
export const IDS_HELP = 'their ids, {fp:N}:uuid; mind the quotes';
export const AN_ID = `'{fp:12}:01890a5d-ac96-774b-bcce-b302099a8057'`;

export function examples(...lines: string[]): string {
  return `\n${lines.length === 1 ? 'Example' : 'Examples'}:\n${lines.map((line) => `  $ ${line}\n`).join('')}`;
}

export async function run(command: Command, onExit: OnExit, work: CommandWork): Promise<void> {
  onExit(await runCommand(command.optsWithGlobals<GlobalOptions>(), work));
}
