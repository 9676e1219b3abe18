/**
 * `flowfabric describe`: one execution, whole: its state and why, its input, lease, attempts, progress and steps, and how
 * it ended; once, or redrawn until it has ended.
 */
import type { Connection } from '../../connect/connection.ts';
import { DESCRIBE_PARTS } from '../../contract/described.ts';
import type { ExecutionEnd } from '../../contract/executions.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { AttemptRecord } from '../../contract/operations.ts';
import { AN_ID, ID_ARGUMENT, type CommandSpec } from '../command.ts';
import { pageLines, type Page } from '../drawing/execution.ts';
import { EXIT } from '../exit-codes.ts';
import { isLive, showLive } from '../live-screen.ts';
import { withEngine, type Session } from '../session.ts';
import { checkId, executionIdOf, noExecution, shortIds } from '../short-ids.ts';
import { thousands, whyOf } from '../wording.ts';

/** Pages of attempts read with --attempts. */
const ATTEMPT_PAGES_MAX = 100;
/** How often --watch redraws. */
const WATCH_EVERY_MS = 1_000;

interface DescribeOptions {
  attempts?: true;
  watch?: true;
}

export const describe: CommandSpec = {
  name: 'describe',
  alias: 'show',
  summary: 'show one execution',
  description:
    'Show an execution: its state and why, its input, lease, failure, attempts, progress,\nsteps, children and result.',
  arguments: [ID_ARGUMENT],
  options: [
    ['--attempts', 'list all attempts, with everything known about each'],
    ['--watch', 'redraw until it has ended; without a terminal, wait and print once'],
  ],
  examples: [`flowfabric describe ${AN_ID}`, `flowfabric describe ${AN_ID} --json | jq .timeline`],
  action: run,
};

async function run(session: Session, options: DescribeOptions, given: string): Promise<number> {
  checkId(given);
  const { printer, interrupted } = session;
  const page = await withEngine(session, { listen: 'off' }, async (engine): Promise<Page> => {
    const id = await executionIdOf(engine, session, given);
    const read = (): Promise<Page> => readPage(engine, session, { id, given, options });
    if (options.watch && isLive(printer)) return watch(session, read);
    if (options.watch) await engine.executions.wait(id, { signal: interrupted });
    return read();
  });
  interrupted.throwIfAborted();
  const { execution, why, end, attempts } = page;
  const whole = { ...execution, ...(attempts === null ? {} : { attempts }), why, result: end };
  printer.result(whole, pageLines(page, printer.columns));
  return EXIT.ok;
}

/** Returns the last page that was read: it is printed where the live screen was. */
async function watch({ printer, interrupted }: Session, read: () => Promise<Page>): Promise<Page> {
  let last = await read();
  if (last.end !== null) return last;
  await showLive({
    output: process.stdout,
    input: process.stdin,
    style: printer.style,
    everyMs: WATCH_EVERY_MS,
    interrupted,
    interrupt: () => void process.emit('SIGINT', 'SIGINT'),
    async read() {
      last = await read();
      return ({ columns }) => pageLines(last, columns);
    },
    isOver: () => last.end !== null,
  });
  return last;
}

interface Wanted {
  id: string;
  /** As it was typed. */
  given: string;
  options: DescribeOptions;
}

async function readPage(engine: Connection, session: Session, { id, given, options }: Wanted): Promise<Page> {
  const execution = await engine.executions.describe(id, { include: DESCRIBE_PARTS });
  const explanation = await engine.executions.explain(id);
  if (execution === null || explanation.outcome === 'not_found') throw await noExecution(engine, given);
  const hasEnded = execution.stateVector.lifecyclePhase === 'terminal';
  const end = hasEnded ? ((await engine.executions.result(id)) as ExecutionEnd) : null;
  const attempts = options.attempts ? await readAttempts(engine, id, session) : null;
  const why = whyOf(explanation);
  const { executionId, parentId, flowId, children } = execution;
  const ids = [executionId, parentId, flowId, children.items.map((child) => child.executionId), why];
  const short = await shortIds(engine, session, ids);
  return { execution, why, end, attempts, nowMs: await engine.upkeep.serverTimeMs(), short };
}

async function readAttempts(engine: Connection, id: string, { printer }: Session): Promise<AttemptRecord[]> {
  const newestFirst: AttemptRecord[] = [];
  let before: number | null = null;
  for (let pages = 0; pages < ATTEMPT_PAGES_MAX; pages += 1) {
    const page = await engine.executions.listAttempts(id, {
      limit: LIMITS.listPage,
      ...(before === null ? {} : { before: before as number }),
    });
    newestFirst.push(...page.attempts);
    before = page.before;
    if (before === null) return newestFirst.toReversed();
  }
  printer.note(`only the last ${thousands(newestFirst.length)} attempts are listed.`);
  return newestFirst.toReversed();
}
