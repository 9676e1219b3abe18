/**
 * A timer for any duration a user may choose: setTimeout fires at once when it is given more than it supports. What
 * happens then is up to the caller.
 */

/** setTimeout takes 31 bits of milliseconds. */
export const MAX_TIMEOUT_MS = 2_000_000_000;

/** Calls back once, after this long and not sooner. Returns a function that cancels it. */
export function callAfter(ms: number, call: () => void): () => void {
  const at = performance.now() + ms;
  let timer: NodeJS.Timeout | undefined;
  const arm = (): void => {
    const leftMs = Math.min(Math.ceil(at - performance.now()), MAX_TIMEOUT_MS);
    timer = setTimeout(() => (performance.now() < at ? arm() : call()), leftMs);
  };
  arm();
  return () => clearTimeout(timer);
}
