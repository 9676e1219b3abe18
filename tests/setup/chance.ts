/**
 * Repeatable random numbers: the same sequence for the same seed.
 */

/** Numbers from 0 to 1 (mulberry32). */
export function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

/** Whole numbers from 0 up to, but not including, the bound. */
export function picks(seed: number): (below: number) => number {
  const next = chance(seed);
  return (below) => Math.floor(next() * below);
}
