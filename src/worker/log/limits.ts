/**
 * What bounds the lines a worker writes about itself.
 */
export const LOG_LIMITS = {
  /** Characters of an error's message, and of any other string in a line. */
  text: 500,
  /** Characters of such a string that are searched for secrets; what is behind them is not shown. */
  read: 65_536,
  /** Characters of a whole line. Fields of `ctx.log` that would make it longer are left out. */
  line: 8_000,
  /** Characters of a stack frame's path. */
  path: 200,
  /** Lines of a stack that are searched for a frame of the user's code, and characters of each. */
  stackLines: 60,
  stackLine: 1_000,
  /** Tasks and lanes that a start line names. */
  names: 20,
  /** Equal lines written within one window; the rest are counted. Trouble of the database is written once a window. */
  floodWindowMs: 10_000,
  floodLines: 5,
  /** Different lines that are told apart within one window. All further ones count as equal. */
  floodKinds: 100,
  /** A delay of the event loop that is reported, and the least time between two such reports. */
  stallMs: 1_000,
  stallEveryMs: 60_000,
  /** How long a lost lease waits for the measurement of a stall that may have caused it. */
  measureMs: 50,
} as const;
