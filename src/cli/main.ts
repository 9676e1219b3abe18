#!/usr/bin/env node
/**
 * The process of the command `flowfabric`: runs the command line and sets the exit code.
 */
import { BROKEN_PIPE_EXIT_CODE } from './interruption.ts';
import { runProgram } from './run.ts';

// Help into a closed pipe: commands that run for long hear of it themselves.
process.stdout.on('error', () => {
  process.exitCode = BROKEN_PIPE_EXIT_CODE;
});
// Nobody is left to tell that nobody reads the complaints.
process.stderr.on('error', () => undefined);
// Not process.exit(): what was written to a pipe must get out first.
const exitCode = await runProgram(process.argv.slice(2));
process.exitCode ??= exitCode;
