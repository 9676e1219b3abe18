/**
 * The limits that are checked where tasks, flows and streams are defined. Kept apart from the others so that a browser
 * that loads definitions loads only these.
 */
export const DEFINITION_LIMITS = {
  /** Bytes of the name of a task, a flow or a stream. */
  kindBytes: 128,
  flowNameBytes: 128,
  frameTypeBytes: 128,
  maxRetries: 1_000_000,
  /** Ten years: longer is a mistake in the unit. */
  delayMs: 315_360_000_000,
  /** How long chunks of a live stream may be kept. */
  bestEffortTtlMs: 3_600_000,
  /** Nesting of arrays and objects in a payload or result, and in a patch. */
  jsonDepth: 64,
  patchDepth: 16,
  /** JSON pointers of a redaction, and the bytes and parts of one. */
  pointers: 64,
  pointerBytes: 256,
  pointerParts: 16,
} as const;
