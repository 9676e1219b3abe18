/**
 * What this process writes to stderr during a test.
 */
import { afterEach, beforeEach, vi } from 'vitest';

export type Line = Record<string, unknown>;

export interface Stderr {
  text(): string;
  /** The lines of workers, where stderr is no terminal. */
  lines(): Line[];
}

/** Call it at the top of a file; it installs its own hooks. */
export function useStderr(): Stderr {
  let written = '';
  beforeEach(() => {
    written = '';
    vi.spyOn(process.stderr, 'write').mockImplementation((chunk) => {
      written += String(chunk);
      return true;
    });
  });
  afterEach(() => void vi.restoreAllMocks());
  return {
    text: () => written,
    lines: () =>
      written
        .split('\n')
        .filter((line) => line.startsWith('{"time"'))
        .map((line) => JSON.parse(line) as Line),
  };
}
