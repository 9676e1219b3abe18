/**
 * `flowfabric stream`: the output of an execution, from a place on and as it comes, until it is over. How it looks is in
 * stream-screen.ts; the exit code says how it ended.
 */
import { once } from 'node:events';
import type { Command } from 'commander';
import type { Connection } from '../../connect/connect.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import type { ExecutionEnd } from '../../contract/engine.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import type { StreamCloseReason, StreamItem } from '../../contract/streams.ts';
import { startOf } from '../../engine/streams/cursor.ts';
import { EXIT, UsageError } from '../exit-codes.ts';
import { schemaWords } from '../filter-options.ts';
import { parseWhole } from '../input.ts';
import { ID_HELP } from '../registering.ts';
import { printable } from '../secrets.ts';
import { withEngine, type Session } from '../session.ts';
import { jsonOf, StreamScreen } from '../drawing/stream.ts';
import { commandLine, why } from '../wording.ts';

export interface StreamOptions {
  from?: string;
  attempt?: string;
  mode?: string;
  /** False with --no-follow. */
  follow: boolean;
}

const MODES = ['all', 'durable'] as const;
const ATTEMPT = { min: 1, max: 1_000_000_000 };

export function describeStream(command: Command): Command {
  return command
    .summary('print what an execution writes, as it writes it')
    .description('Print the output of an execution, attempt after attempt, until it is over.')
    .argument('<id>', ID_HELP)
    .option('--from <cursor>', 'go on after this cursor; or start (default: start)')
    .option('--attempt <n>', 'only this attempt, 1 for the first')
    .option('--mode <mode>', 'all, or durable to leave best-effort frames out (default: all)')
    .option('--no-follow', 'end when all that is there is printed');
}

/** What is asked for, checked. */
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

export async function streamCommand(id: string, options: StreamOptions, session: Session): Promise<number> {
  parseExecutionId(id, 'id');
  const asked = readOptions(id, options);
  return withEngine(session, { listen: options.follow ? 'on' : 'off' }, async (engine) => {
    const end = options.follow ? null : await placeOfEnd(engine, asked);
    const closed = await print(engine, asked, end, session);
    session.signal.throwIfAborted();
    return verdict(engine, asked, closed, session);
  });
}

function readOptions(id: string, options: StreamOptions): Asked {
  const { attempt, from = 'start', mode = 'all' } = options;
  const known = MODES.find((name) => name === mode);
  if (known === undefined) throw new UsageError(`--mode must be one of ${MODES.join(', ')}.`);
  const attemptIndex = attempt === undefined ? null : parseWhole(attempt, '--attempt', ATTEMPT) - 1;
  const after = from === 'start' ? undefined : from;
  return { id, options, attemptIndex, after, mode: known, start: readStart(after, attemptIndex) };
}

/** Before a database is asked, and in the words of the command line. */
function readStart(after: string | undefined, attemptIndex: number | null): Place {
  try {
    const { isExact, ...start } = startOf(after, attemptIndex);
    if (isExact) return start;
  } catch (error) {
    if (!isEngineError(error)) throw error;
  }
  const form = attemptIndex === null ? '<attempt>/<ms>-<seq>' : '<ms>-<seq>, of this attempt';
  throw new EngineError(
    'invalid_cursor',
    `--from must be start, or a cursor that was printed, such as ${form}.`,
  );
}

/** Where the stream is now. */
interface End extends Place {
  isClosed: boolean;
}

async function placeOfEnd(engine: Connection, { id, attemptIndex: only }: Asked): Promise<End> {
  const page = await engine.readStream(id, {
    ...(only === null ? {} : { attemptIndex: only }),
    direction: 'backward',
    limit: 1,
  });
  return { attemptIndex: page.attemptIndex, seq: page.frameCount, isClosed: page.closed !== null };
}

/** Whether nothing that was there at the end's time comes after the place. */
function isReached({ attemptIndex, seq }: Place, end: End): boolean {
  if (attemptIndex !== end.attemptIndex) return attemptIndex > end.attemptIndex;
  return !end.isClosed && seq >= end.seq;
}

function placeOf(item: StreamItem): Place {
  if (item.type === 'superseded') return { attemptIndex: item.by, seq: 0 };
  const seq = Number(item.cursor.slice(item.cursor.lastIndexOf('-') + 1));
  return { attemptIndex: item.attemptIndex, seq };
}

/** The reason of the last attempt that was closed; null when none was. */
async function print(
  engine: Connection,
  asked: Asked,
  end: End | null,
  session: Session,
): Promise<StreamCloseReason | null> {
  const { id, attemptIndex, after, start } = asked;
  if (end !== null && isReached(start, end)) return null;
  const items = engine.tailStream(id, {
    ...(attemptIndex === null ? {} : { attemptIndex }),
    ...(after === undefined ? {} : { after }),
    signal: session.signal,
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
    reader.end(closed === null && end !== null ? 'open' : 'over');
    return closed;
  } catch (error) {
    reader.end('open');
    throw error;
  }
}

/** Prints what is asked for, no faster than it is read, and says how to go on where more may come. */
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
    const { printer, signal } = this.#session;
    this.#cursor = item.cursor;
    if (!isWanted(item, this.#asked.mode)) return;
    if (printer.format === 'json') printer.result(jsonOf(item), []);
    else this.#screen.show(item);
    if (process.stdout.writableNeedDrain) await once(process.stdout, 'drain', { signal });
  }

  end(stream: 'open' | 'over'): void {
    process.stdout.off('error', this.#onGone);
    if (!this.#isRead) return;
    this.#screen.end();
    if (stream === 'over' || this.#cursor === undefined) return;
    const command = commandLine([...this.#words(), '--from', this.#cursor]);
    const lines = [[['go on with', 'dim']], [[`  ${command}`]]] as const;
    this.#session.printer.aside({ cursor: this.#cursor, command }, lines);
  }

  #words(): string[] {
    const { id, mode, options } = this.#asked;
    return [
      'flowfabric',
      'stream',
      id,
      ...schemaWords(this.#session),
      ...(options.attempt === undefined ? [] : ['--attempt', options.attempt]),
      ...(mode === 'all' ? [] : ['--mode', mode]),
      ...(options.follow ? [] : ['--no-follow']),
    ];
  }

  /** Who has gone away is told nothing. */
  readonly #onGone = (): void => {
    this.#isRead = false;
  };
}

/** Here, and not by the engine: a place that is passed unseen must still be told. */
function isWanted(item: StreamItem, mode: Asked['mode']): boolean {
  if (mode === 'all') return true;
  return item.type === 'frame' ? item.frame.mode !== 'best_effort' : item.type !== 'gap';
}

/** 0 for success, or when nobody asked to wait for the end. */
async function verdict(
  engine: Connection,
  { id, attemptIndex, options }: Asked,
  closed: StreamCloseReason | null,
  { printer }: Session,
): Promise<number> {
  if (attemptIndex !== null && closed !== null) return closed === 'attempt_success' ? EXIT.ok : EXIT.failed;
  const snapshot = await engine.describe(id);
  if (snapshot === null)
    throw new EngineError('not_found', `There is no execution ${printable(id)} any more.`);
  if (attemptIndex !== null && attemptIndex > snapshot.attemptIndex && options.follow)
    throw new EngineError('not_found', `It ended, and there was no attempt ${attemptIndex + 1}.`);
  if (snapshot.state.lifecyclePhase !== 'terminal') return options.follow ? EXIT.failed : EXIT.ok;
  const end = (await engine.result(id)) as ExecutionEnd;
  if (end.outcome === 'success') return EXIT.ok;
  const sentence = why(snapshot, end);
  printer.aside({ outcome: end.outcome, reason: closed, why: sentence }, [[[`flowfabric: ${sentence}`]]]);
  return EXIT.failed;
}
