/**
 * How a command hears that it should stop: Ctrl-C, a polite kill, a closed terminal, or a reader of its output that
 * went away. The first one lets it clean up; a second one ends the process on the spot.
 */

/** What a shell reports for a process ended by these. */
const EXIT_CODES = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const;
export const BROKEN_PIPE_EXIT_CODE = 141;

type StopSignal = keyof typeof EXIT_CODES;

export interface Interruption {
  readonly signal: AbortSignal;
  exitCode(): number;
  dispose(): void;
}

export function interruption(): Interruption {
  const abort = new AbortController();
  let exitCode = 0;
  const interrupt = (code: number): void => {
    if (abort.signal.aborted) process.exit(code);
    exitCode = code;
    abort.abort();
  };
  const onSignal = (signal: StopSignal): void => interrupt(EXIT_CODES[signal]);
  const signals = Object.keys(EXIT_CODES) as StopSignal[];
  for (const signal of signals) process.on(signal, onSignal);
  // Stays for good: every later write to the broken pipe reports the same again.
  process.stdout.on('error', () => {
    if (!abort.signal.aborted) interrupt(BROKEN_PIPE_EXIT_CODE);
  });
  return {
    signal: abort.signal,
    exitCode: () => exitCode,
    dispose() {
      for (const signal of signals) process.off(signal, onSignal);
    },
  };
}
