/**
 * What a handler is given besides its input. Whatever is done through it is remembered: when the work is run again,
 * after a crash, a retry or a pause, finished steps answer what they answered the first time.
 */
import type { Json } from '../contract/json.ts';
import type { Backoff } from '../contract/policy.ts';
import type { Progress } from '../contract/steps.ts';
import type { SqlTransaction, Transactor } from '../contract/transactions.ts';
import type { Duration } from '../contract/duration.ts';
import type { FlowExtension } from './flow-plan.ts';
import type { FlowId, SubmittedFlow } from '../contract/flows.ts';
import type { ExecutionId } from '../contract/ids.ts';
import type {
  Signal,
  SignalCondition,
  TimeoutBehaviour,
  Waitpoint,
  WaitReason,
} from '../contract/signals.ts';
import type { Schema } from '../contract/schema.ts';
import type { ChunkStream, MergePatch, StreamKinds, SummaryStream } from './streams.ts';
import type { FrameEncoding, FrameMode } from '../contract/streams.ts';
import type { Task } from './task.ts';

/** Written like pino's: an object of facts, then a sentence. */
export interface Logger {
  debug(facts: object, message?: string): void;
  info(facts: object, message?: string): void;
  warn(facts: object, message?: string): void;
  error(facts: object, message?: string): void;
}

/** How a step is tried. */
export interface StepOptions {
  /** Tries after the first one, here and now, without giving the worker up. Default: none. */
  retry?: { maxRetries: number; backoff?: Backoff };
  /** How long one try may take. */
  timeout?: Duration;
}

/** What the function of a step is given. */
export interface StepScope {
  /** Fires when the work is no longer this worker's, or when the step's time is over. */
  readonly signal: AbortSignal;
  /** From 0; grows with each try of this step in this run. */
  readonly tryIndex: number;
}

/** What a step does; what it returns is stored. */
export type StepFunction<Value> = (scope: StepScope) => Value | Promise<Value>;

/** In whose transaction a `ctx.tx` runs. */
export interface TransactionOptions<Tx> {
  /** Runs the transaction with a library of yours. Default: a connection of FlowFabric's, as `pg` spells it. */
  through?: Transactor<Tx>;
}

/** What one child may say differently from its task. */
export interface SpawnOptions {
  /** Tells apart children of one task. */
  key?: string;
  lane?: string;
  priority?: number;
  tags?: Record<string, string>;
  /** Start no sooner than this long from now. */
  delay?: Duration;
}

/** A child execution. */
export interface Child<Out> {
  readonly executionId: ExecutionId;
  /** Waits for its end; gives the worker up when that takes long. Throws ExecutionFailed when it did not succeed. */
  result(): Promise<Out>;
}

/** The results of children, in their order. */
export type ChildResults<Children extends readonly Child<unknown>[]> = {
  -readonly [Place in keyof Children]: Children[Place] extends Child<infer Out> ? Out : never;
};

/** A Standard Schema that can also be written as JSON Schema, as those of zod and arktype can. */
export interface PayloadSchema<Payload = unknown> {
  readonly '~standard': Schema<unknown, Payload>['~standard'] & {
    readonly jsonSchema: {
      readonly input: (options: { readonly target: 'draft-2020-12' }) => Record<string, unknown>;
    };
  };
}

/** How a waitpoint is opened. */
export interface WaitpointOptions {
  /**
   * What payloads must fit: checked where signals are delivered, in processes that do not have your code, so it must be
   * one that can be written as JSON Schema; or a JSON Schema itself.
   */
  schema?: PayloadSchema | Record<string, unknown>;
  /** How long signals are taken, and the token is good, unless a wait suspends on it. Default 7 days. */
  expiresIn?: Duration;
}

/** What ends a wait, and what happens when nothing does. */
export interface WaitForOptions<Payload = Json> {
  /**
   * What payloads must fit: checked where signals are delivered, in processes that do not have your code, so it must be
   * one that can be written as JSON Schema; or a JSON Schema itself. The handler gets what the schema makes of them; what JSON Schema cannot say, such as a
   * refinement, is checked only then, and fails the execution.
   */
  schema?: PayloadSchema<Payload> | Record<string, unknown>;
  /** How long to wait, from the first time it is asked for. Default: for ever. */
  timeout?: Duration;
  /**
   * When the time is over: the execution ends as `failed`, `cancelled` or `expired`; the handler goes on without
   * (`resume`); or it waits on, for an operator (`escalate`). Default `fail`.
   */
  onTimeout?: TimeoutBehaviour;
  /** Which signals end it. Default `atLeast(1)`, at the waitpoint of the wait's own name, or `name:key`. */
  by?: SignalCondition;
  /** Short for `by: atLeast(1).named(match)`. */
  match?: string;
  /** What it is, for lists people look at. Default `signal`. */
  reason?: WaitReason;
  /** How long the execution rests after the last signal. Default: not at all. */
  resumeDelay?: Duration;
}

/** A wait that was ended by signals. */
export interface SatisfiedWait<Payload = Json> {
  outcome: 'satisfied';
  /** Of the last signal, the one that decided. */
  payload: Payload;
  /** Those that fit up to that one, in the order they were accepted. */
  signals: Signal<Payload>[];
}

/** How a wait ended whose time may run out. */
export type WaitResult<Payload = Json> =
  SatisfiedWait<Payload> | { outcome: 'timed_out'; payload: undefined; signals: Signal<Payload>[] };

/** Waits whose time does not run out before the handler's eyes. */
type DecidedWait<Payload> = WaitForOptions<Payload> & { onTimeout?: Exclude<TimeoutBehaviour, 'resume'> };

/** One piece of output: a text, bytes, or what JSON can say. */
export type StreamChunk = string | Uint8Array | Json;

/** How a chunk is written. */
export interface WriteOptions {
  /** For readers to tell frames apart. Default `event`. */
  type?: string;
  correlationId?: string;
  /** `best_effort` is kept while it is news. Default `durable`. */
  mode?: Exclude<FrameMode, 'summary'>;
  /** Default: `text` for a string, `binary` for bytes, `json` for the rest. */
  encoding?: FrameEncoding;
}

/** A ReadableStream of the web, as far as it is used. */
export interface ReadableLike<Chunk> {
  getReader(): {
    read(): Promise<{ done: boolean; value?: Chunk | undefined }>;
    cancel(reason?: unknown): Promise<void>;
  };
}

/** Where chunks come from. */
export type ChunkSource<Chunk> = AsyncIterable<Chunk> | ReadableLike<Chunk>;

/**
 * The output of the attempt, for whoever follows it. What is written inside a `ctx.step` is there before the step is stored, and is not
 * written again once it is; what is written outside is written again by the next run, and readers are told so. Frames carry the try of the
 * step: one that failed or timed out writes nothing more. Inside a `ctx.tx` nothing is written: write before or after it.
 */
export interface OutputStream {
  /**
   * Takes a chunk, in the order of the calls. Resolves when there is room for the next: await it, and the handler is no faster than the
   * database. A chunk that cannot be stored is refused by this call; if nobody awaits that, by `flush`, or the attempt fails.
   */
  write(chunk: StreamChunk, options?: WriteOptions): Promise<void>;
  /**
   * Patches the document of the attempt (RFC 7396): members are merged, null takes one away. The next attempt begins with an empty
   * one: what it must have is patched outside of steps.
   */
  patch(patch: { [key: string]: Json | undefined }): Promise<void>;
  /** Writes each chunk as it comes, no faster than the database takes them; answers how many. The source is cancelled when the work is taken away. */
  pipe(source: ChunkSource<StreamChunk>, options?: WriteOptions): Promise<number>;
  /** Until what was written so far is stored. Happens by itself before a step is stored, before a pause and at the end. */
  flush(): Promise<void>;
}

/** Writes one stream of the task's contract. Its schema, if it has one, must answer at once: order is kept. */
export interface ChunkWriter<Chunk> {
  write(chunk: Chunk, options?: Pick<WriteOptions, 'correlationId'>): Promise<void>;
  pipe(source: ChunkSource<Chunk>, options?: Pick<WriteOptions, 'correlationId'>): Promise<number>;
}

/** Patches the document of the attempt. */
export interface SummaryWriter<Document> {
  patch(patch: MergePatch<Document>): Promise<void>;
}

/** Writers of the streams of a task's contract, by name. */
export type StreamWriters<Streams extends StreamKinds> = {
  readonly [Name in keyof Streams]: Streams[Name] extends SummaryStream<infer Document>
    ? SummaryWriter<Document>
    : Streams[Name] extends ChunkStream<infer Made, infer _Out>
      ? ChunkWriter<Made>
      : never;
};

/** The flow a member runs in. */
export interface FlowScope {
  readonly flowId: FlowId;
  /**
   * Adds members to the flow, all of them or none: `extend((f) => { f.add('page', fetchPage, { url }) })`. Repeatable: members are known
   * by their names, and a run that comes later adds nothing, if it says the same names. They run when their own edges say so; for one
   * that waits for this member, `f.member` names it.
   */
  extend(define: (f: FlowExtension) => void): Promise<SubmittedFlow>;
}

/** What a handler is given besides its input. */
export interface TaskContext {
  readonly executionId: ExecutionId;
  /** The task's name. */
  readonly kind: string;
  /** What was submitted, before the task's schema. */
  readonly payload: Json;
  readonly lane: string;
  readonly namespace: string;
  readonly tags: Readonly<Record<string, string>>;
  /** From 0; grows with each new try. */
  readonly attemptIndex: number;
  /** True when this attempt was begun before, and paused or handed back. */
  readonly resumed: boolean;
  /** True when the worker before this one lost its lease. */
  readonly reclaimed: boolean;
  /** Fires when the work is no longer this worker's; its reason is a TaskAborted. */
  readonly signal: AbortSignal;
  /**
   * Unique to this lease, for services that fence by equality. It changes with every attempt: for an idempotency
   * key use `executionId`, which does not.
   */
  readonly fence: string;
  /** The flow it is a member of; null outside of flows. */
  readonly flow: FlowScope | null;
  /** The worker's logger, with the execution's facts added. */
  readonly log: Logger;
  /** Runs `fn` once and for all: its value is stored, and answered from then on. */
  step<Value>(name: string, fn: StepFunction<Value>, options?: StepOptions): Promise<Value>;
  step<Value>(name: string, key: string, fn: StepFunction<Value>, options?: StepOptions): Promise<Value>;
  /** The same, with your writes and the step's record in one commit: both happen, or neither. */
  tx<Value, Tx = SqlTransaction>(
    name: string,
    fn: (tx: Tx) => Promise<Value>,
    options?: TransactionOptions<Tx>,
  ): Promise<Value>;
  tx<Value, Tx = SqlTransaction>(
    name: string,
    key: string,
    fn: (tx: Tx) => Promise<Value>,
    options?: TransactionOptions<Tx>,
  ): Promise<Value>;
  /** Waits by the database's clock. A long sleep gives the worker up and survives any crash. */
  sleep(name: string, duration: Duration): Promise<void>;
  sleep(name: string, key: string, duration: Duration): Promise<void>;
  /**
   * Waits until it is told: by a person, a callback, another service. Gives the worker up meanwhile. What was said at its
   * waitpoint before counts. A wait that lost a race is still waited for, with its time, until the handler is over.
   */
  waitFor<Payload = Json>(name: string, options?: DecidedWait<Payload>): Promise<SatisfiedWait<Payload>>;
  waitFor<Payload = Json>(name: string, options: WaitForOptions<Payload>): Promise<WaitResult<Payload>>;
  waitFor<Payload = Json>(
    name: string,
    key: string,
    options?: DecidedWait<Payload>,
  ): Promise<SatisfiedWait<Payload>>;
  waitFor<Payload = Json>(
    name: string,
    key: string,
    options: WaitForOptions<Payload>,
  ): Promise<WaitResult<Payload>>;
  /**
   * Opens a waitpoint before it is waited for, to hand out its token; signals are kept until then. Not a step: asked
   * again, it answers the same waitpoint. Sending the token to somebody belongs in a `ctx.step`, so that it is sent once.
   * Give it the schema of the wait that follows, which is refused otherwise: what is said before is checked by it too.
   */
  createWaitpoint(name: string, options?: WaitpointOptions): Promise<Waitpoint>;
  /** Starts another execution, once however often this one is run again. */
  spawn<In, Parsed, Made, Out, Streams extends StreamKinds>(
    task: Task<In, Parsed, Made, Out, Streams>,
    input: In,
    options?: SpawnOptions,
  ): Promise<Child<Out>>;
  /** The results of all these children, waiting for them together. */
  all<const Children extends readonly Child<unknown>[]>(children: Children): Promise<ChildResults<Children>>;
  /** What the attempt has to say while it runs, as it is written. `ctx.streams` has those of the task's contract. */
  readonly stream: OutputStream;
  /** Says how far the work is. Overwrites what was said before; sent at intervals. */
  progress(progress: Progress): void;
}
