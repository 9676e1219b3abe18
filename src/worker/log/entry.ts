/**
 * One thing a worker has to say, in the two forms it is written in: for programs and for people.
 */
import type { ShownError } from './shown-error.ts';

export type Level = 'debug' | 'info' | 'warn' | 'error';

export interface Entry {
  readonly level: Level;
  /** A sentence that is the same for all entries of its kind, so that programs can group by it. */
  readonly msg: string;
  /** What it is about. Never payloads, results or tokens. */
  readonly fields: Readonly<Record<string, unknown>>;
  /** The error it is about: as it is shown, and itself. */
  readonly error?: ShownError & { readonly thrown: unknown };
  /** The whole of it in one line for a terminal. */
  readonly text: string;
  /** Entries with the same value are equal, and a flood of them is cut off. Undefined: always written. */
  readonly sameAs?: string;
  /** How many equal entries are written in one window. */
  readonly most?: number;
}

/** Where entries go. */
export interface EntrySink {
  write(entry: Entry): void;
  /** Writes what was kept back. */
  close(): void;
}
