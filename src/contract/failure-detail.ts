/**
 * Where a failure comes from, beside its message: kept with the attempt, for people who look for the reason.
 */

/** An error that caused another. */
export interface FailureCause {
  /** The class of the error. */
  name: string;
  message: string;
  /** The first frame of its stack in the application's own code, as `path:line:column`. */
  at: string | null;
}

/** The class, the stack and the causes of the error that failed an attempt: at most 8 KiB, longer ones are cut. */
export interface FailureDetail {
  /** The class of the error. */
  name: string;
  /** Frames of its stack, one a line: first those in the application's own code. Empty when it has none. */
  stack: string;
  /** What caused it, the nearest cause first. */
  causes: readonly FailureCause[];
}
