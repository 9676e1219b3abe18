/**
 * What the tables contain in the end, read without any function of the engine: the event at every position, what runs
 * cover, and the order in which things happened.
 */
import { changeOf, identityOfRow } from './identity.mjs';

/** Rows of the log, which hold up to 256 events each. */
const PAGE = 500;
const RUNS = `
  SELECT seq_from, n, ev_from, packs, slot FROM ff_event_run WHERE ev_from IS NOT NULL ORDER BY ev_from, seq_from`;
const EVENTS = `
  SELECT ev_id, family, event_type, execution_id, attempt_index, lease_epoch, occurred_at_ms, worker_instance_id, slot,
         detail ->> 'worker_id' AS worker_id, detail ->> 'version' AS version
  FROM ff_event WHERE ev_id > $1 AND ev_id <= $2 ORDER BY ev_id, ordinal`;
const NEXT = `
  SELECT max(ev_id) AS last FROM (SELECT ev_id FROM ff_event_pack WHERE ev_id > $1 ORDER BY ev_id LIMIT ${PAGE}) p`;

async function* allEvents(session) {
  let after = 0;
  for (;;) {
    const [{ last }] = await session.rows(NEXT, [after]);
    if (last === null) return;
    yield* await session.rows(EVENTS, [after, last]);
    after = last;
  }
}

/** Positions of consecutive runs must follow each other, starting at 1. */
function gapsIn(runs) {
  const bySequence = runs.toSorted((a, b) => a.from - b.from);
  let next = 1;
  let gaps = 0;
  for (const { from, n } of bySequence) {
    if (from !== next) gaps += 1;
    next = from + n;
  }
  return { gaps, last: next - 1 };
}

/** Walks both in the order of ev_id: every event is in one run, and a run has nothing but its events. */
export async function readTruth(session) {
  const runs = (await session.rows(RUNS)).map((row) => ({
    from: Number(row.seq_from),
    n: Number(row.n),
    packs: Number(row.packs),
    first: Number(row.ev_from),
    slot: row.slot,
    found: 0,
  }));
  const { gaps, last } = gapsIn(runs);
  const truth = {
    events: 0,
    engineEvents: 0,
    last,
    gaps,
    withoutPosition: 0,
    inTwoRuns: overlapsIn(runs),
    identities: new Float64Array(last + 1),
    /** By position: whose order the event belongs to, and its place there. */
    subjects: Array.from({ length: last + 1 }),
    places: new Float64Array(last + 1),
    perTransaction: new Map(),
  };
  let at = 0;
  for await (const row of allEvents(session)) {
    truth.events += 1;
    const id = Number(row.ev_id);
    while (at + 1 < runs.length && runs[at + 1].first <= id) at += 1;
    note(truth, runs[at], id, row);
  }
  truth.missingInRuns = runs.map((run) => run.n - run.found).filter((missing) => missing !== 0).length;
  return truth;
}

function overlapsIn(runs) {
  return runs.filter((run, index) => index > 0 && runs[index - 1].first + runs[index - 1].packs > run.first)
    .length;
}

function note(truth, run, id, row) {
  const change = changeOf(row.worker_id, row.version);
  if (change !== undefined) {
    const [tx] = row.worker_instance_id.split(':');
    truth.perTransaction.set(tx, (truth.perTransaction.get(tx) ?? 0) + 1);
  } else truth.engineEvents += 1;
  if (run === undefined || id < run.first || id >= run.first + run.packs || row.slot !== run.slot) {
    truth.withoutPosition += 1;
    return;
  }
  // Events come in the order of their rows, and of their places in one.
  const position = run.from + run.found;
  run.found += 1;
  truth.identities[position] = identityOfRow(row);
  truth.subjects[position] = change?.entity ?? row.execution_id ?? undefined;
  // An engine event is numbered under the lock of its execution; a plain writer's carries its entity's version.
  truth.places[position] = change?.version ?? id;
}

/** How often something that happened later to the same execution has an earlier position. */
export function inversionsIn({ subjects, places, last }) {
  const reached = new Map();
  let inversions = 0;
  for (let position = 1; position <= last; position += 1) {
    const subject = subjects[position];
    if (subject === undefined) continue;
    if (places[position] <= (reached.get(subject) ?? 0)) inversions += 1;
    reached.set(subject, places[position]);
  }
  return inversions;
}

/** How many runs and stamps it took. */
export async function countRuns(session) {
  const [row] = await session.rows(
    `SELECT count(*)::integer AS runs, count(snap)::integer AS stamps, coalesce(max(n), 0)::integer AS longest
     FROM ff_event_run WHERE ev_from IS NOT NULL`,
  );
  return row;
}
