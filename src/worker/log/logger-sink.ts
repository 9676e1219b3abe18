/**
 * Passes entries to the user's own logger, each with all its fields and the error itself. Nothing is left out there: how
 * much is kept is the logger's business.
 */
import type { Logger } from '../../define/task-context.ts';
import type { Entry, EntrySink } from './entry.ts';

export class LoggerSink implements EntrySink {
  readonly #log: Logger;

  constructor(log: Logger) {
    this.#log = log;
  }

  write({ level, msg, fields, error }: Entry): void {
    const present = Object.entries(fields).filter(([, value]) => value !== undefined);
    if (error?.at !== undefined) present.push(['at', error.at]);
    if (error !== undefined) present.push(['err', error.thrown]);
    try {
      this.#log[level](Object.fromEntries(present), msg);
    } catch {
      // A logger's own error cannot be logged, and must not fail the work.
    }
  }

  close(): void {
    return undefined;
  }
}
