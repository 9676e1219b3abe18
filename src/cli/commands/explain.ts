/**
 * `flowfabric explain`: what keeps an execution from running, in one sentence; what else does, or with --all every gate that
 * was checked; and the command that helps. The sentences are the engine's.
 */
import type { Json } from '../../contract/json.ts';
import type { Explanation, Gate, GateName } from '../../contract/operations.ts';
import { AN_ID, ID_ARGUMENT, type CommandSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import type { Line } from '../style.ts';
import { printable } from '../../contract/secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { checkId, executionIdOf, noExecution, shortIds, type Shorten } from '../short-ids.ts';
import { folded } from '../table.ts';
import { commandLine, toneOf, whyOf } from '../wording.ts';

interface ExplainOptions {
  all?: true;
}

type Explained = Extract<Explanation, { outcome: 'explained' }>;

export const explain: CommandSpec = {
  name: 'explain',
  alias: 'why',
  summary: 'explain why an execution is not running',
  description: 'Explain what keeps an execution from running, and what helps.',
  arguments: [ID_ARGUMENT],
  options: [['--all', 'also what was checked and does not keep it']],
  examples: [`flowfabric explain ${AN_ID}`, `flowfabric explain ${AN_ID} --all`],
  action: run,
};

async function run(session: Session, { all }: ExplainOptions, given: string): Promise<number> {
  checkId(given);
  return withEngine(session, { listen: 'off' }, async (engine) => {
    const id = await executionIdOf(engine, session, given);
    const explanation = await engine.executions.explain(id);
    if (explanation.outcome === 'not_found') throw await noExecution(engine, given);
    const { outcome: _, ...told } = explanation;
    const words = nextWords(explanation);
    const short = await shortIds(engine, session, [told, words]);
    const next =
      words === null ? null : commandLine(['flowfabric', ...words.map(short), ...schemaWords(session)]);
    const { columns: width } = session.printer;
    const gates = told.gates.filter(({ gate, holds }) => all || (holds && gate !== told.holding?.gate));
    session.printer.result({ ...told, next }, [
      [[`${short(told.executionId)}  `], [told.state, toneOf(told.state)]],
      ...folded([[[short(whyOf(explanation)), 'strong']], ...gateLines(gates, short)], width),
      ...(next === null ? [] : [[['next: ', 'dim'], [next]] as const]),
    ]);
    return EXIT.ok;
  });
}

function gateLines(gates: readonly Gate[], short: Shorten): Line[] {
  const longest = Math.max(...gates.map(({ gate }) => gate.length));
  return gates.map(({ gate, holds, detail }): Line => {
    const tone = holds ? 'plain' : 'dim';
    return [
      [holds ? '  holds  ' : '  open   ', holds ? 'warn' : 'dim'],
      [`${gate.replaceAll('_', ' ').padEnd(longest)}  `, tone],
      [short(printable(detail)), tone],
    ];
  });
}

type NextWords = (explanation: Explained, gate: Gate) => readonly string[] | null;

/** The next command, by what holds it. A time that must pass needs none. */
const NEXT: Partial<Record<GateName, NextWords>> = {
  ended: ({ executionId, state }, { facts }) => {
    if (state === 'completed') return ['describe', executionId];
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
