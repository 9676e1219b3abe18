/**
 * Runs a scenario: its cases in alternation, round after round, so that machine drift affects all contenders alike. A
 * case that fails is reported and does not end the run.
 *
 * @typedef {object} Metric
 * @property {string} name
 * @property {'higher' | 'lower'} better
 *
 * @typedef {object} Case
 * @property {string} key Unique in the scenario.
 * @property {string} group Cases of one group are compared with each other.
 * @property {import('../contenders/contract.mjs').Contender} contender
 * @property {string} label What distinguishes it from the other cases of its group: the settings.
 * @property {number} [count] Jobs.
 * @property {{ key: string, label: string }} [relativeTo] Another case by which this one is divided.
 *
 * @typedef {object} Scenario
 * @property {string} name
 * @property {string} title
 * @property {Metric[]} metrics The first one is drawn and compared.
 * @property {(bench: object) => Case[]} cases
 * @property {(one: Case, bench: object) => Promise<Record<string, number>>} run
 */
import { watchCpu } from './cpu.mjs';

/** Samples with more foreign processor time than this are marked. */
export const FOREIGN_LIMIT = 0.12;

/** @param {Scenario} scenario */
export async function runScenario(scenario, bench) {
  const results = scenario.cases(bench).map((one) => ({ one, samples: [], errors: [] }));
  for (let round = 1; round <= bench.options.rounds; round += 1) {
    // Every second round runs in reverse, so that no contender is always first after a pause.
    const order = round % 2 === 1 ? results : results.toReversed();
    for (const result of order) await addSample(scenario, bench, result, round);
  }
  return results.map(({ one, samples, errors }) => ({ ...describe(one), samples, errors }));
}

async function addSample(scenario, bench, result, round) {
  const { one } = result;
  const name = `${scenario.name} · ${one.group} · ${one.contender.name} (${one.label})`;
  let cpu;
  const watched = async (work) => {
    const read = watchCpu([process.pid, bench.serverPid]);
    const answer = await work();
    cpu = read();
    return answer;
  };
  try {
    const values = await scenario.run(one, { ...bench, watched });
    result.samples.push({ round, values, ...(cpu === undefined ? {} : { cpu }) });
    bench.log(`  ${name}: ${said(values)}${cpu?.foreign > FOREIGN_LIMIT ? ' †' : ''}`);
  } catch (error) {
    result.errors.push({ round, message: error.message });
    bench.log(`  ${name}: FAILED: ${error.message}`);
  }
}

function said(values) {
  return Object.entries(values)
    .map(([metric, value]) => `${value.toFixed(value < 100 ? 2 : 0)} ${metric}`)
    .join(', ');
}

function describe({ contender, ...one }) {
  const { variant, ...rest } = one;
  return {
    ...rest,
    contender: contender.name,
    side: contender.side,
    ...(variant === undefined ? {} : { settings: variant.settings }),
  };
}
