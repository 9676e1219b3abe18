/**
 * What a handler is given besides its input. Whatever is done through it is remembered: when the work is run again,
 * after a crash, a retry or a pause, finished steps answer what they answered the first time.
 */
import type { Backoff, Json, Progress, SqlTransaction, Transactor } from '../contract/engine.ts';
import type { Duration } from '../contract/duration.ts';
import type { ExecutionId } from '../contract/ids.ts';
import type { Task } from '../contract/task.ts';

/** Written like pino's: an object of facts, then a sentence. */
export interface Logger {
  debug(facts: object, message?: string): void;
  info(facts: object, message?: string): void;
  warn(facts: object, message?: string): void;
  error(facts: object, message?: string): void;
}

export interface StepOptions {
  /** Tries after the first one, here and now, without giving the worker up. Default: none. */
  retry?: { maxRetries: number; backoff?: Backoff };
  /** How long one try may take. */
  timeout?: Duration;
}

export interface StepScope {
  /** Fires when the work is no longer this worker's, or when the step's time is over. */
  readonly signal: AbortSignal;
  /** From 0; grows with each try of this step in this run. */
  readonly tryIndex: number;
}

export type StepFunction<Value> = (scope: StepScope) => Value | Promise<Value>;

export interface TransactionOptions<Tx> {
  /** Runs the transaction with a library of yours. Default: a connection of FlowFabric's, as `pg` spells it. */
  through?: Transactor<Tx>;
}

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
  /** Starts another execution, once however often this one is run again. */
  spawn<In, Parsed, Made, Out>(
    task: Task<In, Parsed, Made, Out>,
    input: In,
    options?: SpawnOptions,
  ): Promise<Child<Out>>;
  /** The results of all these children, waiting for them together. */
  all<const Children extends readonly Child<unknown>[]>(
    children: Children,
  ): Promise<{ -readonly [Place in keyof Children]: Children[Place] extends Child<infer Out> ? Out : never }>;
  /** Says how far the work is. Overwrites what was said before; sent at intervals. */
  progress(progress: Progress): void;
}
