/**
 * Reads the streams of a task's contract with its types: the frames of one name out of all that the execution writes, and the
 * document its patches make. How streams are followed is the engine's.
 */
import type { Streams as StreamGroup } from '../contract/connection.ts';
import type { ChunkStream, MergePatch, StreamKinds, SummaryStream } from '../define/streams.ts';
import { parsed } from '../contract/kinds.ts';
import { shape } from '../contract/shape.ts';
import type { StreamFrame, StreamItem, StreamSummary, SummaryItem } from '../contract/streams.ts';

/** A frame of the stream with its chunk, or what else a tail tells: that it was closed, begun again, paused… */
export type ChunkItem<Chunk> =
  | Exclude<StreamItem, { type: 'frame' }>
  | { type: 'frame'; cursor: string; attemptIndex: number; frame: StreamFrame; payload: Chunk };

/** Where a tail begins, and when it is left. */
export interface ChunkTailOptions {
  /** Go on after an item, by its cursor. Default: from the beginning. */
  after?: string;
  signal?: AbortSignal;
}

/**
 * Follows one stream until the execution is over: `for await (const item of run.streams.tokens)`. Of durable chunks none is missing;
 * a `gap` in live ones counts the best-effort frames of all streams.
 */
export interface ChunkReader<Chunk> extends AsyncIterable<ChunkItem<Chunk>> {
  tail(options?: ChunkTailOptions): AsyncIterable<ChunkItem<Chunk>>;
}

/** Patches may not have named every member yet. */
export type TypedSummary<Document> = Omit<StreamSummary, 'document'> & { document: Partial<Document> };

/** What watching the document yields: the document, its patches, and that the stream was closed. */
export type TypedSummaryItem<Document> =
  | Extract<SummaryItem, { type: 'closed' }>
  | (Omit<Extract<SummaryItem, { type: 'document' }>, 'document'> & { document: Partial<Document> })
  | (Omit<Extract<SummaryItem, { type: 'patch' }>, 'patch'> & { patch: MergePatch<Document> });

/** Reads the document that a handler's patches make. */
export interface SummaryReader<Document> {
  /** Of the latest attempt; null before its first patch. */
  read(): Promise<TypedSummary<Document> | null>;
  /** The document as it is, then each patch once: fold them with `applyPatch`. */
  watch(options?: { signal?: AbortSignal }): AsyncIterable<TypedSummaryItem<Document>>;
}

/** Readers of the streams of a task's contract, by name. */
export type StreamReaders<Streams extends StreamKinds> = {
  readonly [Name in keyof Streams]: Streams[Name] extends SummaryStream<infer Document>
    ? SummaryReader<Document>
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
  return {
    read: () => streams.readSummary(executionId),
    watch: (options = {}) => {
      watchOptions.check(options, 'options');
      return streams.watchSummary(executionId, options) as AsyncIterable<TypedSummaryItem<object>>;
    },
  };
}

function chunkReader(
  streams: StreamGroup,
  executionId: string,
  name: string,
  mode: ChunkStream<unknown>['mode'],
): ChunkReader<unknown> {
  // Gaps are among best-effort frames: who reads durable ones has nothing to do with them.
  const visibility = mode === 'durable' ? 'exclude_best_effort' : 'all';
  const tail = (options: ChunkTailOptions = {}): AsyncIterable<ChunkItem<unknown>> => {
    tailOptions.check(options, 'options');
    return only(name, streams.tail(executionId, { ...options, visibility }));
  };
  return { tail, [Symbol.asyncIterator]: () => tail()[Symbol.asyncIterator]() };
}

/** No generator: one that waits for its next item cannot be left. */
function only(name: string, items: AsyncIterable<StreamItem>): AsyncIterableIterator<ChunkItem<unknown>> {
  const all = items[Symbol.asyncIterator]();
  const answer = async (): Promise<IteratorResult<ChunkItem<unknown>>> => {
    for (;;) {
      const item = await all.next();
      if (item.done === true) return item;
      if (item.value.type !== 'frame') return { done: false, value: item.value };
      const { frame } = item.value;
      if (frame.frameType === name) return { done: false, value: { ...item.value, payload: frame.payload } };
    }
  };
  // Answered one after another, however many are asked for at once.
  let turn: Promise<unknown> = Promise.resolve();
  return {
    next() {
      const answered = turn.then(answer);
      turn = answered.catch(() => undefined);
      return answered;
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
