/**
 * `flowfabric completion`: prints a script that completes commands, options and their values in a shell. Made from the
 * command tree, which it is given.
 */
import type { Command } from 'commander';
import type { CommandSpec } from '../command.ts';
import { scriptFor, SHELLS, type Shell } from '../completion/scripts.ts';
import { placesOf } from '../completion/tree.ts';
import { EXIT } from '../exit-codes.ts';
import type { Session } from '../session.ts';
import type { Line } from '../style.ts';

export function completion(program: () => Command): CommandSpec {
  return {
    name: 'completion',
    summary: 'print a completion script for your shell',
    description:
      'Print a script that completes commands, options and their values. Load it in the\nstart file of your shell.',
    arguments: [['<shell>', SHELLS.join(', '), SHELLS]],
    examples: [
      `echo 'source <(flowfabric completion bash)' >> ~/.bashrc`,
      `echo 'source <(flowfabric completion zsh)' >> ~/.zshrc`,
      'flowfabric completion fish > ~/.config/fish/completions/flowfabric.fish',
    ],
    action: (session, _options, shell) => print(session, shell as Shell, program()),
  };
}

function print({ printer }: Session, shell: Shell, program: Command): Promise<number> {
  const script = scriptFor(shell, placesOf(program));
  const lines = script.trimEnd().split('\n');
  printer.result(
    { shell, script },
    lines.map((line): Line => [[line]]),
  );
  return Promise.resolve(EXIT.ok);
}
