/**
 * What a worker can be told, what it does when it is not told, and which of it makes no sense. Options are checked before
 * anything starts, so that a wrong one is heard of by who gave it.
 */
import { EngineError } from '../contract/errors.ts';
import { LIMITS } from '../contract/limits.ts';
import type { LaneLimit } from './loop/claim-groups.ts';
import type { Logger } from '../define/context.ts';
import type { Middleware, TaskHandler } from '../define/handlers.ts';

/** What a worker runs, how much of it at once, and whom it tells. */
export interface WorkerOptions {
  /** Made by `handle(task, function)`. The worker claims only tasks it has handlers for. */
  handlers: readonly TaskHandler[];
  /** Executions run at the same time. Default 10. */
  concurrency?: number;
  /** How long the worker may be silent before others take over. Default 30 s. */
  leaseMs?: number;
  /** Names, or names with a limit of their own. Default: every lane. */
  lanes?: readonly (string | LaneLimit)[];
  capabilities?: readonly string[];
  /** Name of the deployment this worker belongs to. Default `worker`. */
  workerId?: string;
  /** Of your code, shown in the registry. Default: none. */
  version?: string;
  /** Longest time between two looks when no hint comes. Default 5 s; with `listen: 'off'` give less. */
  pollMs?: number;
  /** What `ctx.log` writes to. Default: nowhere. */
  log?: Logger;
  /** Called around every run, the first one outermost. */
  middleware?: readonly Middleware[];
  /** Hears of every claim, renewal or registration that failed. The worker goes on by itself; this is for logs and alarms. */
  onError?: (error: unknown) => void;
}

export const DEFAULTS = {
  concurrency: 10,
  leaseMs: 30_000,
  workerId: 'worker',
  pollMs: 5_000,
  stopDeadlineMs: 10_000,
};

/** Most handlers one process may run at once; beyond that, start another process. */
export const MAX_CONCURRENCY = 100_000;
const MAX_POLL_MS = 3_600_000;
/** A logger nobody hears. */
export const SILENT: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

const KNOWN: readonly (keyof WorkerOptions)[] = [
  'handlers',
  'concurrency',
  'leaseMs',
  'lanes',
  'capabilities',
  'workerId',
  'version',
  'pollMs',
  'log',
  'middleware',
  'onError',
];

/** A misspelled setting that is accepted is believed in. */
export function checkKnown(options: object, field: string, known: readonly string[]): void {
  const unknown = Object.keys(options).find((member) => !known.includes(member));
  if (unknown === undefined) return;
  const name = `${field}.${unknown}`;
  throw new EngineError('invalid_input', `${name} is not a known setting (known: ${known.join(', ')}).`, {
    field: name,
  });
}

export function checkOptions(options: WorkerOptions): void {
  checkKnown(options, 'options', KNOWN);
  // The instance id is the name, a dash and a uuid; together they must fit.
  checkName(options.workerId ?? DEFAULTS.workerId, 'workerId', LIMITS.workerNameBytes - 37);
  if (!(options.middleware ?? []).every((one) => typeof one === 'function')) {
    throw new EngineError('invalid_input', 'middleware must be a list of functions.', {
      field: 'middleware',
    });
  }
  if (options.version !== undefined) checkName(options.version, 'version', LIMITS.workerNameBytes);
  checkRange(options.concurrency ?? DEFAULTS.concurrency, 'concurrency', 1, MAX_CONCURRENCY);
  checkRange(options.leaseMs ?? DEFAULTS.leaseMs, 'leaseMs', LIMITS.leaseMsMin, LIMITS.leaseMsMax);
  checkRange(options.pollMs ?? DEFAULTS.pollMs, 'pollMs', 1, MAX_POLL_MS);
}

function checkName(name: unknown, field: string, maxBytes: number): void {
  const fits = typeof name === 'string' && name.length > 0 && Buffer.byteLength(name) <= maxBytes;
  if (fits && !name.includes('\u0000')) return;
  const message = `${field} must be a text of 1 to ${maxBytes} bytes without \\u0000.`;
  throw new EngineError('invalid_input', message, { field });
}

function checkRange(value: number, field: string, min: number, max: number): void {
  if (Number.isInteger(value) && value >= min && value <= max) return;
  throw new EngineError('invalid_input', `${field} must be a whole number from ${min} to ${max}.`, { field });
}
