/**
 * Runs one command line and returns its exit code. The commands are listed in program.ts, the exit codes in
 * exit-codes.ts; the process is main.ts.
 */
import { CommanderError } from 'commander';
import { EXIT, exitCodeOf, UsageError } from './exit-codes.ts';
import { buildProgram } from './program.ts';
import { printerFor } from './session.ts';

/** Commander's codes for a printed help or version. */
const PRINTED = new Set(['commander.help', 'commander.helpDisplayed', 'commander.version']);

export async function runProgram(args: readonly string[]): Promise<number> {
  let exitCode: number = EXIT.ok;
  const program = buildProgram((code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync(args, { from: 'user' });
    return exitCode;
  } catch (error) {
    // Without a command, the help was printed to stderr: a usage error.
    if (error instanceof CommanderError && PRINTED.has(error.code))
      return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    const clear = error instanceof CommanderError ? asUsage(error) : error;
    printerFor(args.includes('--json') ? { json: true } : {}).error(clear);
    return exitCodeOf(clear);
  }
}

/** "error: unknown command 'shwo'\n(Did you mean show?)" as one sentence. */
function asUsage({ message }: CommanderError): UsageError {
  const [first = '', ...rest] = message.replace(/^error: /, '').split('\n');
  const sentence = `${first.slice(0, 1).toUpperCase()}${first.slice(1)}`;
  return new UsageError([sentence.endsWith('.') ? sentence : `${sentence}.`, ...rest].join(' '));
}
