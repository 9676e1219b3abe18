/**
 * Arithmetic on samples: medians, spreads, percentiles, and ratios paired by round. Pure. Ratios are taken within a
 * round, where the two sides ran minutes apart, because a machine drifts more between rounds than within one.
 */

/** @typedef {{ median: number, min: number, max: number, count: number }} Spread */

/** @returns {Spread | null} */
export function spreadOf(values) {
  if (values.length === 0) return null;
  const sorted = values.toSorted((a, b) => a - b);
  return { median: percentile(sorted, 50), min: sorted[0], max: sorted.at(-1), count: sorted.length };
}

/** The value below which `percent` of the sorted values lie, interpolated between two values. */
export function percentile(sorted, percent) {
  const at = ((sorted.length - 1) * percent) / 100;
  const low = sorted[Math.floor(at)];
  const high = sorted[Math.ceil(at)];
  return low + (high - low) * (at - Math.floor(at));
}

export function valuesOf(result, metric) {
  return result.samples.map((sample) => sample.values[metric]).filter((value) => value !== undefined);
}

/** One result ÷ another, round by round. */
export function ratioOf(upper, lower, metric) {
  const below = new Map(lower.samples.map((sample) => [sample.round, sample.values[metric]]));
  const ratios = upper.samples
    .filter((sample) => below.get(sample.round) > 0 && sample.values[metric] !== undefined)
    .map((sample) => sample.values[metric] / below.get(sample.round));
  return spreadOf(ratios);
}

/** The result with the best median, or undefined when none has samples. */
export function bestOf(results, metric) {
  const sign = metric.better === 'higher' ? -1 : 1;
  return results
    .map((result) => ({ result, spread: spreadOf(valuesOf(result, metric.name)) }))
    .filter(({ spread }) => spread !== null)
    .toSorted((a, b) => sign * (a.spread.median - b.spread.median))[0]?.result;
}

/** A number for display: three significant digits, thousands separated. */
export function shown(value) {
  if (value >= 1_000) return Math.round(value).toLocaleString('en-US');
  return value >= 100 ? value.toFixed(0) : value.toFixed(value >= 10 ? 1 : 2);
}

export function shownSpread(spread) {
  if (spread === null) return '–';
  if (spread.count === 1) return shown(spread.median);
  return `${shown(spread.median)} [${shown(spread.min)}–${shown(spread.max)}]`;
}

export function sum(values) {
  let total = 0;
  for (const value of values) total += value;
  return total;
}
