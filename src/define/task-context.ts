/**
 * The context a handler gets besides its input, as its author sees it. What is done through it is stored: when the
 * handler runs again, after a crash, a retry or a pause, finished steps return what they returned the first time.
 * Implemented in worker/run/handler-context.ts.
 */
import type { DescribedExecution, DescribeOptions, DescribePart } from '../contract/described.ts';
import type { CancelOutcome, OperatorNote } from '../contract/executions.ts';
import type { Json, Jsonified, Storable } from '../contract/json.ts';
import type { Backoff } from '../contract/policy.ts';
import type { Progress } from '../contract/steps.ts';
import type { SqlTransaction, Transactor } from '../contract/transactions.ts';
import type { Duration } from '../contract/shape/duration.ts';
import type { FlowExtension } from './flow-plan.ts';
import type { FlowId, SubmittedFlow } from '../contract/flows.ts';
import type { SendOptions, SendOutcome } from '../contract/messages.ts';
import type { ExecutionId } from '../contract/ids.ts';
import type {
  DeliverOutcome,
  Signal,
  SignalCondition,
  SignalNote,
  TimeoutBehaviour,
  Waitpoint,
  WaitReason,
} from '../contract/signals.ts';
import type { Schema } from '../contract/shape/schema.ts';
import type { OutputStream, ParentScope } from './output.ts';
import type { StreamKinds } from './streams.ts';
import type { Inbox, InboxOptions, Message, ReceiveOptions } from './messages.ts';
import type { Task } from './task.ts';

/** What a worker can log to: an object of fields, then a message. pino is one, and so is `console`. */
export interface Logger {
  debug(facts: object, message?: string): void;
  info(facts: object, message?: string): void;
  warn(facts: object, message?: string): void;
  error(facts: object, message?: string): void;
}

/** The logger of a handler: it takes a message alone, too. */
export interface TaskLogger extends Logger {
  debug(message: string): void;
  debug(facts: object, message?: string): void;
  info(message: string): void;
  info(facts: object, message?: string): void;
  warn(message: string): void;
  warn(facts: object, message?: string): void;
  error(message: string): void;
  error(facts: object, message?: string): void;
}

/** Retries and time limit of a step. */
export interface StepOptions {
  /** Tries after the first one, in the same run and without freeing the worker. Default: none. */
  retry?: { maxRetries: number; backoff?: Backoff };
  /** How long one try may take. */
  timeout?: Duration;
}

/** What the function of a step gets. */
export interface StepScope {
  /** Aborted when the worker has lost the execution, or when the step has timed out. */
  readonly signal: AbortSignal;
  /** From 0; grows with each try of this step in this run. */
  readonly tryIndex: number;
}

/** The function of a step; what it returns is stored as JSON. A type that JSON cannot represent does not compile. */
export type StepFunction<Value> = (scope: StepScope) => Storable<Value> | Promise<Storable<Value>>;

/** The function of a `ctx.tx`; what it returns is stored as JSON. A type that JSON cannot represent does not compile. */
export type TransactionFunction<Value, Tx = SqlTransaction> = (tx: Tx) => Promise<Storable<Value>>;

/** Which transaction a `ctx.tx` runs in. */
export interface TransactionOptions<Tx> {
  /** Runs the transaction with a library of yours. Default: on a connection of FlowFabric, with the interface of `pg`. */
  through?: Transactor<Tx>;
}

/** Settings of one child that override those of its task. */
export interface SpawnOptions {
  /** Distinguishes children of the same task. */
  key?: string;
  lane?: string;
  priority?: number;
  tags?: Record<string, string>;
  /** Starts no sooner than this long from now. */
  delay?: Duration;
  /** It continues when this execution has ended. Default false: it is cancelled then, with the reason `parent_ended`. */
  detached?: boolean;
}

/** A child execution. */
export interface Child<Out> {
  readonly executionId: ExecutionId;
  /** Waits until it has finished; a long wait frees the worker. Throws ExecutionFailed if it did not succeed. */
  result(): Promise<Out>;
  /** Cancels it unless it has finished. Not recorded: a later run of the handler calls it again. */
  cancel(note?: Partial<OperatorNote>): Promise<CancelOutcome>;
  /** Reads it. Not recorded: decide by what it returns inside a `ctx.step` only. */
  describe<const Part extends DescribePart = never>(
    options?: DescribeOptions<Part>,
  ): Promise<DescribedExecution<Part>>;
  /**
   * Sends a signal to one of its waitpoints; throws `not_found` until that is open. Not recorded: with an
   * `idempotencyKey` it is delivered once.
   */
  signal(waitpoint: string, note?: SignalNote): Promise<DeliverOutcome>;
  /** Sends a message to one of its mailboxes. Not recorded: with an `id` it is sent once. */
  send(mailbox: string, payload?: unknown, options?: Pick<SendOptions, 'id'>): Promise<SendOutcome>;
}

/** How children went, in their order. */
export type ChildOutcomes<Children extends readonly Child<unknown>[]> = {
  -readonly [Place in keyof Children]: Children[Place] extends Child<infer Out>
    ? PromiseSettledResult<Out>
    : never;
};

/** Options of `ctx.map`. */
export interface MapOptions {
  /** How many items are in progress at once. Default 10. */
  concurrency?: number;
}

/** The results of children, in their order. */
export type ChildResults<Children extends readonly Child<unknown>[]> = {
  -readonly [Place in keyof Children]: Children[Place] extends Child<infer Out> ? Out : never;
};

/** A Standard Schema that can be converted to JSON Schema, such as those of zod and arktype. */
export interface PayloadSchema<Payload = unknown> {
  readonly '~standard': Schema<unknown, Payload>['~standard'] & {
    readonly jsonSchema: {
      readonly input: (options: { readonly target: 'draft-2020-12' }) => Record<string, unknown>;
    };
  };
}

/** Options of a waitpoint. */
export interface WaitpointOptions<Payload = Json> {
  /**
   * The schema of payloads. They are checked when a signal is delivered, in processes that do not have your code, so it
   * must be a JSON Schema or one that can be converted to it.
   */
  schema?: PayloadSchema<Payload> | Record<string, unknown>;
  /** How long signals are accepted and the token is valid, unless a wait suspends on it. Default 7 days. */
  expiresIn?: Duration;
}

/** What completes a wait, and what happens when it times out. */
export interface WaitForOptions<Payload = Json> {
  /**
   * The schema of payloads. They are checked when a signal is delivered, in processes that do not have your code, so it
   * must be a JSON Schema or one that can be converted to it. The handler gets payloads as the schema parses them. What
   * JSON Schema cannot express, such as a refinement, is checked only then, and fails the execution.
   */
  schema?: PayloadSchema<Payload> | Record<string, unknown>;
  /** How long to wait, counted from the first call. Default: for ever. */
  timeout?: Duration;
  /**
   * On a timeout the execution finishes as `failed`, `cancelled` or `expired`; or the handler resumes with the outcome
   * `timed_out` (`resume`); or it keeps waiting, for an operator (`escalate`). Default `fail`.
   */
  onTimeout?: TimeoutBehaviour;
  /** Which signals complete it. Default: `atLeast(1)` at the waitpoint named like the wait, or `name:key`. */
  by?: SignalCondition;
  /** Shorthand for `by: atLeast(1).named(match)`. */
  match?: string;
  /** The reason shown in lists of waiting executions. Default `signal`. */
  reason?: WaitReason;
  /** Delay between the last signal and the next run. Default: none. */
  resumeDelay?: Duration;
}

/** The outcome of a wait that signals completed. */
export interface SatisfiedWait<Payload = Json> {
  outcome: 'satisfied';
  /** Of the last signal, the one that completed the wait. */
  payload: Payload;
  /** The signals that matched, up to that one, in the order they were accepted. */
  signals: Signal<Payload>[];
}

/** The outcome of a wait that may time out. */
export type WaitResult<Payload = Json> =
  SatisfiedWait<Payload> | { outcome: 'timed_out'; payload: undefined; signals: Signal<Payload>[] };

/** Options of a wait for a topic. */
export interface TopicOptions<Data = Json> {
  /** How long to wait, counted from the first call. Then the outcome is `timed_out`. Default: for ever. */
  timeout?: Duration;
  /** Parses what was published for the handler; what it refuses fails the attempt. */
  schema?: Schema<unknown, Data>;
}

/** What was published to a topic. */
export interface PublishedTopic<Data = Json> {
  outcome: 'published';
  data: Data;
  publishedAtMs: number;
}

/** The outcome of a wait for a topic that may time out. */
export type TopicResult<Data = Json> = PublishedTopic<Data> | { outcome: 'timed_out'; data: undefined };

/** Options of a wait whose timeout the handler never sees. */
type DecidedWait<Options> = Options & { onTimeout?: Exclude<TimeoutBehaviour, 'resume'> };
/** Options of a wait whose schema parses payloads for the handler. */
type ParsedWait<Payload> = WaitForOptions<Payload> & { schema: PayloadSchema<Payload> };
/** Options of a wait whose payloads reach the handler as JSON. */
type PlainWait = Omit<WaitForOptions, 'schema'> & { schema?: Record<string, unknown> };
/** Options of a wait at a waitpoint that has a schema already. */
type WaitpointWait = Omit<WaitForOptions, 'schema'>;
/** What follows the name of a wait. */
type WaitCall<Options> = [options: Options] | [key: string, options: Options];

/** The flow a member runs in. */
export interface FlowScope {
  readonly flowId: FlowId;
  /**
   * Adds members to the flow, all of them or none: `extend((f) => { f.add('page', fetchPage, { url }) })`. Repeatable:
   * members are identified by name, so a later run that uses the same names adds nothing. A new member starts when its
   * edges allow it; `f.member` refers to this member, for one that waits for it.
   */
  extend(define: (f: FlowExtension) => void): Promise<SubmittedFlow>;
}

/** The context a handler gets besides its input. */
export interface TaskContext<In = unknown> {
  readonly executionId: ExecutionId;
  /** The task's name. */
  readonly kind: string;
  /** The input as it was submitted, before the task's schema parsed it. */
  readonly payload: Json;
  readonly lane: string;
  readonly namespace: string;
  readonly tags: Readonly<Record<string, string>>;
  /** From 0; grows with each new attempt. */
  readonly attemptIndex: number;
  /** True if this attempt began in an earlier run, and was paused or handed back. */
  readonly resumed: boolean;
  /** Its task redacts values: what is logged or traced about it must not contain any. */
  readonly redacted: boolean;
  /** True if the previous worker lost its lease. */
  readonly reclaimed: boolean;
  /** Aborted when the worker has lost the execution; its reason is a TaskAborted. */
  readonly signal: AbortSignal;
  /**
   * Unique to this lease, for services that fence by equality. It changes with every attempt; `executionId` does not
   * and is the one to use as an idempotency key.
   */
  readonly fence: string;
  /** The flow this execution is a member of; null outside of flows. */
  readonly flow: FlowScope | null;
  /** Writes to the worker's `log`; the execution's id, task and attempt are added to each entry. */
  readonly log: TaskLogger;
  /** Runs `fn` once: its value is stored, and every run, the first too, gets it as it is after a round trip through JSON. */
  step<Value>(name: string, fn: StepFunction<Value>, options?: StepOptions): Promise<Jsonified<Value>>;
  step<Value>(
    name: string,
    key: string,
    fn: StepFunction<Value>,
    options?: StepOptions,
  ): Promise<Jsonified<Value>>;
  /** The same in a transaction: your writes and the step's record are committed together, or not at all. */
  tx<Value, Tx = SqlTransaction>(
    name: string,
    fn: TransactionFunction<Value, Tx>,
    options?: TransactionOptions<Tx>,
  ): Promise<Jsonified<Value>>;
  tx<Value, Tx = SqlTransaction>(
    name: string,
    key: string,
    fn: TransactionFunction<Value, Tx>,
    options?: TransactionOptions<Tx>,
  ): Promise<Jsonified<Value>>;
  /** Waits by the database's clock. A long sleep frees the worker and survives any crash. */
  sleep(name: string, duration: Duration): Promise<void>;
  sleep(name: string, key: string, duration: Duration): Promise<void>;
  /**
   * Waits until a date, by the database's clock; a date that has passed returns at once. The date of the first call
   * counts, also when a later run passes another.
   */
  sleepUntil(name: string, date: Date): Promise<void>;
  sleepUntil(name: string, key: string, date: Date): Promise<void>;
  /**
   * Waits for signals, from a person, a callback or another service, and frees the worker meanwhile. Signals that
   * arrived at its waitpoint earlier count. A wait that lost a `Promise.race` stays open, with its timeout, until the
   * handler has finished.
   */
  waitFor<Payload>(
    name: string,
    ...call: WaitCall<DecidedWait<ParsedWait<Payload>>>
  ): Promise<SatisfiedWait<Payload>>;
  waitFor<Payload>(name: string, ...call: WaitCall<ParsedWait<Payload>>): Promise<WaitResult<Payload>>;
  waitFor<Payload = Json>(
    name: string,
    ...call: [key?: string] | WaitCall<DecidedWait<PlainWait>>
  ): Promise<SatisfiedWait<Jsonified<Payload>>>;
  waitFor<Payload = Json>(
    name: string,
    ...call: WaitCall<PlainWait>
  ): Promise<WaitResult<Jsonified<Payload>>>;
  /** Waits at a waitpoint that this run has opened, with its name and its schema. */
  waitFor<Payload>(
    waitpoint: Waitpoint<Payload>,
    options?: DecidedWait<WaitpointWait>,
  ): Promise<SatisfiedWait<Payload>>;
  waitFor<Payload>(waitpoint: Waitpoint<Payload>, options: WaitpointWait): Promise<WaitResult<Payload>>;
  /**
   * Opens a waitpoint ahead of its wait, so that its token can be handed out; signals are kept until then. Not a step:
   * called again, it returns the same waitpoint. Send the token inside a `ctx.step`, so that it is sent once. Wait at it
   * with `ctx.waitFor(waitpoint)`: its schema, which signals are checked by from now on, parses the payload.
   */
  createWaitpoint<Payload = Json>(
    name: string,
    options?: WaitpointOptions<Payload>,
  ): Promise<Waitpoint<Payload>>;
  /**
   * Waits for what is published to a topic of the execution's namespace (`connection.publish`): the latest that is kept,
   * if the execution has not received it yet, otherwise the next one. Calling it again waits for a newer one. A long wait
   * frees the worker.
   */
  topic<Data = Json>(
    name: string,
    options?: TopicOptions<Data> & { timeout?: undefined },
  ): Promise<PublishedTopic<Data>>;
  topic<Data = Json>(name: string, options: TopicOptions<Data>): Promise<TopicResult<Data>>;
  /**
   * Receives the next message of a mailbox, and frees the worker while there is none. Messages are kept from before the
   * first call and handed over in order, each once. With a `timeout` it returns `undefined` when none came.
   */
  receive<Payload = Json>(
    mailbox: string,
    options?: ReceiveOptions<Payload> & { timeout?: undefined },
  ): Promise<Message<Payload>>;
  receive<Payload = Json>(
    mailbox: string,
    options: ReceiveOptions<Payload>,
  ): Promise<Message<Payload> | undefined>;
  /** Receives the messages of a mailbox one after another: `for await (const message of ctx.inbox('commands'))`. */
  inbox<Payload = Json>(mailbox: string, options?: InboxOptions<Payload>): Inbox<Payload>;
  /**
   * Ends this run, and begins the next one under the same id with another input: `return ctx.continueAs(input)`. Steps,
   * waits and received messages of this run are deleted; messages that it has not received stay.
   */
  continueAs(input: In): never;
  /** Starts another execution, once, however often this one runs again. It ends with this one, unless it is `detached`. */
  spawn<In, Parsed, Made, Out, Streams extends StreamKinds>(
    task: Task<In, Parsed, Made, Out, Streams>,
    input: In,
    options?: SpawnOptions,
  ): Promise<Child<Out>>;
  /** Waits for all these children together and returns their results. */
  all<const Children extends readonly Child<unknown>[]>(children: Children): Promise<ChildResults<Children>>;
  /** Waits for all these children together and returns how each of them went; one that failed does not throw. */
  allSettled<const Children extends readonly Child<unknown>[]>(
    children: Children,
  ): Promise<ChildOutcomes<Children>>;
  /**
   * Calls `fn` for each item, some at a time: the next begins as soon as one is done. Returns how each went, in the order
   * of the items; one that throws does not keep the others from going on. Steps and children inside need a key for each
   * item: `ctx.map(urls, (url) => ctx.step('fetch', url, () => get(url)))`.
   */
  map<Item, Value>(
    items: readonly Item[],
    fn: (item: Item, index: number) => Value | Promise<Value>,
    options?: MapOptions,
  ): Promise<PromiseSettledResult<Awaited<Value>>[]>;
  /** The output of the attempt while it runs. `ctx.streams` has the streams of the task's contract. */
  readonly stream: OutputStream;
  /** The document of the execution that spawned this one. */
  readonly parent: ParentScope;
  /** Reports progress; the latest report wins. Sent at intervals. */
  progress(progress: Progress): void;
}
