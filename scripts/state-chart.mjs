#!/usr/bin/env node
/**
 * Keeps docs/state-machine.md, the picture of what an execution can be and how it changes. `--write` renews it and
 * `--check` fails when it is out of date. Everything in it is read from the built model, so run `npm run build`
 * first; only the sentences and the choice of the usual steps are written here.
 */
import { fileURLToPath } from 'node:url';
import { format, resolveConfig } from 'prettier';
import { publicState } from '../dist/model/public-state.js';
import { SITUATIONS } from '../dist/model/situations.js';
import { completionEventOf, resultOf, TRANSITIONS } from '../dist/model/transitions.js';
import { keepGenerated } from './generated.mjs';

const CHART_FILE = fileURLToPath(new URL('../docs/state-machine.md', import.meta.url));
/** A due time and the moments around it: only a wait for a time has a different label before and after. */
const DUE_AT_MS = 1_000;

/** What most executions go through, shown before everything that is possible. */
const USUAL = [
  ['[*]', 'submit', 'waiting'],
  ['waiting', 'claim', 'running'],
  ['running', 'complete', 'completed'],
  ['running', 'retry', 'backing_off'],
  ['backing_off', 'fire_timer', 'waiting'],
  ['running', 'suspend', 'suspended'],
  ['suspended', 'resume', 'waiting'],
  ['completed', '', '[*]'],
];

const situations = Object.entries(SITUATIONS);
const transitions = Object.entries(TRANSITIONS);
const live = situations
  .filter(([, { lifecyclePhase }]) => lifecyclePhase !== 'terminal')
  .map(([name]) => name);

const code = (text) => `\`${text}\``;
const codes = (texts) => texts.map(code).join(', ');
/** Values one below the other, where a table has many columns. */
const stacked = (texts) => texts.map(code).join('<br>');
const orDash = (text) => (text === null || text === '' ? '–' : text);

function table(heads, rows) {
  const line = (cells) => `| ${cells.join(' | ')} |`;
  return [line(heads), line(heads.map(() => '---')), ...rows.map(line)].join('\n');
}

function mayStart(transition, situation, attemptState) {
  if (transition.from === null || !transition.from.includes(situation)) return false;
  return transition.fromAttempt === undefined || transition.fromAttempt.includes(attemptState);
}

/** Everything reachable from a submit: one entry per transition and the attempt state it starts from. */
function stepsFromSubmit() {
  const steps = transitions
    .filter(([, { from }]) => from === null)
    .map(([name, transition]) => ({ name, from: '[*]', ...arrival(transition, 'none') }));
  const seen = new Set();
  for (const { to, attemptState } of steps) {
    if (seen.has(`${to} ${attemptState}`)) continue;
    seen.add(`${to} ${attemptState}`);
    const next = transitions.filter(([, transition]) => mayStart(transition, to, attemptState));
    // Appending while iterating is the walk: the loop ends when nothing new is reached.
    steps.push(
      ...next.map(([name, transition]) => ({ name, from: to, ...arrival(transition, attemptState) })),
    );
  }
  return steps;
}

function arrival(transition, attemptState) {
  return { to: transition.to, attemptState: resultOf(transition, attemptState).attemptState };
}

/** Throws when the model no longer has one of the usual steps. */
function usualDiagram() {
  const steps = new Set(stepsFromSubmit().map(({ name, from, to }) => `${from} ${name} ${to}`));
  const missing = USUAL.filter(([from, name, to]) => name !== '' && !steps.has(`${from} ${name} ${to}`));
  if (missing.length > 0) throw new Error(`the model has no step ${missing[0].join(' ')}`);
  return mermaid(
    USUAL.map(([from, name, to]) => (name === '' ? `${from} --> ${to}` : `${from} --> ${to}: ${name}`)),
  );
}

function mermaid(arrows) {
  return ['```mermaid', 'stateDiagram-v2', ...arrows.map((arrow) => `    ${arrow}`), '```'].join('\n');
}

function diagram() {
  const labels = new Map();
  for (const { name, from, to } of stepsFromSubmit()) {
    const edge = `${from} --> ${to}`;
    labels.set(edge, (labels.get(edge) ?? new Set()).add(name));
  }
  const reached = new Set([...labels.keys()].map((edge) => edge.split(' ').at(-1)));
  const ends = situations.map(([name]) => name).filter((name) => reached.has(name) && !live.includes(name));
  return mermaid([
    ...[...labels].map(([edge, names]) => `${edge}: ${[...names].join(', ')}`),
    ...ends.map((name) => `${name} --> [*]`),
  ]);
}

function situationTable() {
  const rows = situations.map(([name, situation]) => [
    code(name),
    code(situation.lifecyclePhase),
    code(situation.ownershipState),
    code(situation.eligibilityState),
    stacked(situation.blockingReasons),
    code(situation.terminalOutcome),
    stacked(situation.attemptStates),
    orDash(stacked(transitions.filter(([, { to }]) => to === name).map(([transition]) => transition))),
  ]);
  const heads = ['Situation', 'Phase', 'Ownership', 'Eligibility', 'Blocking reason', 'Outcome', 'Attempt'];
  return table([...heads, 'Reached by'], rows);
}

function startsText({ from, fromAttempt }) {
  if (from === null) return '(new)';
  const places = from.length === live.length ? 'every live situation' : codes(from);
  return fromAttempt === undefined ? places : `${places}, in<br>${stacked(fromAttempt)}`;
}

function eventsText(transition) {
  const completion = completionEventOf(transition);
  const parts = [];
  if (transition.leaseEvent !== null) parts.push(`lease ${code(transition.leaseEvent)}`);
  if (completion !== null) parts.push(`completion ${code(completion)}`);
  if (transition.operatorEvent !== null) parts.push(`operator ${code(transition.operatorEvent)}`);
  if (transition.signalEvent !== null) parts.push(`signal ${code(transition.signalEvent)}`);
  return orDash(parts.join(', '));
}

function transitionTable() {
  const rows = transitions.map(([name, transition]) => [
    code(name),
    startsText(transition),
    code(transition.to),
    transition.attemptState === null ? 'kept' : code(transition.attemptState),
    orDash(transition.attemptOutcome && code(transition.attemptOutcome)),
    eventsText(transition),
  ]);
  return table(['Transition', 'From', 'To', 'Attempt state', 'Attempt ends', 'Events'], rows);
}

function counterTable() {
  const step = (amount) => (amount === 0 ? '–' : `${typeof amount === 'string' ? '' : '+'}${amount}`);
  const rows = transitions
    .map(([name, { epochStep, attemptStep, retryStep, reclaimStep, replayStep, runStep }]) => ({
      name,
      // A replay resets retries and reclaims, and so does the next run.
      steps: [
        epochStep,
        attemptStep,
        ...(replayStep + runStep === 0 ? [retryStep, reclaimStep] : ['from 0', 'from 0']),
        replayStep,
      ],
    }))
    .filter(({ steps }) => steps.some((amount) => amount !== 0))
    .map(({ name, steps }) => [code(name), ...steps.map(step)]);
  return table(
    ['Transition', '`lease_epoch`', '`attempt_index`', '`retry_count`', '`reclaim_count`', '`replay_count`'],
    rows,
  );
}

/** The labels of a situation before and after its due time; equal where time does not matter. */
function labelsOf(situation) {
  const vector = {
    ...situation,
    blockingReason: situation.blockingReasons[0],
    attemptState: situation.attemptStates[0],
  };
  return {
    before: publicState(vector, DUE_AT_MS, DUE_AT_MS - 1),
    after: publicState(vector, DUE_AT_MS, DUE_AT_MS),
  };
}

function publicStateTable() {
  const members = new Map();
  const add = (label, text) => members.set(label, [...(members.get(label) ?? []), text]);
  for (const [name, situation] of situations) {
    const { before, after } = labelsOf(situation);
    add(before, before === after ? code(name) : `${code(name)} until it is due`);
    if (before !== after) add(after, `${code(name)} once it is due`);
  }
  return table(
    ['Public state', 'Situations'],
    [...members].map(([label, names]) => [code(label), names.join(', ')]),
  );
}

async function chart() {
  const text = `# State machine of an execution

Generated by \`node scripts/state-chart.mjs --write\` from the situations (\`src/model/situations.ts\`) and the
transitions (\`src/model/transitions.ts\`). Do not edit: change the model instead.

An execution's state is six values that are always written together. Only some combinations are legal; each of
those has a name here, its situation. A transition leads from one situation to another in one database
transaction, together with the events it owes. What is not in these tables cannot happen.

Most executions are submitted, claimed and completed; some are retried, or suspended until a signal:

${usualDiagram()}

The [last chart](#everything-that-can-happen) shows every transition.

## Situations

A situation that no transition leads to is legal in the schema and has no operation in this version. There is no situation
for a lapsed or revoked lease: one transition takes the execution from a lost lease to its next situation.

${situationTable()}

## Transitions

A live situation is one whose phase is not \`terminal\`; nothing but a replay leads out of a terminal one. An attempt ends
only if one is open, and a lease event is written only if there was a lease. \`claim\` writes \`reclaimed\` instead of
\`acquired\` when the attempt before lost its lease.

${transitionTable()}

## Counters

What a transition adds; transitions that are not listed add nothing. The epoch grows when a lease is granted and when
one is taken away, so that an earlier owner's writes are refused.

${counterTable()}

## Public state

The one label people see. It is derived, never stored: a delay that is due reads as \`waiting\` even before its timer
has fired.

${publicStateTable()}

## Everything that can happen

From a submit on:

${diagram()}
`;
  return format(text, { ...(await resolveConfig(CHART_FILE)), parser: 'markdown' });
}

process.exitCode = await keepGenerated(process.argv[2], {
  path: 'docs/state-machine.md',
  renewedBy: 'npm run chart:write',
  make: chart,
});
