/**
 * `flowfabric why`: what keeps an execution from running, in one sentence; all that was asked about it; and the command
 * that helps.
 */
import type { Json } from '../../contract/engine.ts';
import { EngineError } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import type { Explanation, Gate, GateName } from '../../contract/operations.ts';
import { EXIT } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import type { Line, Span } from '../look.ts';
import { tableRows } from '../printer.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { commandLine, toneOf } from '../wording.ts';

type Explained = Extract<Explanation, { outcome: 'explained' }>;

const NOTHING_HOLDS = 'Nothing keeps it from running: a worker should take it any moment.';

export async function whyCommand(id: string, session: Session): Promise<number> {
  parseExecutionId(id, 'id');
  const explanation = await withEngine(session, { listen: 'off' }, (engine) => engine.explain(id));
  if (explanation.outcome === 'not_found')
    throw new EngineError('not_found', `There is no execution ${printable(id)}.`);
  const { outcome: _, ...told } = explanation;
  const words = nextWords(explanation);
  const next = words === null ? null : commandLine(['flowfabric', ...words, ...schemaWords(session)]);
  session.printer.result({ ...told, next }, linesOf(explanation, next));
  return EXIT.ok;
}

function linesOf(explanation: Explained, next: string | null): Line[] {
  const { executionId, publicState, holding, gates } = explanation;
  const rows = gates.map((gate): Span[] => [
    [gate.holds ? '  holds' : '  open', gate.holds ? 'warn' : 'dim'],
    [gate.gate.replaceAll('_', ' '), gate.holds ? 'plain' : 'dim'],
    [printable(gate.detail), gate.holds ? 'plain' : 'dim'],
  ]);
  return [
    [[`${executionId}  `], [publicState, toneOf(publicState)]],
    [[holding === null ? NOTHING_HOLDS : printable(holding.detail), 'strong']],
    ...tableRows(rows, []),
    ...(next === null ? [] : [[['next: ', 'dim'], [next]] as const]),
  ];
}

type NextWords = (explanation: Explained, gate: Gate) => readonly string[] | null;

/** Where to look or what to do, by what holds it. A time that must pass needs nothing. */
const NEXT: Partial<Record<GateName, NextWords>> = {
  ended: ({ executionId, publicState }, { facts }) => {
    if (publicState === 'completed') return ['show', executionId];
    return flowWords(facts['flowId']) ?? ['replay', executionId, '--reason', 'why'];
  },
  held: () => ['doctor'],
  running: ({ executionId }) => ['show', executionId],
  setback: () => ['doctor'],
  backing_off: ({ executionId }) => ['show', executionId, '--attempts'],
  waiting_children: ({ executionId }) => ['list', '--parent', executionId],
  waiting_upstreams: (_, { facts }) => flowWords(facts['flowId']),
  suspended: ({ executionId }) => ['approvals', executionId],
  lane_paused: (_, { facts }) => [
    'lanes',
    'resume',
    typeof facts['lane'] === 'string' ? facts['lane'] : 'LANE',
  ],
  no_worker: () => ['workers'],
  workers_busy: () => ['workers'],
  queued: () => ['lanes'],
};

/** What was skipped, or waits, does so because of others of its flow. */
function flowWords(flowId: Json | undefined): readonly string[] | null {
  return typeof flowId === 'string' ? ['flow', flowId] : null;
}

function nextWords(explanation: Explained): readonly string[] | null {
  const { holding } = explanation;
  return holding === null ? null : (NEXT[holding.gate]?.(explanation, holding) ?? null);
}
