/**
 * Runs one command line and returns its exit code. The commands are listed in program.ts, the exit codes in
 * exit-codes.ts; the process is main.ts.
 */
import { EXIT, exitCodeOf } from './exit-codes.ts';
import { buildProgram } from './program.ts';
import { printerFor } from './session.ts';
import { isPrinted } from './usage-errors.ts';

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
    if (isPrinted(error)) return error.exitCode === 0 ? EXIT.ok : EXIT.usage;
    printerFor(args.includes('--json') ? { json: true } : {}).error(error);
    return exitCodeOf(error);
  }
}
