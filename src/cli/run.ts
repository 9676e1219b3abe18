/**
 * Runs one command line to its end and answers its exit code. What there is to run is in program.ts, what the exit codes mean in
 * exit-codes.ts; the process it runs in is main.ts.
 */
import { CommanderError } from 'commander';
import { EXIT, exitCodeOf, UsageError } from './exit-codes.ts';
import { buildProgram } from './program.ts';
import { printerFor } from './session.ts';

/** Help and the version were asked for and given. */
const GIVEN = new Set(['commander.help', 'commander.helpDisplayed', 'commander.version']);

export async function runProgram(args: readonly string[]): Promise<number> {
  let exitCode: number = EXIT.ok;
  const program = buildProgram((code) => {
    exitCode = code;
  });
  try {
    await program.parseAsync(args, { from: 'user' });
    return exitCode;
  } catch (error) {
    // Without a command the help was printed to stderr, and that is a mistake.
    if (error instanceof CommanderError && GIVEN.has(error.code))
      return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    const clear = error instanceof CommanderError ? asUsage(error) : error;
    printerFor(args.includes('--json') ? { json: true } : {}).error(clear);
    return exitCodeOf(clear);
  }
}

/** "error: unknown command 'shwo'\n(Did you mean show?)" as a sentence. */
function asUsage({ message }: CommanderError): UsageError {
  const [first = '', ...rest] = message.replace(/^error: /, '').split('\n');
  const sentence = `${first.slice(0, 1).toUpperCase()}${first.slice(1)}`;
  return new UsageError([sentence.endsWith('.') ? sentence : `${sentence}.`, ...rest].join(' '));
}
