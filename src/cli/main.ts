#!/usr/bin/env node
/**
 * The process of the command `flowfabric`: runs the command line, sets the exit code, and stays quiet when an output pipe
 * is closed.
 */
import { BROKEN_PIPE_EXIT_CODE } from './interruption.ts';
import { runProgram } from './run.ts';

// For help into a closed pipe; longer commands handle it themselves.
process.stdout.on('error', () => {
  process.exitCode = BROKEN_PIPE_EXIT_CODE;
});
// When stderr is closed, there is no place left to report anything.
process.stderr.on('error', () => undefined);
// Not process.exit(): output to a pipe must be flushed first.
const exitCode = await runProgram(process.argv.slice(2));
process.exitCode ??= exitCode;
