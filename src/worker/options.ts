/**
 * The options of a worker, their defaults and their checks. Options are checked before anything starts, so that the
 * caller learns of a wrong one at once.
 */
import { anyString, func, list, parsed, string, stringOr, whole } from '../contract/shape/kinds.ts';
import { LIMITS } from '../contract/limits.ts';
import { fault, Kind, shape, type Opaque } from '../contract/shape/shape.ts';
import type { LaneLimit } from './loop/claim-groups.ts';
import type { Logger } from '../define/task-context.ts';
import type { Middleware, TaskHandler } from '../define/handlers.ts';

/** What a worker runs, how much of it at once, and where it reports to. */
export interface WorkerOptions {
  /** Made by `handle(task, function)`. The worker claims only tasks it has handlers for. */
  handlers: readonly TaskHandler[];
  /** Executions run at the same time. Default 10. */
  concurrency?: number;
  /** How long the worker may be silent before other workers take over its executions. Default 30 s. */
  leaseMs?: number;
  /** Names, or names with a limit of their own. Default: every lane. */
  lanes?: readonly (string | LaneLimit)[];
  capabilities?: readonly string[];
  /** Name of the deployment this worker belongs to. Default `worker`. */
  workerId?: string;
  /** The version of your code, shown in the list of workers. Default: none. */
  version?: string;
  /** Longest time between two polls when no hint arrives. Default 5 s; with `listen: 'off'` use less. */
  pollMs?: number;
  /** What `ctx.log` writes to. Default: nowhere. */
  log?: Logger;
  /** Called around every run, the first one outermost. */
  middleware?: readonly Middleware[];
  /** Called with the error of every failed claim, renewal or registration. The worker continues; this is for logs and alerts. */
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
/** A logger that discards everything. */
export const SILENT: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

/** The number is compared with the worker's own limit. */
const laneLimit = shape<LaneLimit>({ lane: anyString, concurrency: parsed });
const NO_MIDDLEWARE = fault('must be a list of functions');

const workerOptions = shape<WorkerOptions>({
  handlers: parsed,
  concurrency: whole(1, MAX_CONCURRENCY).optional(),
  leaseMs: whole(LIMITS.leaseMsMin, LIMITS.leaseMsMax).optional(),
  // Each name is checked by the first claim.
  lanes: list(stringOr(anyString, laneLimit), Number.MAX_SAFE_INTEGER).optional(),
  capabilities: parsed.optional(),
  // The instance id is the name, a dash and a uuid; together they must fit.
  workerId: string(LIMITS.workerNameBytes - 37).optional(),
  version: string(LIMITS.workerNameBytes).optional(),
  pollMs: whole(1, MAX_POLL_MS).optional(),
  log: parsed.optional(),
  middleware: new Kind<Opaque>((given) =>
    Array.isArray(given) && given.every((one) => typeof one === 'function') ? undefined : NO_MIDDLEWARE,
  ).optional(),
  onError: func.optional(),
});

export function checkOptions(options: WorkerOptions): void {
  workerOptions.check(options, 'options', '');
}
