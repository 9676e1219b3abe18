/**
 * How scenarios list their cases: which variants of which contenders, and how many jobs each of them gets.
 */

/** Contender and variant pairs of one mode; with `count`, never more jobs than the variant or the run allows. */
export function pairs(bench, mode, count) {
  return bench.contenders.flatMap((contender) =>
    contender.variants
      .filter((variant) => variant.mode === mode)
      .map((variant) => ({
        contender,
        variant,
        label: variant.name,
        ...(count === undefined ? {} : { count: jobs(bench, Math.min(count, variant.jobsMax ?? count)) }),
      })),
  );
}

/** No more jobs than the run allows. */
export function jobs(bench, count) {
  return Math.min(count, bench.options.jobsMax);
}

/** Only contenders that can run the whole count in reasonable time. */
export function fast(list, count) {
  return list.filter(({ variant }) => (variant.jobsMax ?? count) >= count);
}

export function thousands(count) {
  return count.toLocaleString('en-US');
}

/** The key of a case: everything that distinguishes it from the others. */
export function keyOf(...parts) {
  return parts.join(' / ');
}
