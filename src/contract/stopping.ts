/**
 * Stopping what runs, by a deadline: until then user code may finish; after it there is a moment for last words to the database, and no more,
 * whether or not it answers.
 */
import { EngineError } from './errors.ts';

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

export function deadlineOf({ deadlineMs }: StopOptions, defaultMs: number): number {
  if (deadlineMs === undefined) return defaultMs;
  if (deadlineMs === Infinity) return deadlineMs;
  if (Number.isInteger(deadlineMs) && deadlineMs >= 0 && deadlineMs <= MAX_DEADLINE_MS) return deadlineMs;
  throw new EngineError(
    'invalid_input',
    `deadlineMs must be a whole number from 0 to ${MAX_DEADLINE_MS}, or Infinity.`,
    { field: 'deadlineMs' },
  );
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
