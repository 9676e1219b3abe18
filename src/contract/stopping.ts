/**
 * Stopping what runs, by a deadline: until then user code may finish; after it there is a moment for last words to the database, and no more,
 * whether or not it answers.
 */
import { whole } from './kinds.ts';
import { fault, Kind, shape } from './shape.ts';

/** How long stopping may take. */
export interface StopOptions {
  /** How long user code that is running may continue, in milliseconds; Infinity waits for all of it. */
  deadlineMs?: number;
}

export interface Closable {
  /**
   * Ends what is open: handlers of consumers have until the deadline (30 s unless told otherwise), statements under way at most 5 s of it.
   * Resolves by the deadline and one second, whether or not the database answers; what still waits for it then is rejected with `closed`.
   */
  close(options?: StopOptions): Promise<void>;
}

/** After the deadline, for handing back and saying goodbye: a database that does not answer must not keep a process from ending. */
export const LAST_WORD_MS = 1_000;

const MAX_DEADLINE_MS = 86_400_000;

const NO_DEADLINE = fault(`must be a whole number from 0 to ${MAX_DEADLINE_MS}, or Infinity`);
const finite = whole(0, MAX_DEADLINE_MS);
const deadlineKind = new Kind<number>((value) =>
  value === Infinity || finite.faultOf(value) === undefined ? undefined : NO_DEADLINE,
).optional();

export const stopOptions = shape<StopOptions>({ deadlineMs: deadlineKind });

/** Of whatever it is given: what stops a worker may be called as a listener, with the name of a signal. */
export function deadlineOf({ deadlineMs }: StopOptions, defaultMs: number): number {
  return deadlineKind.check(deadlineMs, 'deadlineMs') ?? defaultMs;
}

/** Until the work is done or its time is over. */
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
