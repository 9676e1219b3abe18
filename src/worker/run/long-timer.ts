/**
 * A timer for whatever time a user may ask for: the platform's own goes off at once when it is given more than it can
 * hold. What happens when the time is over is the caller's business.
 */

/** setTimeout holds 31 bits of milliseconds. */
export const MAX_TIMEOUT_MS = 2_000_000_000;

/** Calls back once, after this long and not sooner. Answers the way to call it off. */
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
