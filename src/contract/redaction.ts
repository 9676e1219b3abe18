/**
 * What of an execution is not shown. Frozen at submit, with its policy; the values themselves are stored as they are.
 */

/**
 * `true`: every value is hidden. Otherwise JSON pointers (`/card/number`): in every JSON value of the execution what they
 * point to is hidden, wherever it is found. `*` stands for every entry of a list or an object.
 */
export type Redaction = true | readonly string[];

/** What is shown in place of a hidden value or text. */
export const REDACTED = '[redacted]';

/** Whether a read returns values as they are. */
export interface RevealOptions {
  /** `true`: also what the task redacts. Default: that is hidden. */
  reveal?: boolean;
}
