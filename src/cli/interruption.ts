/**
 * How a command learns that it should stop: Ctrl-C, SIGTERM, a closed terminal, or a closed output pipe. The first one
 * lets it clean up; a second one ends the process at once.
 */

/** What a shell reports for a process ended by these. */
const EXIT_CODES = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;
export const BROKEN_PIPE_EXIT_CODE = 141;

type ProcessSignal = keyof typeof EXIT_CODES;
const PROCESS_SIGNALS = Object.keys(EXIT_CODES) as ProcessSignal[];

export interface Interruption {
  readonly interrupted: AbortSignal;
  exitCode(): number;
  dispose(): void;
}

export function interruption(): Interruption {
  const abort = new AbortController();
  const interrupted = abort.signal;
  let exitCode = 0;
  const interrupt = (code: number): void => {
    if (interrupted.aborted) process.exit(code);
    exitCode = code;
    abort.abort();
  };
  const onProcessSignal = (name: ProcessSignal): void => interrupt(EXIT_CODES[name]);
  for (const name of PROCESS_SIGNALS) process.on(name, onProcessSignal);
  // Never removed: every later write to the broken pipe reports the same error again.
  process.stdout.on('error', () => {
    if (!interrupted.aborted) interrupt(BROKEN_PIPE_EXIT_CODE);
  });
  return {
    interrupted,
    exitCode: () => exitCode,
    dispose() {
      for (const name of PROCESS_SIGNALS) process.off(name, onProcessSignal);
    },
  };
}
