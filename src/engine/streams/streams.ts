/**
 * Reads and follows streams: what is asked for is checked here, and nothing is written.
 */
import { EngineError } from '../../contract/errors.ts';
import type { Json } from '../../contract/json.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
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
import { epochAt, readFinishedSteps, readSummary as readStored, type FramePlace } from './streams.sql.ts';
import { unlessAborted } from '../../model/aborting.ts';
import { cancelling } from '../kit/cancelling.ts';
import { placeAfter, type ReaderPlace } from './reader-place.ts';
import { DatabaseStreams, type StreamRead } from './source.ts';
import { SharedHistory, StreamTail, type TailHistory, type TailOptions } from './tail.ts';
import { checkSignal, checkWhole, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { checkChoice, checkMembers } from '../kit/settings.ts';
import { afterPlace, lowerPlace, startOf, upperPlace } from './cursor.ts';

const DEFAULT_LIMIT = 1_000;
const MAX_ATTEMPT = 2_147_483_647;
const SEEN = ['durable', 'summary'] as const;

function checkVisibility(visibility: StreamVisibility | undefined): StreamVisibility {
  checkChoice(visibility, 'request.visibility', ['all', 'exclude_best_effort']);
  return visibility ?? 'all';
}

function checkAttempt(attemptIndex: number | undefined): number | null {
  return attemptIndex === undefined ? null : checkWhole(attemptIndex, 'request.attemptIndex', 0, MAX_ATTEMPT);
}

export async function readStream(
  context: EngineContext,
  executionId: string,
  request: ReadStreamRequest = {},
): Promise<StreamPage> {
  checkMembers(request, 'request', ['attemptIndex', 'from', 'to', 'limit', 'direction', 'visibility']);
  checkChoice(request.direction, 'request.direction', ['forward', 'backward']);
  const key = parseExecutionId(executionId);
  const read = await new DatabaseStreams(context.database).range(key, {
    attemptIndex: checkAttempt(request.attemptIndex),
    from: lowerPlace(request.from ?? 'start', 'request.from'),
    to: upperPlace(request.to ?? 'end', 'request.to'),
    limit: checkWhole(request.limit ?? DEFAULT_LIMIT, 'request.limit', 1, LIMITS.streamRead),
    order: request.direction ?? 'forward',
    maxBytes: LIMITS.streamPageBytes,
    modes: checkVisibility(request.visibility) === 'all' ? null : SEEN,
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
  checkMembers(request, 'request', ['attemptIndex', 'after', 'blockMs', 'limit', 'visibility']);
  const attemptIndex = checkAttempt(request.attemptIndex) ?? refuse('request.attemptIndex', 'must be given');
  const blockMs = checkWhole(request.blockMs ?? 0, 'request.blockMs', 0, LIMITS.tailBlockMs);
  const limit = checkWhole(request.limit ?? DEFAULT_LIMIT, 'request.limit', 1, LIMITS.streamRead);
  const wanted: Wanted = { limit, visibility: checkVisibility(request.visibility) };
  const after = afterPlace(request.after ?? '0-0', 'request.after');
  const key = parseExecutionId(executionId);
  const place: ReaderPlace = { ...key, attemptIndex, ...after, told: 'any', epoch: null };
  const waited = blockMs === 0 ? 'read it' : await waitFor(context, place, wanted, blockMs);
  return toPage(waited === 'read it' ? await readAfter(context, place, wanted) : waited, executionId);
}

function readAfter(
  context: EngineContext,
  place: ReaderPlace,
  { limit, visibility }: Wanted,
): Promise<StreamRead | undefined> {
  return new DatabaseStreams(context.database).range(place, {
    attemptIndex: place.attemptIndex,
    from: { tsMs: place.tsMs, seq: place.seq + 1 },
    to: upperPlace('end', ''),
    limit,
    order: 'forward',
    maxBytes: LIMITS.streamPageBytes,
    modes: visibility === 'all' ? null : SEEN,
  });
}

/** By the reads that all who wait there share; `read it` when they hold less than is wanted. */
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
    // What it does not want to see is passed by.
    place = placeAfter(place, read);
  }
}

function seenOf(read: StreamRead, { limit, visibility }: Wanted): StreamRead {
  const seen = visibility === 'all' ? read.frames : read.frames.filter(({ mode }) => mode !== 'best_effort');
  return { ...read, frames: seen.slice(0, limit), isComplete: read.isComplete && seen.length <= limit };
}

/** An attempt nobody began has no end of its own. */
function isOver({ attemptIndex, head }: StreamRead): boolean {
  return head.closed !== null || head.currentAttempt > attemptIndex || head.phase === 'terminal';
}

export function tailStream(
  context: EngineContext,
  executionId: string,
  request: TailRequest = {},
): AsyncIterable<StreamItem> {
  checkMembers(request, 'request', ['attemptIndex', 'after', 'visibility', 'signal']);
  const attemptIndex = checkAttempt(request.attemptIndex);
  const asked = {
    start: startOf(request.after, attemptIndex),
    follow: attemptIndex === null ? ('execution' as const) : ('attempt' as const),
    visibility: checkVisibility(request.visibility),
  };
  const key = parseExecutionId(executionId);
  return cancelling(checkSignal(request.signal, 'request.signal'), (signal) =>
    tailFrom(context, key, { ...asked, signal }).items(),
  );
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
  checkMembers(request, 'request', ['attemptIndex']);
  const found = await readStored(
    context.database,
    parseExecutionId(executionId),
    checkAttempt(request.attemptIndex),
  );
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
  checkMembers(request, 'request', ['attemptIndex', 'signal']);
  const key = parseExecutionId(executionId);
  const asked = checkAttempt(request.attemptIndex);
  return cancelling(checkSignal(request.signal, 'request.signal'), (signal) =>
    summaryItems(context, executionId, { key, asked, signal }),
  );
}

/** The document and the place of the last frame are of one moment: what comes after it is new. */
async function* summaryItems(
  context: EngineContext,
  executionId: string,
  { key, asked, signal }: { key: ExecutionKey; asked: number | null; signal: AbortSignal },
): AsyncGenerator<SummaryItem, void, undefined> {
  const first = await unlessAborted(signal, documentOf(context, executionId, key, asked));
  yield first.item;
  const start = { attemptIndex: first.item.attemptIndex, ...first.place, isExact: true };
  const follow = asked === null ? 'execution' : 'attempt';
  const visibility = 'exclude_best_effort';
  for await (const item of tailFrom(context, key, { start, follow, visibility, signal }).items()) {
    const told = toSummaryItem(item);
    if (told !== undefined) yield told;
  }
}

async function documentOf(
  context: EngineContext,
  executionId: string,
  key: ExecutionKey,
  asked: number | null,
): Promise<{ item: SummaryItem & { type: 'document' }; place: FramePlace }> {
  const found = await readStored(context.database, key, asked);
  if (found === undefined) throw notFound(executionId);
  const attemptIndex = found.attemptIndex ?? asked ?? found.currentAttempt;
  const { document, version, place } =
    found.attemptIndex === null ? { document: {}, version: 0, place: { tsMs: 0, seq: 0 } } : found;
  return { item: { type: 'document', attemptIndex, document, version }, place };
}

/** A new attempt has no document yet. */
function toSummaryItem(item: StreamItem): SummaryItem | undefined {
  const { attemptIndex } = item;
  if (item.type === 'closed') return { type: 'closed', attemptIndex, reason: item.reason };
  if (item.type === 'superseded')
    return { type: 'document', attemptIndex: item.by, document: {}, version: 0 };
  if (item.type !== 'frame' || item.frame.mode !== 'summary') return undefined;
  const patch = item.frame.payload as { [key: string]: Json };
  return { type: 'patch', attemptIndex, patch, version: item.frame.summaryVersion! };
}

function notFound(executionId: string): EngineError {
  return new EngineError('not_found', `There is no execution ${executionId}.`, { field: 'executionId' });
}
