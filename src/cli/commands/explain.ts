/**
 * `flowfabric explain`: what keeps an execution from running, in one sentence; every gate that was checked; and the command
 * that helps. The sentences are the engine's.
 */
import type { Json } from '../../contract/json.ts';
import { EngineError } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import type { Explanation, Gate, GateName } from '../../contract/operations.ts';
import { AN_ID, ID_ARGUMENT, type CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import type { Line, Span } from '../style.ts';
import { tableRows } from '../printer.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { commandLine, toneOf, whyOf } from '../wording.ts';

type Explained = Extract<Explanation, { outcome: 'explained' }>;

export const explain: CommandSpec = {
  name: 'explain',
  alias: 'why',
  summary: 'explain why an execution is not running',
  description: 'Explain what keeps an execution from running, what else could, and what helps.',
  arguments: [ID_ARGUMENT],
  examples: [`flowfabric explain ${AN_ID}`],
  action: run,
};

async function run(session: Session, _options: object, id: string): Promise<number> {
  parseExecutionId(id, 'id');
  const explanation = await withEngine(session, { listen: 'off' }, (engine) => engine.executions.explain(id));
  if (explanation.outcome === 'not_found')
    throw new EngineError('not_found', `There is no execution ${printable(id)}.`);
  const { outcome: _, ...told } = explanation;
  const words = nextWords(explanation);
  const next = words === null ? null : commandLine(['flowfabric', ...words, ...schemaWords(session)]);
  session.printer.result({ ...told, next }, linesOf(explanation, next));
  return EXIT.ok;
}

function linesOf(explanation: Explained, next: string | null): Line[] {
  const { executionId, publicState, gates } = explanation;
  const rows = gates.map((gate): Span[] => [
    [gate.holds ? '  holds' : '  open', gate.holds ? 'warn' : 'dim'],
    [gate.gate.replaceAll('_', ' '), gate.holds ? 'plain' : 'dim'],
    [printable(gate.detail), gate.holds ? 'plain' : 'dim'],
  ]);
  return [
    [[`${executionId}  `], [publicState, toneOf(publicState)]],
    [[whyOf(explanation), 'strong']],
    ...tableRows(rows, []),
    ...(next === null ? [] : [[['next: ', 'dim'], [next]] as const]),
  ];
}

type NextWords = (explanation: Explained, gate: Gate) => readonly string[] | null;

/** The next command, by what holds it. A time that must pass needs none. */
const NEXT: Partial<Record<GateName, NextWords>> = {
  ended: ({ executionId, publicState }, { facts }) => {
    if (publicState === 'completed') return ['describe', executionId];
    return flowWords(facts['flowId']) ?? ['replay', executionId, '--reason', '<why>'];
  },
  held: () => ['doctor'],
  running: ({ executionId }) => ['describe', executionId],
  setback: () => ['doctor'],
  backing_off: ({ executionId }) => ['describe', executionId, '--attempts'],
  waiting_children: ({ executionId }) => ['list', '--parent', executionId],
  waiting_upstreams: (_, { facts }) => flowWords(facts['flowId']),
  suspended: ({ executionId }) => ['waitpoints', 'list', executionId],
  lane_paused: (_, { facts }) => [
    'lanes',
    'resume',
    typeof facts['lane'] === 'string' ? facts['lane'] : 'LANE',
  ],
  no_worker: () => ['workers', 'list'],
  workers_busy: () => ['workers', 'list'],
  queued: () => ['lanes', 'list'],
};

/** A member that was skipped, or waits, does so because of other members of its flow. */
function flowWords(flowId: Json | undefined): readonly string[] | null {
  return typeof flowId === 'string' ? ['flows', 'describe', flowId] : null;
}

function nextWords(explanation: Explained): readonly string[] | null {
  const { holding } = explanation;
  return holding === null ? null : (NEXT[holding.gate]?.(explanation, holding) ?? null);
}
