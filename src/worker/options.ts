/**
 * A worker from outside: its options, their defaults and their checks, and what can be asked of it. Options are checked before anything starts, so that the
 * caller learns of a wrong one at once.
 */
import { anyString, func, list, parsed, string, stringOr, whole } from '../contract/shape/kinds.ts';
import { duration, type Duration } from '../contract/shape/duration.ts';
import { LIMITS } from '../contract/limits.ts';
import { fault, Kind, shape, type Opaque } from '../contract/shape/shape.ts';
import type { StopOptions } from '../contract/stopping.ts';
import type { WorkerHealth, WorkerMetrics, WorkerStats } from './metrics.ts';
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
  lease?: Duration;
  /** Names, or names with a limit of their own. Default: every lane. */
  lanes?: readonly (string | LaneLimit)[];
  capabilities?: readonly string[];
  /** Name of the deployment this worker belongs to. Default `worker`. */
  workerId?: string;
  /** The version of your code, shown in the list of workers. Default: none. */
  version?: string;
  /** Longest time between two polls when no hint arrives. Default 5 s; with `listen: 'off'` use less. */
  poll?: Duration;
  /**
   * What the worker and `ctx.log` write to. Default: stderr, a line each, for its start, failed attempts, lost leases,
   * executions that finished without success and stalls of the event loop. `silent`: nowhere.
   */
  log?: Logger | 'silent';
  /** Called around every run, the first one outermost. */
  middleware?: readonly Middleware[];
  /**
   * Called with the error of every failed claim, renewal or registration. The worker continues; this is for logs and
   * alerts. Default: they are logged.
   */
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

/** The number is compared with the worker's own limit. */
const laneLimit = shape<LaneLimit>({ lane: anyString, concurrency: parsed });
const LEVELS = ['debug', 'info', 'warn', 'error'] as const;
const NO_LOGGER = fault("must be 'silent', or a logger with the functions debug, info, warn and error");
const NO_MIDDLEWARE = fault('must be a list of functions');

const workerOptions = shape<WorkerOptions>({
  handlers: parsed,
  concurrency: whole(1, MAX_CONCURRENCY).optional(),
  lease: duration(LIMITS.leaseMsMax, LIMITS.leaseMsMin).optional(),
  // Each name is checked by the first claim.
  lanes: list(stringOr(anyString, laneLimit), Number.MAX_SAFE_INTEGER).optional(),
  capabilities: parsed.optional(),
  // The instance id is the name, a dash and a uuid; together they must fit.
  workerId: string(LIMITS.workerNameBytes - 37).optional(),
  version: string(LIMITS.workerNameBytes).optional(),
  poll: duration(MAX_POLL_MS, 1).optional(),
  log: new Kind<Opaque>((given) =>
    given === 'silent' || isLogger(given) ? undefined : NO_LOGGER,
  ).optional(),
  middleware: new Kind<Opaque>((given) =>
    Array.isArray(given) && given.every((one) => typeof one === 'function') ? undefined : NO_MIDDLEWARE,
  ).optional(),
  onError: func.optional(),
});

function isLogger(given: unknown): boolean {
  const log = given as Partial<Record<string, unknown>> | null | undefined;
  return LEVELS.every((level) => typeof log?.[level] === 'function');
}

export function checkOptions(options: WorkerOptions): void {
  workerOptions.check(options, 'options', '');
}

/** A worker that runs in this process. */
export interface Worker {
  readonly workerInstanceId: string;
  readonly running: number;
  readonly stats: Readonly<WorkerStats>;
  /** Its current health, for a probe. */
  health(): WorkerHealth;
  /** What it has done so far, as numbers. */
  metrics(): WorkerMetrics;
  /**
   * Stops claiming, waits for handlers, and hands back what has not finished by the deadline (default 10 s). Resolves at
   * most one second after the deadline, whether or not the database responds: leases that could not be handed back
   * expire.
   */
  stop(options?: StopOptions): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
}
