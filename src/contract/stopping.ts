/**
 * Stopping with a deadline. User code may finish until the deadline; after it there is one more second for final
 * statements, whether or not the database responds.
 */
import { duration, msOf, shortDuration, type Duration } from './shape/duration.ts';
import { fault, Kind, shape } from './shape/shape.ts';

/** How long stopping may take. */
export interface StopOptions {
  /** How long running user code may continue, up to one day; Infinity waits until it has finished. */
  deadline?: Duration;
}

/** Something that can be closed. */
export interface Closable {
  /**
   * Closes everything that is open. Consumer handlers have until the deadline (default 30 s), running statements at
   * most 5 s of it. Resolves at most one second after the deadline, even when the database does not respond; calls that
   * are still pending then reject with `closed`.
   */
  close(options?: StopOptions): Promise<void>;
}

/** Time after the deadline to release leases and deregister: an unresponsive database must not keep a process alive. */
export const LAST_WORD_MS = 1_000;

const MAX_DEADLINE_MS = 86_400_000;

const NO_DEADLINE = fault(`must be a duration of at most ${shortDuration(MAX_DEADLINE_MS)}, or Infinity`);
const finite = duration(MAX_DEADLINE_MS);
const deadlineKind = new Kind<Duration>((value) =>
  value === Infinity || finite.faultOf(value) === undefined ? undefined : NO_DEADLINE,
).optional();

export const stopOptions = shape<StopOptions>({ deadline: deadlineKind });

/** Checks the deadline alone: `stop` may be registered as a listener and then receives the name of a process signal. */
export function deadlineOf({ deadline }: StopOptions, defaultMs: number): number {
  return msOf(deadlineKind.check(deadline, 'deadline') ?? defaultMs);
}

/** Waits until the work has finished or the deadline has passed. */
export async function withDeadline(work: Promise<unknown>, deadlineMs: number): Promise<void> {
  if (deadlineMs === Infinity) return void (await work);
  let timer: ReturnType<typeof setTimeout> | undefined;
  const deadline = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, deadlineMs);
  });
  try {
    await Promise.race([work, deadline]);
  } finally {
    clearTimeout(timer);
  }
}
