/**
 * Compares what every reader saw with the tables, and the tables with what the writers know. Pure: no input or output.
 */
import { inversionsIn } from './truth.mjs';

/** Positions a reader did not get, or at which it got another event than the table has. */
function againstTruth(report, truth) {
  let lost = 0;
  let different = 0;
  for (let position = 1; position <= truth.last; position += 1) {
    const seen = report.identities[position] ?? 0;
    if (seen === 0) lost += 1;
    else if (seen !== truth.identities[position]) different += 1;
  }
  return { lost, different, beyond: Math.max(0, report.last - truth.last) };
}

/**
 * Transactions whose outcome the table contradicts. One whose commit got no response is there as a whole or not at all.
 */
function againstLedger({ committed, aborted, unknown }, { perTransaction }) {
  const countOf = (tx) => perTransaction.get(tx) ?? 0;
  return {
    acknowledged_absent: [...committed].filter(([tx, n]) => countOf(tx) !== n).length,
    aborted_present: [...aborted].filter((tx) => countOf(tx) > 0).length,
    torn: [...unknown].filter(([tx, n]) => countOf(tx) !== 0 && countOf(tx) !== n).length,
  };
}

export function sum(items, pick) {
  let total = 0;
  for (const item of items) total += pick(item);
  return total;
}

export function judge({ truth, reports, ledger, naiveSeen }) {
  const compared = reports.map((report) => againstTruth(report, truth));
  return {
    events: truth.events,
    engine_events: truth.engineEvents,
    lost: sum(compared, ({ lost }) => lost) + truth.withoutPosition,
    duplicated: sum(reports, ({ duplicated }) => duplicated) + truth.inTwoRuns,
    inversions: inversionsIn(truth) + sum(reports, ({ inversions }) => inversions),
    different: sum(compared, ({ different, beyond }) => different + beyond),
    gaps: truth.gaps + truth.missingInRuns + sum(reports, ({ skipped }) => skipped),
    ...againstLedger(ledger, truth),
    naive_lost: truth.events - naiveSeen,
  };
}

/** Everything that must be zero. */
const MUST_BE_ZERO = [
  'lost',
  'duplicated',
  'inversions',
  'different',
  'gaps',
  'acknowledged_absent',
  'aborted_present',
  'torn',
  'faults',
];

/** What is wrong with a result, as sentences; nothing when it is sound. */
export function complaintsAbout(result) {
  const complaints = MUST_BE_ZERO.filter((name) => result[name] !== 0).map(
    (name) => `${name}: ${result[name]}`,
  );
  if (result.engine_events === 0) complaints.push('the engine wrote nothing');
  if (result.naive_lost === 0) complaints.push('the naive reader lost nothing, so the run has shown nothing');
  return complaints;
}
