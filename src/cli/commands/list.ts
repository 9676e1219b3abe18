/**
 * `flowfabric list`: executions that match a filter, one page or all of them, one line each. A list, so one object per
 * line as JSON; the command that continues is printed on stderr.
 */
import type { Connection } from '../../connect/connection.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { ExecutionFilter, ExecutionSummary } from '../../contract/operations.ts';
import { CURSOR_OPTION, type CommandSpec } from '../command.ts';
import { executionTable, readPage, summaryRows, type Walk } from '../execution-table.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import {
  FILTER_OPTIONS,
  filterWords,
  impliedStates,
  inOptions,
  readFilter,
  schemaWords,
  type FilterOptions,
} from '../filter-options.ts';
import { DEFAULT_LIMIT, LIMIT_OPTION, parseLimit } from '../input.ts';
import { shortIds } from '../short-ids.ts';
import { withEngine, type Session } from '../session.ts';
import { commandLine, thousands } from '../wording.ts';

const NO_EXECUTIONS = "there are no executions yet. Submit one: flowfabric submit TASK --input '{}'";
const NOTHING_MATCHES = 'no execution matches. Omit a condition, or list all: flowfabric list';

interface ListOptions extends FilterOptions {
  limit?: string;
  cursor?: string;
  all?: true;
}

export const list: CommandSpec = {
  name: 'list',
  summary: 'list executions',
  description: 'List executions that match all conditions: newest first, finished ones by when they ended.',
  options: [...FILTER_OPTIONS, LIMIT_OPTION, CURSOR_OPTION, ['--all', 'print all of them']],
  examples: [
    'flowfabric list --state failed --ended-after 2h --error-contains timeout',
    'flowfabric list --lane mail --tag customer=42 --limit 200',
    'flowfabric list --state active --all --json | jq -r .workerInstanceId',
  ],
  action: run,
};

async function run(session: Session, options: ListOptions): Promise<number> {
  if (options.all && options.limit !== undefined)
    throw new UsageError('--all prints everything: omit --limit.');
  const limit = parseLimit(options.limit);
  return withEngine(session, { listen: 'off' }, async (engine) => {
    const filter = await readFilter(options, engine, session, impliedStates(options));
    const nowMs = session.printer.format === 'json' ? 0 : await engine.upkeep.serverTimeMs();
    const print = listPrinter(engine, session, nowMs);
    const walk = { filter, cursor: options.cursor ?? null, session };
    try {
      const { cursor, found } = options.all
        ? await printAll(engine, walk, print)
        : await printPage(engine, walk, { limit, print });
      printRest({ filter, cursor, found, limit: options.all ? null : limit }, session);
    } catch (error) {
      throw inOptions(error);
    }
    session.interrupted.throwIfAborted();
    return EXIT.ok;
  });
}

type Print = (executions: readonly ExecutionSummary[]) => Promise<void>;

interface Walked {
  cursor: string | null;
  found: number;
}

async function printPage(
  engine: Pick<Connection, 'executions'>,
  walk: Walk,
  { limit, print }: { limit: number; print: Print },
): Promise<Walked> {
  const { executions, cursor } = await readPage(engine, walk, limit);
  await print(executions);
  return { cursor, found: executions.length };
}

/** Prints page by page, without keeping them. An interruption leaves the cursor to continue with. */
async function printAll(engine: Connection, walk: Walk, print: Print): Promise<Walked> {
  const { filter, session } = walk;
  let { cursor } = walk;
  let found = 0;
  do {
    const page = await engine.executions.list({
      filter,
      limit: LIMITS.listPage,
      ...(cursor === null ? {} : { cursor }),
    });
    await print(page.executions);
    found += page.executions.length;
    cursor = page.cursor;
  } while (cursor !== null && !session.interrupted.aborted);
  return { cursor, found };
}

function listPrinter(engine: Connection, session: Session, nowMs: number): Print {
  const { printer } = session;
  const table = executionTable(printer.columns);
  return async (executions) => {
    const short = await shortIds(engine, session, executions);
    printer.list(executions, table.lines(summaryRows(executions, nowMs, short)));
  };
}

interface Rest extends Walked {
  filter: ExecutionFilter;
  limit: number | null;
}

/** Prints the command that lists what was not printed. */
function printRest({ filter, cursor, found, limit }: Rest, session: Session): void {
  const { printer } = session;
  if (cursor === null) {
    if (found === 0) printer.note(Object.keys(filter).length === 0 ? NO_EXECUTIONS : NOTHING_MATCHES);
    return;
  }
  const words = ['flowfabric', 'list', ...schemaWords(session), ...filterWords(filter)];
  const paged = limit === DEFAULT_LIMIT ? [] : ['--limit', String(limit)];
  const size = limit === null ? ['--all'] : paged;
  const command = commandLine([...words, ...size, '--cursor', cursor]);
  const soFar = found === 0 ? 'nothing found yet' : `${thousands(found)} found so far`;
  const isFull = limit !== null && found >= limit;
  printer.next(`${isFull ? 'there may be more' : soFar}; continue with`, cursor, command);
}
