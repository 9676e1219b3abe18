/**
 * Reads the streams of a task's contract with their types: the frames of one name among all that the execution writes,
 * and the summary document. The engine follows the stream.
 */
import type { Streams as StreamGroup } from '../contract/connection.ts';
import type { ChunkStream, MergePatch, StreamKinds, SummaryStream } from '../define/streams.ts';
import type { Jsonified } from '../contract/json.ts';
import { parsed } from '../contract/shape/kinds.ts';
import { shape } from '../contract/shape/shape.ts';
import { guarded } from './guarded.ts';
import type { StreamFrame, StreamItem, StreamSummary, SummaryItem } from '../contract/streams.ts';

/** A frame of the stream with its chunk, or another item of a tail: closed, resumed, paused… */
export type ChunkItem<Chunk> =
  | Exclude<StreamItem, { type: 'frame' }>
  | { type: 'frame'; cursor: string; attemptIndex: number; frame: StreamFrame; payload: Chunk };

/** Where a tail starts, and when it stops. */
export interface ChunkTailOptions {
  /** Resumes after the item with this cursor. Default: from the beginning. */
  after?: string;
  signal?: AbortSignal;
}

/**
 * Follows one stream until the execution has finished: `for await (const item of run.streams.tokens)`. No durable chunk
 * is ever missing; a `gap` in a live stream counts the best-effort frames of all streams.
 */
export interface ChunkReader<Chunk> extends AsyncIterable<ChunkItem<Chunk>> {
  /** Yields the stored chunks and then new ones, until the execution has finished. */
  tail(options?: ChunkTailOptions): AsyncIterable<ChunkItem<Chunk>>;
}

/** The document may be partial: patches may not have set every key yet. */
export type TypedSummary<Document> = Omit<StreamSummary, 'document'> & { document: Partial<Document> };

/** What watching a document yields: the document, its patches, and that the stream was closed. */
export type TypedSummaryItem<Document> =
  | Extract<SummaryItem, { type: 'closed' }>
  | (Omit<Extract<SummaryItem, { type: 'document' }>, 'document'> & { document: Partial<Document> })
  | (Omit<Extract<SummaryItem, { type: 'patch' }>, 'patch'> & { patch: MergePatch<Document> });

/** Reads the summary document of an execution. */
export interface SummaryReader<Document> {
  /** Reads the document of the latest attempt; null before its first patch. */
  read(): Promise<TypedSummary<Document> | null>;
  /** Yields the current document, then each patch once; apply patches with `applyPatch`. */
  watch(options?: { signal?: AbortSignal }): AsyncIterable<TypedSummaryItem<Document>>;
}

/** Readers of the streams of a task's contract, by name. */
export type StreamReaders<Streams extends StreamKinds> = {
  readonly [Name in keyof Streams]: unknown extends Streams[Name]
    ? Streams[Name]
    : Streams[Name] extends SummaryStream<infer Document>
      ? SummaryReader<Jsonified<Document>>
      : Streams[Name] extends ChunkStream<infer _Made, infer Out>
        ? ChunkReader<Out>
        : never;
};

const watchOptions = shape<{ signal?: AbortSignal }>({ signal: parsed.optional() });
const tailOptions = shape<ChunkTailOptions>({ after: parsed.optional(), signal: parsed.optional() });

export function streamReaders(streams: StreamGroup, executionId: string, kinds: StreamKinds): object {
  const readers = Object.entries(kinds).map(([name, { mode }]) => [
    name,
    mode === 'summary' ? summaryReader(streams, executionId) : chunkReader(streams, executionId, name, mode),
  ]);
  return Object.fromEntries(readers) as object;
}

function summaryReader(streams: StreamGroup, executionId: string): SummaryReader<object> {
  return guarded<SummaryReader<object>>({
    read: () => streams.readSummary(executionId, { reveal: true }),
    watch: (options = {}) => {
      watchOptions.check(options, 'options');
      return streams.watchSummary(executionId, { ...options, reveal: true }) as AsyncIterable<
        TypedSummaryItem<object>
      >;
    },
  });
}

function chunkReader(
  streams: StreamGroup,
  executionId: string,
  name: string,
  mode: ChunkStream<unknown>['mode'],
): ChunkReader<unknown> {
  // Only best-effort frames can have gaps, which do not concern readers of durable streams.
  const visibility = mode === 'durable' ? 'exclude_best_effort' : 'all';
  const tail = (options: ChunkTailOptions = {}): AsyncIterable<ChunkItem<unknown>> => {
    tailOptions.check(options, 'options');
    return only(name, streams.tail(executionId, { ...options, visibility, reveal: true }));
  };
  return guarded({ tail, [Symbol.asyncIterator]: () => tail()[Symbol.asyncIterator]() });
}

/** Not a generator: a generator that awaits its next item cannot be closed. */
function only(name: string, items: AsyncIterable<StreamItem>): AsyncIterableIterator<ChunkItem<unknown>> {
  const all = items[Symbol.asyncIterator]();
  const nextItem = async (): Promise<IteratorResult<ChunkItem<unknown>>> => {
    for (;;) {
      const item = await all.next();
      if (item.done === true) return item;
      // What is different in another stream does not concern readers of this one.
      if (item.value.type === 'restarted' && item.value.stream !== name) continue;
      if (item.value.type !== 'frame') return { done: false, value: item.value };
      const { frame } = item.value;
      if (frame.frameType === name) return { done: false, value: { ...item.value, payload: frame.payload } };
    }
  };
  // One at a time, even when several are requested concurrently.
  let turn: Promise<unknown> = Promise.resolve();
  return {
    next() {
      const next = turn.then(nextItem);
      turn = next.catch(() => undefined);
      return next;
    },
    async return() {
      await all.return?.();
      return { done: true, value: undefined };
    },
    [Symbol.asyncIterator]() {
      return this;
    },
  };
}
