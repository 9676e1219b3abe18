/**
 * `ctx.stream` and `ctx.streams`: what a handler calls to write output. Chunks are checked and copied here, so that one
 * that cannot be stored is refused by the very call that wrote it. When they are sent is decided in stream-writer.ts.
 */
import type { Claim } from '../../contract/protocol.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { parsed } from '../../contract/shape/kinds.ts';
import { parseAtOnce } from '../../contract/shape/schema.ts';
import { fault, Kind, refuse, shape, type Opaque } from '../../contract/shape/shape.ts';
import type { ChunkStream, StreamKind, StreamKinds } from '../../define/streams.ts';
import type { BestEffortOptions, FrameRequest } from '../../contract/streams.ts';
import { encodeFrame } from '../../model/frames.ts';
import type {
  ChunkSource,
  ChunkWriter,
  OutputStream,
  SummaryWriter,
  WriteOptions,
} from '../../define/output.ts';
import type { StepTry } from './run-step.ts';
import type { StreamWriter } from './stream-writer.ts';
import { subjectOf, TaskAborted } from '../task.ts';
import { unlessAborted } from '../../model/aborting.ts';

/** The rest is checked as the frame that it becomes. A patch would be taken for one by the engine. */
const writeOptions = shape<WriteOptions>({
  type: parsed.optional(),
  correlationId: parsed.optional(),
  mode: new Kind<Opaque>((mode) =>
    mode === 'summary' ? fault('cannot be summary: use patch') : undefined,
  ).optional(),
  encoding: parsed.optional(),
});
const typedOptions = shape<Pick<WriteOptions, 'correlationId'>>({ correlationId: parsed.optional() });
/** How long best-effort frames are kept unless specified: the engine's default. */
const USUAL: BestEffortOptions = {};

/** What streams need from their run. */
export interface StreamRun {
  claim: Claim;
  writer: StreamWriter;
  /** The try of a step the caller is in. */
  currentTry(): StepTry | undefined;
  /** Whether the caller is inside a ctx.tx. */
  isInTransaction(): boolean;
  /** Runs work: the worker is not freed meanwhile. */
  during<Value>(work: () => Promise<Value>): Promise<Value>;
}

/** How the chunks of one call become frames. */
type Framing = (chunk: unknown) => { frame: FrameRequest; bestEffort?: BestEffortOptions | undefined };

/** All best-effort frames of an attempt are kept equally long: here as the contract specifies. */
export function outputStream(run: StreamRun, kinds: StreamKinds): OutputStream {
  const calls = new StreamCalls(run);
  const live = Object.values(kinds).find(({ mode }) => mode === 'best_effort') as
    ChunkStream<unknown> | undefined;
  const kept = live?.bestEffort ?? USUAL;
  return {
    write: (chunk, options) => calls.write('stream.write', chunk, () => framingOf(kept, options)),
    patch: (patch) => calls.write('stream.patch', patch, () => patching()),
    pipe: (source, options) => calls.pipe('stream.pipe', source, () => framingOf(kept, options)),
    flush: () => calls.flush('stream.flush'),
  };
}

/** The streams of the contract, by name. */
export function contractStreams(
  run: StreamRun,
  kinds: StreamKinds,
): Record<string, ChunkWriter<unknown> | SummaryWriter<unknown>> {
  const calls = new StreamCalls(run);
  const writers = Object.entries(kinds).map(([name, kind]) => [name, contractStream(calls, name, kind)]);
  return Object.fromEntries(writers) as Record<string, ChunkWriter<unknown> | SummaryWriter<unknown>>;
}

function contractStream(
  calls: StreamCalls,
  name: string,
  kind: StreamKind,
): ChunkWriter<unknown> | SummaryWriter<unknown> {
  const call = `streams.${name}`;
  if (kind.mode === 'summary')
    return { patch: (patch) => calls.write(`${call}.patch`, patch, () => patching(name)) };
  return {
    write: (chunk, options) => calls.write(`${call}.write`, chunk, () => typed(name, kind, options)),
    pipe: (source, options) => calls.pipe(`${call}.pipe`, source, () => typed(name, kind, options)),
  };
}

function framingOf(kept: BestEffortOptions, options: WriteOptions = {}): Framing {
  const { type, ...rest } = writeOptions.check(options, 'options');
  const more = { ...rest, ...(type === undefined ? {} : { frameType: type }) };
  const bestEffort = rest.mode === 'best_effort' ? kept : undefined;
  return (payload) => ({ frame: { payload, ...more }, bestEffort });
}

function patching(frameType?: string): Framing {
  const more = { mode: 'summary', ...(frameType === undefined ? {} : { frameType }) } as const;
  return (payload) => ({ frame: { payload, ...more } });
}

function typed(
  name: string,
  { mode, schema, bestEffort }: ChunkStream<unknown>,
  options: WriteOptions = {},
): Framing {
  typedOptions.check(options, 'options');
  const what = { field: 'chunk', of: `stream ${name}` };
  return (chunk) => {
    const payload = parseAtOnce(schema, chunk, what);
    return { frame: { payload, mode, frameType: name, ...options }, bestEffort };
  };
}

class StreamCalls {
  readonly #run: StreamRun;

  constructor(run: StreamRun) {
    this.#run = run;
  }

  write(call: string, chunk: unknown, framing: () => Framing): Promise<void> {
    try {
      return this.#write(chunk, framing());
    } catch (error) {
      return this.#refused(call, error);
    }
  }

  pipe(call: string, source: unknown, framing: () => Framing): Promise<number> {
    try {
      this.#refuseInTransaction();
      const frames = framing();
      return this.#run.writer.watched(this.#pipe(call, openSource(source), frames));
    } catch (error) {
      return this.#refused(call, error);
    }
  }

  flush(call: string): Promise<void> {
    try {
      this.#refuseInTransaction();
      return this.#run.writer.flush();
    } catch (error) {
      return this.#refused(call, error);
    }
  }

  /** Frames use another connection: transactions that hold one each while they wait for another would deadlock. */
  #refuseInTransaction(): void {
    if (!this.#run.isInTransaction()) return;
    const sentence = 'nothing can be written to streams inside ctx.tx; write before or after it.';
    throw new EngineError('invalid_step', sentence);
  }

  #write(chunk: unknown, framing: Framing): Promise<void> {
    this.#refuseInTransaction();
    const { writer } = this.#run;
    writer.throwIfOver();
    const own = this.#run.currentTry();
    own?.over.throwIfAborted();
    const { frame, bestEffort } = framing(chunk);
    const step = own && { name: own.name, key: own.key, tryIndex: own.tryIndex };
    const encoded = encodeFrame(step === undefined ? frame : { ...frame, step }, 'frame');
    return writer.write({ frame: encoded, bestEffort });
  }

  /** The source is cancelled even when the lease is lost before anything was read from it. */
  async #pipe(call: string, chunks: Chunks, framing: Framing): Promise<number> {
    try {
      return await this.#run.during(() => this.#pump(call, chunks, framing));
    } catch (error) {
      chunks.cancel(error);
      throw error;
    }
  }

  async #pump(call: string, chunks: Chunks, framing: Framing): Promise<number> {
    const { writer } = this.#run;
    const own = this.#run.currentTry();
    const signal = own === undefined ? writer.signal : AbortSignal.any([writer.signal, own.over]);
    for (let count = 0; ; count += 1) {
      const { done, value } = await begunUnlessAborted(signal, () => chunks.next());
      if (done === true) return count;
      await this.#written(call, value, framing);
    }
  }

  async #written(call: string, chunk: unknown, framing: Framing): Promise<void> {
    try {
      await this.#write(chunk, framing);
    } catch (error) {
      throw this.#explained(call, error);
    }
  }

  /** A handler that lost its lease need not await this; a missing frame must not go unnoticed. */
  #refused(call: string, error: unknown): Promise<never> {
    if (!(error instanceof TaskAborted)) return this.#run.writer.refuse(this.#explained(call, error));
    const refused = Promise.reject(error);
    refused.catch(() => undefined);
    return refused;
  }

  #explained(call: string, error: unknown): unknown {
    const subject = subjectOf(this.#run.claim);
    if (!isEngineError(error) || error.message.startsWith(subject)) return error;
    const { code, field = 'frame', message, cause } = error;
    return new EngineError(code, `${subject}: ctx.${call}: ${message}`, { field, cause });
  }
}

interface Chunks {
  next(): Promise<{ done?: boolean | undefined; value?: unknown }>;
  cancel(reason: unknown): void;
}

function openSource(source: unknown): Chunks {
  const { getReader } = (source ?? {}) as { getReader?: unknown };
  if (typeof getReader === 'function') {
    const reader = (source as Exclude<ChunkSource<unknown>, AsyncIterable<unknown>>).getReader();
    return { next: () => reader.read(), cancel: (reason) => letGo(() => reader.cancel(reason)) };
  }
  const iterator = (source as AsyncIterable<unknown> | undefined)?.[Symbol.asyncIterator]?.();
  if (iterator === undefined) refuse('source', 'must be an async iterable or a ReadableStream');
  return { next: () => iterator.next(), cancel: () => letGo(async () => iterator.return?.()) };
}

/** Not awaited: a source that never finishes its last chunk must not block the handler. */
function letGo(cancel: () => Promise<unknown>): void {
  (async () => cancel())().catch(() => undefined);
}

/** Does not start if the AbortSignal is already aborted. */
async function begunUnlessAborted<Value>(signal: AbortSignal, begin: () => Promise<Value>): Promise<Value> {
  signal.throwIfAborted();
  return unlessAborted(signal, (async () => begin())());
}
