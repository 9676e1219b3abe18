/**
 * What a handler writes while it runs, as its author sees it: the output of its attempt, the streams of its contract, and
 * the document of its parent.
 */
import type { Json } from '../contract/json.ts';
import type { FrameEncoding, FrameMode } from '../contract/streams.ts';
import type { ChunkStream, MergePatch, StreamKinds, SummaryStream } from './streams.ts';

/** One piece of output: a string, bytes, or a JSON value. */
export type StreamChunk = string | Uint8Array | Json;

/** Options of one chunk. */
export interface WriteOptions {
  /** Lets readers distinguish frames. Default `event`. */
  type?: string;
  correlationId?: string;
  /** `best_effort` frames are kept for a short time only. Default `durable`. */
  mode?: Exclude<FrameMode, 'summary'>;
  /** Default: `text` for a string, `binary` for bytes, `json` for anything else. */
  encoding?: FrameEncoding;
}

/** The part of a web ReadableStream that is used. */
export interface ReadableLike<Chunk> {
  getReader(): {
    read(): Promise<{ done: boolean; value?: Chunk | undefined }>;
    cancel(reason?: unknown): Promise<void>;
  };
}

/** A source of chunks. */
export type ChunkSource<Chunk> = AsyncIterable<Chunk> | ReadableLike<Chunk>;

/**
 * The output of the attempt, for whoever follows it. Output of a `ctx.step` is stored before the step is, and is not
 * written again afterwards. Output outside of steps is written again by the next run, and readers are notified of that.
 * Frames carry the try of the step: a try that failed or timed out can write nothing more. Inside a `ctx.tx` nothing can
 * be written: write before or after it.
 */
export interface OutputStream {
  /**
   * Writes a chunk; the order of the calls is kept. Resolves when there is room for the next one, so a handler that
   * awaits it is no faster than the database. A chunk that cannot be stored rejects this call; if nothing awaits it,
   * `flush` rejects, or the attempt fails.
   */
  write(chunk: StreamChunk, options?: WriteOptions): Promise<void>;
  /**
   * Patches the document (RFC 7396): keys are merged, null removes one. What is patched inside a step stays once the step
   * is stored; the rest is taken back when the attempt ends and another follows, which patches it again.
   */
  patch(patch: { [key: string]: Json | undefined }): Promise<void>;
  /**
   * Writes each chunk as it arrives, no faster than the database accepts them; returns how many. The source is cancelled
   * when the worker loses the execution.
   */
  pipe(source: ChunkSource<StreamChunk>, options?: WriteOptions): Promise<number>;
  /** Resolves when all output so far is stored. Called automatically before a step is stored, before a pause and when the handler returns. */
  flush(): Promise<void>;
}

/**
 * `taken`: applied in the commit that stores the step, if the parent has not ended by then. `not_active`: the parent has
 * ended, and nothing is changed.
 */
export type ParentOutcome = { outcome: 'taken' } | { outcome: 'not_active' };

/**
 * What a child does to the document of its parent, such as a progress bar of the whole. Inside a step only: each change
 * is applied once, in the commit that stores the step, and stays whatever happens to the attempts of the parent.
 */
export interface ParentScope {
  /** Patches the parent's document (RFC 7396): keys are merged, null removes one. */
  patch(patch: { [key: string]: Json | undefined }): Promise<ParentOutcome>;
  /** Adds to a number in it, by its key or path; what is no number counts as 0. Default 1. */
  increment(path: string | readonly string[], by?: number): Promise<ParentOutcome>;
}

/** Writes one stream of the task's contract. Its schema, if it has one, must be synchronous, so that order is kept. */
export interface ChunkWriter<Chunk> {
  write(chunk: Chunk, options?: Pick<WriteOptions, 'correlationId'>): Promise<void>;
  pipe(source: ChunkSource<Chunk>, options?: Pick<WriteOptions, 'correlationId'>): Promise<number>;
}

/** Patches the document of the attempt. */
export interface SummaryWriter<Document> {
  patch(patch: MergePatch<Document>): Promise<void>;
}

/** The writers of a task's streams, by name. */
export type StreamWriters<Streams extends StreamKinds> = {
  readonly [Name in keyof Streams]: unknown extends Streams[Name]
    ? Streams[Name]
    : Streams[Name] extends SummaryStream<infer Document>
      ? SummaryWriter<Document>
      : Streams[Name] extends ChunkStream<infer Made, infer _Out>
        ? ChunkWriter<Made>
        : never;
};
