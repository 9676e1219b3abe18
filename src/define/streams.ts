/**
 * The streams of a task's contract: what its handler may write besides its result, under which names, in which shapes,
 * and how long it is kept. The name of a stream is the type of its frames.
 */
import { schemaKind, type Schema } from '../contract/shape/schema.ts';
import type { Jsonified } from '../contract/json.ts';
import { durationMs, type Duration } from '../contract/shape/duration.ts';
import { DEFINITION_LIMITS as LIMITS } from '../contract/definition-limits.ts';
import { asciiName, parsed } from '../contract/shape/kinds.ts';
import { fault, faultAt, isObject, Kind, refuse, shape, type Opaque } from '../contract/shape/shape.ts';
import type { BestEffortOptions, FrameMode } from '../contract/streams.ts';

/** Most streams of one task. */
const MAX_STREAMS = 64;
/** How long chunks of a live stream are kept by default. */
const DEFAULT_TTL_MS = 10_000;

/** A stream of chunks: `Made` is what is written, `Out` what is read. */
export interface ChunkStream<Made, Out = Made> {
  readonly mode: Exclude<FrameMode, 'summary'>;
  readonly schema: Schema<Made, unknown> | undefined;
  /** Only for the compiler. */
  readonly types?: { readonly chunk: Out } | undefined;
  /** How long chunks of a live stream are kept. */
  readonly bestEffort: BestEffortOptions | undefined;
}

/** A document built from patches. */
export interface SummaryStream<Document> {
  readonly mode: 'summary';
  /** Only for the compiler. */
  readonly types?: { readonly document: Document } | undefined;
}

/** One stream of a task, of any shape. */
// oxlint-disable-next-line no-explicit-any -- stands for a stream of whatever shapes
export type StreamKind = ChunkStream<any, any> | SummaryStream<any>;

/** The streams of a task, by name. */
export type StreamKinds = Readonly<Record<string, StreamKind>>;

/** The streams of a task that has none. */
// oxlint-disable-next-line no-empty-object-type -- with an index signature every name would pass
export type NoStreams = {};

/** Streams whose names and shapes the compiler does not know. */
// oxlint-disable-next-line no-explicit-any -- a writer or reader of any shape
export type AnyStreams = Readonly<Record<string, any>>;

/** A chunk as readers get it: strings and bytes as they are, anything else after a round trip through JSON. */
type Read<Chunk> = unknown extends Chunk
  ? Chunk
  : Chunk extends string | Uint8Array
    ? Chunk
    : Jsonified<Chunk>;

/** A patch of a document: keys are set, merged into objects, or removed by null (RFC 7396). */
export type MergePatch<Document> = {
  [Key in keyof Document]?: ValuePatch<Document[Key]> | null;
};
type ValuePatch<Value> = Value extends readonly unknown[]
  ? Value
  : Value extends object
    ? MergePatch<Value>
    : Value;

/** Options of a live stream. */
export interface LiveOptions {
  /**
   * About how long chunks are kept, up to 1 hour; the same in all live streams of a task. 5 to 30 s suit most. Default
   * 10 s.
   */
  ttl?: Duration;
}

const liveOptions = shape<LiveOptions>({ ttl: parsed.optional() });

/** A stream whose chunks are kept as long as the execution. With a schema, each chunk is checked when it is written. */
function durable<Chunk>(): ChunkStream<Chunk, Read<Chunk>>;
function durable<Made, Out>(schema: Schema<Made, Out>): ChunkStream<Made, Read<Out>>;
function durable<Made, Out>(schema?: Schema<Made, Out>): ChunkStream<Made, Read<Out>> {
  schemaKind.check(schema, 'schema');
  return { mode: 'durable', schema, bestEffort: undefined };
}

/** A stream whose chunks are kept for a short time only: cursors, progress, levels. */
function live<Chunk>(options?: LiveOptions): ChunkStream<Chunk, Read<Chunk>>;
function live<Made, Out>(schema: Schema<Made, Out>, options?: LiveOptions): ChunkStream<Made, Read<Out>>;
function live<Made, Out>(
  first: Schema<Made, Out> | LiveOptions = {},
  second?: LiveOptions,
): ChunkStream<Made, Read<Out>> {
  // Some libraries make their schemas functions.
  const isSchema = second !== undefined || typeof first === 'function' || '~standard' in first;
  const schema = isSchema ? (first as Schema<Made, Out>) : undefined;
  schemaKind.check(schema, 'schema');
  const { ttl } = liveOptions.check((isSchema ? second : first) ?? {}, 'options');
  const ttlMs = ttl === undefined ? DEFAULT_TTL_MS : durationMs(ttl, 'options.ttl', LIMITS.bestEffortTtlMs);
  if (ttlMs === 0) refuse('options.ttl', 'must be at least 1 ms');
  return { mode: 'best_effort', schema, bestEffort: { ttlMs } };
}

/** A document per attempt, which the handler patches and readers see in its current state. */
function summary<Document extends object>(): SummaryStream<Document> {
  return { mode: 'summary' };
}

/** The kinds of streams a task may write: `stream.durable<string>()`, `stream.live()`, `stream.summary<Document>()`. */
export const stream = { durable, live, summary } as const;

const streamName = asciiName(LIMITS.frameTypeBytes);
const NO_STREAMS = fault('must be an object of streams by name');
const NO_STREAM = fault('must be made by stream.durable(), stream.live() or stream.summary()');

/** Streams by name: at most one summary, and one ttl for all live streams. */
export const streamKinds = new Kind<Opaque>((streams) => {
  if (!isObject(streams)) return NO_STREAMS;
  const entries = Object.entries(streams as Record<string, Partial<StreamKind> | null>);
  if (entries.length > MAX_STREAMS)
    return fault(`has ${entries.length} streams; the limit is ${MAX_STREAMS}`);
  for (const [name, kind] of entries) {
    const inName = streamName.faultOf(name);
    if (inName !== undefined) return fault(`has a name that ${inName.what}`);
    if (kind?.mode === undefined) return faultAt(`.${name}`, NO_STREAM);
  }
  const documents = entries.filter(([, kind]) => kind?.mode === 'summary').map(([name]) => name);
  if (documents.length > 1)
    return fault(`has more than one summary (${documents.join(', ')}); an attempt has one document`);
  const ttls = new Set(entries.map(([, kind]) => ttlOf(kind)).filter((ttlMs) => ttlMs !== undefined));
  if (ttls.size <= 1) return undefined;
  return fault(
    `has live streams with different ttls (${[...ttls].join(' ms, ')} ms); give all of them the same`,
  );
});

function ttlOf(kind: Partial<StreamKind> | null): number | undefined {
  return kind?.mode === 'best_effort' ? kind.bestEffort?.ttlMs : undefined;
}
