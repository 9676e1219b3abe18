/**
 * Reports how work ended, beside the work: an error in a report never reaches the work it reports. Nothing here needs
 * OpenTelemetry, so published types may lead here.
 */

/** How some work ended. The result is told apart from the error because anything may be thrown, `undefined` too. */
export type Ended = { result: 'ok' } | { result: 'error'; error: unknown };

/** Reports something. Undefined if that threw. */
export function quietly<Value>(report: () => Value): Value | undefined {
  try {
    return report();
  } catch {
    return undefined;
  }
}

/** Calls `report` with how the work ended. */
export function reporting<Value>(work: Promise<Value>, report: (ended: Ended) => void): Promise<Value> {
  return work.then(
    (value) => {
      quietly(() => report({ result: 'ok' }));
      return value;
    },
    (error: unknown) => {
      quietly(() => report({ result: 'error', error }));
      throw error;
    },
  );
}
