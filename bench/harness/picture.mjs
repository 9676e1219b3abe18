/**
 * Results as a picture: horizontal bars per group, our bars in colour. Plain SVG text, no script, readable on light
 * and dark pages. Bars of one group share a scale; groups do not.
 */
import { shown, spreadOf, valuesOf } from './figures.mjs';

const WIDTH = 1_000;
const LABEL_WIDTH = 450;
const BAR_LEFT = LABEL_WIDTH + 10;
const BAR_WIDTH = WIDTH - BAR_LEFT - 150;
const ROW = 20;
const GAP = 26;
const STYLE = `
  text { font: 12px system-ui, sans-serif; fill: #1f2328; }
  .title { font-size: 15px; font-weight: 600; }
  .group { font-weight: 600; }
  .small { font-size: 11px; fill: #59636e; }
  .ours { fill: #0969da; } .peer { fill: #8c959f; }
  .reach { stroke: #1f2328; stroke-width: 1; }
  .page { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9198a1; } .page { fill: #0d1117; }
    .ours { fill: #4493f8; } .peer { fill: #656c76; } .reach { stroke: #e6edf3; }
  }`;

/** The whole picture of a run. */
export function pictureOf(run) {
  const parts = [];
  let y = 30;
  const put = (part) => parts.push(part);
  put(
    text(12, y, 'FlowFabric bench: medians; the thin line reaches from the lowest to the highest', 'title'),
  );
  y += 18;
  put(text(12, y, caption(run), 'small'));
  for (const { scenario, results } of run.scenarios) {
    const [metric] = scenario.metrics;
    for (const group of new Set(results.map((result) => result.group))) {
      y += GAP;
      put(text(12, y, `${scenario.title}: ${group} (${metric.name}, ${metric.better} is better)`, 'group'));
      const bars = barsOf(
        results.filter((result) => result.group === group),
        metric,
      );
      for (const bar of bars) {
        y += ROW;
        put(drawBar(bar, y));
      }
    }
  }
  const height = y + 30;
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${WIDTH} ${height}" role="img" aria-label="FlowFabric bench">`,
    `<style>${STYLE}\n</style>`,
    `<rect class="page" width="${WIDTH}" height="${height}"/>`,
    ...parts,
    '</svg>',
    '',
  ].join('\n');
}

function caption(run) {
  const { machine, postgres } = run;
  return `${run.date}, ${machine.processors} processors, ${machine.memoryGiB} GiB, Postgres ${postgres.version}, Node ${machine.node}, ${run.options.rounds} round(s), ${run.options.size}`;
}

function barsOf(results, metric) {
  const bars = results.flatMap((result) => {
    const spread = spreadOf(valuesOf(result, metric.name));
    return spread === null ? [] : [{ result, spread }];
  });
  const top = Math.max(...bars.map((bar) => bar.spread.max), Number.MIN_VALUE);
  const reach = (value) => (value / top) * BAR_WIDTH;
  return bars.map(({ result, spread }) => ({
    label: `${result.contender} · ${result.label}`,
    side: result.side,
    width: reach(spread.median),
    from: reach(spread.min),
    to: reach(spread.max),
    value: shown(spread.median),
  }));
}

function drawBar(bar, y) {
  const middle = y - 4;
  return [
    text(LABEL_WIDTH, y, bar.label, undefined, 'end'),
    `<rect class="${bar.side}" x="${BAR_LEFT}" y="${y - 12}" width="${bar.width.toFixed(1)}" height="15"/>`,
    `<line class="reach" x1="${(BAR_LEFT + bar.from).toFixed(1)}" x2="${(BAR_LEFT + bar.to).toFixed(1)}" y1="${middle}" y2="${middle}"/>`,
    text(BAR_LEFT + Math.max(bar.width, bar.to) + 6, y, bar.value),
  ].join('\n');
}

function text(x, y, words, style, anchor) {
  const kind = style === undefined ? '' : ` class="${style}"`;
  const side = anchor === undefined ? '' : ` text-anchor="${anchor}"`;
  return `<text x="${Number(x).toFixed(1)}" y="${y}"${kind}${side}>${escaped(words)}</text>`;
}

function escaped(words) {
  return words.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}
