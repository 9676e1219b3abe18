/**
 * Usage errors that name the command they are about: commander's own as one sentence, and a mistyped command with its whole
 * name and the commands that are spelled like it.
 */
import { Command, CommanderError } from 'commander';
import { UsageError } from './exit-codes.ts';

/** Commander's codes for a printed help or version. */
const PRINTED = new Set(['commander.help', 'commander.helpDisplayed', 'commander.version']);

export function isPrinted(error: unknown): error is CommanderError {
  return error instanceof CommanderError && PRINTED.has(error.code);
}

/** `lanes pause`; undefined for the program itself. */
function pathOf(command: Command): string | undefined {
  const words: string[] = [];
  for (let at = command; at.parent !== null; at = at.parent) words.unshift(at.name());
  return words.length === 0 ? undefined : words.join(' ');
}

/** A usage error gets the command it is about; any other error is thrown unchanged. */
export function throwFrom(command: Command, error: unknown): never {
  const thrown = error instanceof CommanderError && !isPrinted(error) ? asUsage(error) : error;
  if (thrown instanceof UsageError) thrown.command ??= pathOf(command);
  throw thrown;
}

/** "error: unknown command 'shwo'\n(Did you mean show?)" as one sentence. */
function asUsage({ message }: CommanderError): UsageError {
  const [first = '', ...rest] = message.replace(/^error: /, '').split('\n');
  const sentence = `${first.slice(0, 1).toUpperCase()}${first.slice(1)}`;
  return new UsageError([sentence.endsWith('.') ? sentence : `${sentence}.`, ...rest].join(' '));
}

/** Commands in which an unknown name is an error, where commander would show the help or run the default command. */
export class StrictCommand extends Command {
  override createCommand(name?: string): StrictCommand {
    return new StrictCommand(name);
  }

  /** Commander calls this, as for a missing command, when `help` does not know the command it is asked about. */
  override help(context?: unknown): never {
    const [first, name] = this.args;
    const isFault = typeof context === 'object' && context !== null && 'error' in context;
    if (isFault && first === 'help' && name !== undefined) this.refuseUnknown(name);
    return super.help(context as { error: boolean });
  }

  /** Reports what commander would say if this command had no default. */
  refuseUnknown(name: string): never {
    const path = pathOf(this);
    const whole = (word: string): string => (path === undefined ? word : `${path} ${word}`);
    try {
      const names = this.createHelp()
        .visibleCommands(this)
        .flatMap((command) => [command.name(), ...command.aliases()]);
      const probe = new Command().exitOverride().configureOutput({ outputError: () => undefined });
      for (const each of names) probe.command(each);
      probe.parse([name], { from: 'user' });
    } catch (error) {
      if (!(error instanceof CommanderError)) throw error;
      error.message = error.message
        .replace(`'${name}'`, `'${whole(name)}'`)
        .replace(/mean (one of )?(.*)\?/, (_, many: string = '', list: string) => {
          return `mean ${many}${list.split(', ').map(whole).join(', ')}?`;
        });
      throwFrom(this, error);
    }
    throw new UsageError(`Unknown command '${whole(name)}'.`);
  }
}
