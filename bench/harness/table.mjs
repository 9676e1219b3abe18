/**
 * Results as text: one table per group of a scenario. Ratios are ours ÷ peer, where ours is our best variant of the
 * group; above 1 is good for us where more is better, below 1 where less is better.
 */
import { bestOf, ratioOf, shownSpread, spreadOf, valuesOf } from './figures.mjs';
import { FOREIGN_LIMIT } from './runner.mjs';

/** The tables of one scenario, as lines. */
export function tablesOf({ scenario, results }) {
  const groups = [...new Set(results.map((result) => result.group))];
  const lines = ['', `## ${scenario.title}`];
  for (const group of groups) {
    const members = results.filter((result) => result.group === group);
    lines.push('', `${group} (${legend(scenario.metrics)})`, '', ...groupTable(scenario, members));
  }
  return [...lines, ...relations(scenario, results)];
}

function legend(metrics) {
  return metrics.map((metric) => `${metric.name}: ${metric.better} is better`).join(', ');
}

function groupTable(scenario, members) {
  const [main] = scenario.metrics;
  const ours = bestOf(
    members.filter((result) => result.side === 'ours'),
    main,
  );
  const header = [
    'contender',
    'settings',
    'jobs',
    ...scenario.metrics.map((metric) => metric.name),
    'ours ÷ this',
  ];
  const rows = members.map((result) => [
    `${result.contender}${disturbed(result) ? ' †' : ''}`,
    result.label,
    result.count === undefined ? '' : result.count.toLocaleString('en-US'),
    ...scenario.metrics.map((metric) => figure(result, metric.name)),
    result.side === 'ours' || ours === undefined ? '' : shownSpread(ratioOf(ours, result, main.name)),
  ]);
  return aligned([header, ...rows]);
}

function figure(result, metric) {
  const spread = spreadOf(valuesOf(result, metric));
  return spread === null && result.errors.length > 0 ? 'failed' : shownSpread(spread);
}

function disturbed(result) {
  return result.samples.some((sample) => (sample.cpu?.foreign ?? 0) > FOREIGN_LIMIT);
}

/** Cases that are read against another case: never-analysed ÷ analysed, held ÷ free, … */
function relations(scenario, results) {
  const [main] = scenario.metrics;
  const lines = results
    .filter((result) => result.relativeTo !== undefined)
    .map((result) => {
      const base = results.find((other) => other.key === result.relativeTo.key);
      const ratio = base === undefined ? null : ratioOf(result, base, main.name);
      return [`${result.contender} (${result.label})`, result.relativeTo.label, shownSpread(ratio)];
    });
  return lines.length === 0 ? [] : ['', ...aligned([['ratio', 'of', ''], ...lines])];
}

function aligned(rows) {
  const widths = rows[0].map((_, column) => Math.max(...rows.map((row) => row[column].length)));
  const line = (row) => `| ${row.map((cell, column) => cell.padEnd(widths[column])).join(' | ')} |`;
  const rule = `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`;
  return [line(rows[0]), rule, ...rows.slice(1).map(line)];
}
