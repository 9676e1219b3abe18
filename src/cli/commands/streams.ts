/**
 * `flowfabric streams`: the output of an execution, from a cursor on; `tail` follows it until the execution has ended, `read`
 * stops after what is there. How it looks is in drawing/stream.ts; the exit code says how the execution ended.
 */
import { once } from 'node:events';
import type { Connection } from '../../connect/connection.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import type { ExecutionEnd } from '../../contract/executions.ts';
import type { StreamCloseReason, StreamItem } from '../../contract/streams.ts';
import { startOf } from '../../engine/streams/cursor.ts';
import { AN_ID, ID_ARGUMENT, type CommandSpec, type OptionSpec } from '../command.ts';
import { EXIT } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import { parseWhole } from '../input.ts';
import { printable } from '../../contract/secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { checkId, executionIdOf } from '../short-ids.ts';
import { jsonOf, StreamScreen } from '../drawing/stream.ts';
import { commandLine, whyOf } from '../wording.ts';

interface StreamOptions {
  from?: string;
  attempt?: string;
  mode?: (typeof MODES)[number];
  /** False with --no-follow, and for `read`. */
  follow: boolean;
}

const MODES = ['all', 'durable'] as const;
const ATTEMPT = { min: 1, max: 1_000_000_000 };

const TAIL_OPTIONS: readonly OptionSpec[] = [
  ['--from <cursor>', 'start after this cursor; or start (default: start)'],
  ['--attempt <n>', 'only this attempt, 1 for the first'],
  ['--mode <mode>', 'all, or durable to omit best-effort frames (default: all)', { choices: MODES }],
];

export const streams: CommandSpec = {
  name: 'streams',
  summary: 'print the output of an execution',
  description: 'The output that executions stream.',
  examples: [`flowfabric streams tail ${AN_ID}`],
  commands: [
    {
      name: 'tail',
      summary: 'print the output of an execution as it is written',
      description: 'Print the output of an execution, attempt by attempt, until it has ended.',
      arguments: [ID_ARGUMENT],
      options: [...TAIL_OPTIONS, ['--no-follow', 'stop after what is there, like streams read']],
      examples: [
        `flowfabric streams tail ${AN_ID}`,
        `flowfabric streams tail ${AN_ID} --from 0/1794802913416-17 --json`,
      ],
      action: run,
    },
    {
      name: 'read',
      summary: 'print the output that is there',
      description: 'Print the output that an execution has written so far.',
      arguments: [ID_ARGUMENT],
      options: TAIL_OPTIONS,
      examples: [`flowfabric streams read ${AN_ID} --attempt 1`],
      action: (session, options, id) => run(session, { ...options, follow: false }, id as string),
    },
  ],
};

/** The request, validated. */
interface Asked {
  id: string;
  options: StreamOptions;
  attemptIndex: number | null;
  start: Place;
  after: string | undefined;
  mode: (typeof MODES)[number];
}

interface Place {
  attemptIndex: number;
  seq: number;
}

async function run(session: Session, options: StreamOptions, given: string): Promise<number> {
  checkId(given);
  const checked = readOptions(given, options);
  return withEngine(session, { listen: options.follow ? 'on' : 'off' }, async (engine) => {
    const asked = { ...checked, id: await executionIdOf(engine, session, given) };
    const end = options.follow ? null : await placeOfEnd(engine, asked);
    const closed = await print(engine, asked, end, session);
    return verdict(engine, asked, closed, session);
  });
}

function readOptions(id: string, options: StreamOptions): Asked {
  const { attempt, from = 'start', mode = 'all' } = options;
  const attemptIndex = attempt === undefined ? null : parseWhole(attempt, '--attempt', ATTEMPT) - 1;
  const after = from === 'start' ? undefined : from;
  return { id, options, attemptIndex, after, mode, start: readStart(after, attemptIndex) };
}

/** Checked before the database is asked, so that the message can name the option. */
function readStart(after: string | undefined, attemptIndex: number | null): Place {
  try {
    const { isExact, ...start } = startOf(after, attemptIndex);
    if (isExact) return start;
  } catch (error) {
    if (!isEngineError(error)) throw error;
  }
  const form = attemptIndex === null ? '<attempt>/<ms>-<seq>' : '<ms>-<seq>, of this attempt';
  throw new EngineError('invalid_cursor', `--from must be start, or a printed cursor such as ${form}.`);
}

/** The current end of the stream. */
interface End extends Place {
  isClosed: boolean;
}

async function placeOfEnd(engine: Connection, { id, attemptIndex: only }: Asked): Promise<End> {
  const page = await engine.streams.read(id, {
    ...(only === null ? {} : { attemptIndex: only }),
    direction: 'backward',
    limit: 1,
  });
  return { attemptIndex: page.attemptIndex, seq: page.frameCount, isClosed: page.closed !== null };
}

/** Whether everything up to the end is before this place. */
function isReached({ attemptIndex, seq }: Place, end: End): boolean {
  if (attemptIndex !== end.attemptIndex) return attemptIndex > end.attemptIndex;
  return !end.isClosed && seq >= end.seq;
}

function placeOf(item: StreamItem): Place {
  if (item.type === 'superseded') return { attemptIndex: item.by, seq: 0 };
  const seq = Number(item.cursor.slice(item.cursor.lastIndexOf('-') + 1));
  return { attemptIndex: item.attemptIndex, seq };
}

/** Returns the reason the last attempt was closed for; null when none was. */
async function print(
  engine: Connection,
  asked: Asked,
  end: End | null,
  session: Session,
): Promise<StreamCloseReason | null> {
  const { id, attemptIndex, after, start } = asked;
  if (end !== null && isReached(start, end)) return null;
  const items = engine.streams.tail(id, {
    ...(attemptIndex === null ? {} : { attemptIndex }),
    ...(after === undefined ? {} : { after }),
    signal: session.interrupted,
  });
  const reader = new Reader(asked, session);
  let closed: StreamCloseReason | null = null;
  try {
    for await (const item of items) {
      await reader.take(item);
      closed = item.type === 'closed' ? item.reason : null;
      const isLast = item.type === 'closed' && item.attemptIndex === end?.attemptIndex;
      if (end !== null && (isLast || isReached(placeOf(item), end))) break;
    }
    session.interrupted.throwIfAborted();
    reader.end(closed === null && end !== null ? 'open' : 'over');
    return closed;
  } catch (error) {
    reader.end('open');
    throw error;
  }
}

/** Prints items no faster than they are read, and the command that continues when more may follow. */
class Reader {
  readonly #asked: Asked;
  readonly #session: Session;
  readonly #screen: StreamScreen;
  #cursor: string | undefined;
  #isRead = true;

  constructor(asked: Asked, session: Session) {
    this.#asked = asked;
    this.#session = session;
    this.#cursor = asked.after;
    this.#screen = new StreamScreen(process.stdout, (sentence) => session.printer.note(sentence));
    process.stdout.once('error', this.#onGone);
  }

  async take(item: StreamItem): Promise<void> {
    const { printer, interrupted } = this.#session;
    this.#cursor = item.cursor;
    if (!isWanted(item, this.#asked.mode)) return;
    if (printer.format === 'json') printer.result(jsonOf(item), []);
    else this.#screen.show(item);
    if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain', { signal: interrupted });
  }

  end(stream: 'open' | 'over'): void {
    process.stdout.off('error', this.#onGone);
    if (!this.#isRead) return;
    this.#screen.end();
    if (stream === 'over' || this.#cursor === undefined) return;
    const command = commandLine([...this.#words(), '--from', this.#cursor]);
    this.#session.printer.next('continue with', this.#cursor, command);
  }

  #words(): string[] {
    const { id, mode, options } = this.#asked;
    return [
      'flowfabric',
      'streams',
      options.follow ? 'tail' : 'read',
      id,
      ...schemaWords(this.#session),
      ...(options.attempt === undefined ? [] : ['--attempt', options.attempt]),
      ...(mode === 'all' ? [] : ['--mode', mode]),
    ];
  }

  /** Nothing is printed once the reader of the output is gone. */
  readonly #onGone = (): void => {
    this.#isRead = false;
  };
}

/** Filtered here and not by the engine, so that the cursor moves past frames that are not printed. */
function isWanted(item: StreamItem, mode: Asked['mode']): boolean {
  if (mode === 'all') return true;
  return item.type === 'frame' ? item.frame.mode !== 'best_effort' : item.type !== 'gap';
}

/** The exit code: 0 for success, and while it has not ended when it was not followed. */
async function verdict(
  engine: Connection,
  { id, attemptIndex, options }: Asked,
  closed: StreamCloseReason | null,
  { printer }: Session,
): Promise<number> {
  if (attemptIndex !== null && closed !== null) return closed === 'attempt_success' ? EXIT.ok : EXIT.failed;
  const snapshot = await engine.executions.describe(id);
  if (snapshot === null)
    throw new EngineError('not_found', `There is no execution ${printable(id)} any more.`);
  if (attemptIndex !== null && attemptIndex > snapshot.attemptIndex && options.follow)
    throw new EngineError('not_found', `It ended, and there was no attempt ${attemptIndex + 1}.`);
  if (snapshot.stateVector.lifecyclePhase !== 'terminal') return options.follow ? EXIT.failed : EXIT.ok;
  const end = (await engine.executions.result(id)) as ExecutionEnd;
  if (end.outcome === 'success') return EXIT.ok;
  const explanation = await engine.executions.explain(id);
  const why = explanation.outcome === 'explained' ? whyOf(explanation) : `It ended as ${end.outcome}.`;
  printer.aside({ outcome: end.outcome, reason: closed, why }, [[[`flowfabric: ${why}`]]]);
  return EXIT.failed;
}
