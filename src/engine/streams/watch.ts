/**
 * One execution as a page shows it: its document, its progress and its state, each whenever it has changed. What comes in
 * between two looks is not told. Streams wake it, and because nothing tells of progress, it also looks each second.
 */
import { setTimeout as delay } from 'node:timers/promises';
import { EngineError, isPassingTrouble } from '../../contract/errors.ts';
import type { ExecutionSnapshot } from '../../contract/executions.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { abortSignal } from '../../contract/shape/kinds.ts';
import { shape } from '../../contract/shape/shape.ts';
import type { StreamSummary, WatchItem, WatchRequest } from '../../contract/streams.ts';
import { unlessAborted } from '../../model/aborting.ts';
import { readSnapshotOf } from '../executions/reads.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import { cancelling } from '../kit/cancelling.ts';
import type { EngineContext } from '../kit/context.ts';
import { restAt, type ReaderPlace } from './reader-place.ts';
import { DatabaseStreams } from './source.ts';
import { readSummary } from './streams.ts';

const LOOK_EVERY_MS = 1_000;
/** Shortest interval between two looks: a stream may have thousands of frames a second. */
const LOOK_AFTER_MS = 100;

const watchRequest = shape<WatchRequest>({ signal: abortSignal.optional() });

export function watchExecution(
  context: EngineContext,
  executionId: string,
  request: WatchRequest = {},
): AsyncIterable<WatchItem> {
  const { signal: given } = watchRequest.check(request, 'request');
  const key = parseExecutionId(executionId);
  return cancelling(given, (signal) => watchItems(context, executionId, key, signal));
}

interface Look {
  /** Null when the execution is gone. */
  snapshot: ExecutionSnapshot | null;
  summary: StreamSummary | null;
  place: ReaderPlace;
}

async function* watchItems(
  context: EngineContext,
  executionId: string,
  key: ExecutionKey,
  signal: AbortSignal,
): AsyncGenerator<WatchItem, void, undefined> {
  let before: Look | undefined;
  for (;;) {
    const from = before?.place;
    const look = await surely(signal, () => lookAt(context, executionId, key, from));
    if (look.snapshot === null && before === undefined) throw notFound(executionId);
    if (look.snapshot === null) return;
    yield* changesOf(look, look.snapshot, before);
    if (look.snapshot.stateVector.lifecyclePhase === 'terminal') return;
    before = look;
    await unlessAborted(signal, delay(LOOK_AFTER_MS, undefined, { ref: false }));
    await unlessAborted(signal, context.streams.nextWithin(look.place, LOOK_EVERY_MS));
  }
}

/**
 * The end of the stream first, and then what is shown: what is written in between is seen twice rather than never. The
 * document last: when the execution has ended, it is the final one.
 */
async function lookAt(
  context: EngineContext,
  executionId: string,
  key: ExecutionKey,
  before: ReaderPlace | undefined,
): Promise<Look> {
  const attemptIndex = before?.attemptIndex ?? 0;
  const start = before ?? { ...key, attemptIndex, tsMs: 0, seq: 0, told: null, epoch: 0 };
  const head = (await new DatabaseStreams(context.database).heads([{ ...key, attemptIndex }])).get(0);
  const snapshot =
    head === undefined ? null : ((await readSnapshotOf(context, executionId))?.snapshot ?? null);
  if (head === undefined || snapshot === null) return { snapshot: null, summary: null, place: start };
  const current = head.currentAttempt;
  // Another attempt has another stream: from its beginning on.
  const place =
    current === attemptIndex
      ? restAt(start, head)
      : { ...start, attemptIndex: current, tsMs: 0, seq: 0, told: null, epoch: 0 };
  return { snapshot, summary: await readSummary(context, executionId), place };
}

function* changesOf(
  { summary }: Look,
  { progress, state, attemptIndex }: ExecutionSnapshot,
  before: Look | undefined,
): Generator<WatchItem, void, undefined> {
  const seen = before?.summary ?? null;
  const isSame = summary?.version === seen?.version && summary?.attemptIndex === seen?.attemptIndex;
  if (summary !== null && !isSame) {
    const { document, version } = summary;
    yield { type: 'document', attemptIndex: summary.attemptIndex, document, version };
  }
  if (progress !== null && !isSameProgress(progress, before?.snapshot?.progress ?? null))
    yield { type: 'progress', ...progress };
  if (state !== before?.snapshot?.state || attemptIndex !== before.snapshot.attemptIndex)
    yield { type: 'state', state, attemptIndex };
}

type Report = NonNullable<ExecutionSnapshot['progress']>;

function isSameProgress(one: Report, other: Report | null): boolean {
  return one.percent === other?.percent && one.message === other?.message;
}

/** Retries while the database is unreachable: an outage ends nothing. */
async function surely<Value>(signal: AbortSignal, ask: () => Promise<Value>): Promise<Value> {
  for (;;) {
    try {
      return await unlessAborted(signal, ask());
    } catch (error) {
      if (!isPassingTrouble(error)) throw error;
    }
    await unlessAborted(signal, delay(LOOK_EVERY_MS, undefined, { ref: false }));
  }
}

function notFound(executionId: string): EngineError {
  return new EngineError('not_found', `There is no execution ${executionId}.`, { field: 'executionId' });
}
