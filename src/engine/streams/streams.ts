/**
 * Reads and follows streams. Checks requests; writes nothing.
 */
import { EngineError } from '../../contract/errors.ts';
import type { Json } from '../../contract/json.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { abortSignal, choice, parsed, whole } from '../../contract/shape/kinds.ts';
import { duration, msOf } from '../../contract/shape/duration.ts';
import { LIMITS } from '../../contract/limits.ts';
import { shape } from '../../contract/shape/shape.ts';
import type {
  ReadStreamRequest,
  StreamItem,
  StreamPage,
  StreamSummary,
  StreamVisibility,
  SummaryItem,
  TailOnceRequest,
  TailRequest,
  WatchSummaryRequest,
} from '../../contract/streams.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import { readDocument } from './documents.ts';
import { epochAt, readFinishedSteps, type FramePlace } from './streams.sql.ts';
import { unlessAborted } from '../../model/aborting.ts';
import { cancelling } from '../kit/cancelling.ts';
import { placeAfter, type ReaderPlace } from './reader-place.ts';
import { DatabaseStreams, type StreamRead } from './source.ts';
import { StreamTail } from './tail.ts';
import { SharedHistory, type TailHistory } from './tail-history.ts';
import type { TailOptions } from './tail-items.ts';
import type { EngineContext } from '../kit/context.ts';
import { afterPlace, lowerPlace, startOf, upperPlace } from './cursor.ts';

const DEFAULT_LIMIT = 1_000;
const SEEN = ['durable', 'summary'] as const;

const attempt = whole(0, 2_147_483_647);
const visibility = choice(['all', 'exclude_best_effort']);
const frameCount = whole(1, LIMITS.streamRead);

const readRequest = shape<ReadStreamRequest>({
  attemptIndex: attempt.optional(),
  from: parsed.optional(),
  to: parsed.optional(),
  limit: frameCount.optional(),
  direction: choice(['forward', 'backward']).optional(),
  visibility: visibility.optional(),
});
const tailOnceRequest = shape<TailOnceRequest>({
  attemptIndex: attempt,
  after: parsed.optional(),
  block: duration(LIMITS.tailBlockMs).optional(),
  limit: frameCount.optional(),
  visibility: visibility.optional(),
});
const tailRequest = shape<TailRequest>({
  attemptIndex: attempt.optional(),
  after: parsed.optional(),
  visibility: visibility.optional(),
  signal: abortSignal.optional(),
});
const summaryRequest = shape<{ attemptIndex?: number }>({ attemptIndex: attempt.optional() });
const watchRequest = shape<WatchSummaryRequest>({
  attemptIndex: attempt.optional(),
  signal: abortSignal.optional(),
});

export async function readStream(
  context: EngineContext,
  executionId: string,
  request: ReadStreamRequest = {},
): Promise<StreamPage> {
  readRequest.check(request, 'request');
  const key = parseExecutionId(executionId);
  const read = await new DatabaseStreams(context.database).range(key, {
    attemptIndex: request.attemptIndex ?? null,
    from: lowerPlace(request.from ?? 'start', 'request.from'),
    to: upperPlace(request.to ?? 'end', 'request.to'),
    limit: request.limit ?? DEFAULT_LIMIT,
    order: request.direction ?? 'forward',
    maxBytes: LIMITS.streamPageBytes,
    modes: (request.visibility ?? 'all') === 'all' ? null : SEEN,
  });
  return toPage(read, executionId);
}

function toPage(read: StreamRead | undefined, executionId: string): StreamPage {
  if (read === undefined) throw notFound(executionId);
  const { attemptIndex, frames, head, isComplete } = read;
  const { lastSeq, totalBytes } = head;
  const closed = isComplete ? head.closed : null;
  return { attemptIndex, frames: [...frames], isComplete, closed, frameCount: lastSeq, totalBytes };
}

interface Wanted {
  limit: number;
  visibility: StreamVisibility;
}

export async function tailOnce(
  context: EngineContext,
  executionId: string,
  request: TailOnceRequest,
): Promise<StreamPage> {
  const { attemptIndex, block = 0, limit = DEFAULT_LIMIT } = tailOnceRequest.check(request, 'request');
  const wanted: Wanted = { limit, visibility: request.visibility ?? 'all' };
  const after = afterPlace(request.after ?? '0-0', 'request.after');
  const key = parseExecutionId(executionId);
  const place: ReaderPlace = { ...key, attemptIndex, ...after, told: 'any', epoch: null };
  const blockMs = msOf(block);
  const waited = blockMs === 0 ? 'read it' : await waitFor(context, place, wanted, blockMs);
  return toPage(waited === 'read it' ? await readAfter(context, place, wanted) : waited, executionId);
}

function readAfter(
  context: EngineContext,
  place: ReaderPlace,
  wanted: Wanted,
): Promise<StreamRead | undefined> {
  return new DatabaseStreams(context.database).range(place, {
    attemptIndex: place.attemptIndex,
    from: { tsMs: place.tsMs, seq: place.seq + 1 },
    to: upperPlace('end', ''),
    limit: wanted.limit,
    order: 'forward',
    maxBytes: LIMITS.streamPageBytes,
    modes: wanted.visibility === 'all' ? null : SEEN,
  });
}

/** Uses the reads that all waiting readers share; `read it` when they contain fewer frames than the limit. */
async function waitFor(
  { streams }: EngineContext,
  start: ReaderPlace,
  wanted: Wanted,
  blockMs: number,
): Promise<StreamRead | undefined | 'read it'> {
  const deadline = performance.now() + blockMs;
  for (let place = start; ;) {
    const { read, isLate } = await streams.nextWithin(place, Math.max(0, deadline - performance.now()));
    if (read === undefined) return undefined;
    const seen = seenOf(read, wanted);
    if (isLate || seen.frames.length === wanted.limit) return seen;
    if (seen.frames.length > 0) return read.isComplete ? seen : 'read it';
    if (read.isComplete && isOver(read)) return seen;
    // Frames the request excludes are skipped.
    place = placeAfter(place, read);
  }
}

function seenOf(read: StreamRead, { limit, visibility: wanted }: Wanted): StreamRead {
  const seen = wanted === 'all' ? read.frames : read.frames.filter(({ mode }) => mode !== 'best_effort');
  return { ...read, frames: seen.slice(0, limit), isComplete: read.isComplete && seen.length <= limit };
}

/** An attempt that was never started has no outcome of its own. */
function isOver({ attemptIndex, head }: StreamRead): boolean {
  return head.closed !== null || head.currentAttempt > attemptIndex || head.phase === 'terminal';
}

export function tailStream(
  context: EngineContext,
  executionId: string,
  request: TailRequest = {},
): AsyncIterable<StreamItem> {
  const { attemptIndex = null, signal: given } = tailRequest.check(request, 'request');
  const asked = {
    start: startOf(request.after, attemptIndex),
    follow: attemptIndex === null ? ('execution' as const) : ('attempt' as const),
    visibility: request.visibility ?? 'all',
  };
  const key = parseExecutionId(executionId);
  return tailFrom(context, key, { ...asked, signal: given });
}

function tailFrom(context: EngineContext, key: ExecutionKey, options: TailOptions): StreamTail {
  return new StreamTail(context.streams, historyOf(context), key, options);
}

/** One for all tails of an engine. */
const histories = new WeakMap<EngineContext['streams'], TailHistory>();

function historyOf({ database, streams }: EngineContext): TailHistory {
  const known = histories.get(streams);
  if (known !== undefined) return known;
  const history = new SharedHistory({
    epochAt: (key, attemptIndex, place) => epochAt(database, key, attemptIndex, place),
    finishedSteps: (key, attemptIndex, epoch) => readFinishedSteps(database, key, attemptIndex, epoch),
  });
  histories.set(streams, history);
  return history;
}

export async function readSummary(
  context: EngineContext,
  executionId: string,
  request: { attemptIndex?: number } = {},
): Promise<StreamSummary | null> {
  const { attemptIndex: asked = null } = summaryRequest.check(request, 'request');
  const found = await readDocument(context.database, parseExecutionId(executionId), asked);
  if (found === undefined) throw notFound(executionId);
  const { attemptIndex, document, version, firstAppliedAtMs, lastUpdatedAtMs } = found;
  if (attemptIndex === null) return null;
  const patchKind = 'json-merge-patch';
  return { attemptIndex, document, version, patchKind, firstAppliedAtMs, lastUpdatedAtMs };
}

export function watchSummary(
  context: EngineContext,
  executionId: string,
  request: WatchSummaryRequest = {},
): AsyncIterable<SummaryItem> {
  const { attemptIndex: asked = null, signal: given } = watchRequest.check(request, 'request');
  const key = parseExecutionId(executionId);
  return cancelling(given, (signal) => summaryItems(context, executionId, { key, asked, signal }));
}

/**
 * The document and the last frame's position are from one snapshot, so everything after it is new. Another attempt
 * begins with a document of its own, which is read.
 */
async function* summaryItems(
  context: EngineContext,
  executionId: string,
  { key, asked, signal }: { key: ExecutionKey; asked: number | null; signal: AbortSignal },
): AsyncGenerator<SummaryItem, void, undefined> {
  const follow = asked === null ? 'execution' : 'attempt';
  for (let hasMovedOn = true; hasMovedOn;) {
    hasMovedOn = false;
    const { item: document, place } = await unlessAborted(
      signal,
      documentOf(context, executionId, key, asked),
    );
    yield document;
    const start = { attemptIndex: document.attemptIndex, ...place, isExact: true };
    const options = { start, follow, visibility: 'exclude_best_effort', signal } as const;
    for await (const item of tailFrom(context, key, options)) {
      hasMovedOn = item.type === 'superseded';
      if (hasMovedOn) break;
      const told = toSummaryItem(item);
      if (told !== undefined) yield told;
    }
  }
}

async function documentOf(
  context: EngineContext,
  executionId: string,
  key: ExecutionKey,
  asked: number | null,
): Promise<{ item: SummaryItem & { type: 'document' }; place: FramePlace }> {
  const found = await readDocument(context.database, key, asked);
  if (found === undefined) throw notFound(executionId);
  const attemptIndex = found.attemptIndex ?? asked ?? found.currentAttempt;
  const { document, version, place } =
    found.attemptIndex === null ? { document: {}, version: 0, place: { tsMs: 0, seq: 0 } } : found;
  return { item: { type: 'document', attemptIndex, document, version }, place };
}

function toSummaryItem(item: StreamItem): SummaryItem | undefined {
  const { attemptIndex } = item;
  if (item.type === 'closed') return { type: 'closed', attemptIndex, reason: item.reason };
  if (item.type !== 'frame' || item.frame.mode !== 'summary') return undefined;
  const patch = item.frame.applied ?? (item.frame.payload as { [key: string]: Json });
  return { type: 'patch', attemptIndex, patch, version: item.frame.summaryVersion! };
}

function notFound(executionId: string): EngineError {
  return new EngineError('not_found', `There is no execution ${executionId}.`, { field: 'executionId' });
}
