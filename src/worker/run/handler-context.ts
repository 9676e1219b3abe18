/**
 * The object a handler gets. One is created for every run, and most handlers use little of it, so whatever is expensive
 * is created on demand; with getters, so that methods can also be destructured.
 */
import type { Json } from '../../contract/json.ts';
import type { Progress } from '../../contract/steps.ts';
import type { ExecutionId } from '../../contract/ids.ts';
import type { Waitpoint } from '../../contract/signals.ts';
import type { AnyTask } from '../../define/task.ts';
import type {
  Child,
  FlowScope,
  Logger,
  OutputStream,
  SpawnOptions,
  TaskContext,
} from '../../define/context.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { forgiven } from './waits.ts';

/** What the methods of a context call. */
export interface ContextCalls {
  readonly log: Logger;
  readonly flow: FlowScope | null;
  readonly stream: OutputStream;
  /** The streams of the task's contract, by name. */
  readonly streams: object;
  step(...args: unknown[]): Promise<unknown>;
  tx(...args: unknown[]): Promise<unknown>;
  sleep(...args: unknown[]): Promise<void>;
  waitFor(...args: unknown[]): Promise<unknown>;
  createWaitpoint(name: unknown, options?: unknown): Promise<Waitpoint>;
  spawn(task: AnyTask, input: unknown, options?: SpawnOptions): Promise<Child<unknown>>;
  all(children: readonly Child<unknown>[]): Promise<unknown[]>;
  progress(progress: Progress): void;
}

const AWAITED = ['step', 'tx', 'sleep', 'waitFor', 'createWaitpoint', 'spawn', 'all'] as const;

export class HandlerContext implements TaskContext {
  readonly executionId: ExecutionId;
  readonly kind: string;
  readonly payload: Json;
  readonly lane: string;
  readonly namespace: string;
  readonly tags: Readonly<Record<string, string>>;
  readonly attemptIndex: number;
  readonly resumed: boolean;
  readonly reclaimed: boolean;
  declare step: TaskContext['step'];
  declare tx: TaskContext['tx'];
  declare sleep: TaskContext['sleep'];
  declare waitFor: TaskContext['waitFor'];
  declare createWaitpoint: TaskContext['createWaitpoint'];
  declare spawn: TaskContext['spawn'];
  declare all: TaskContext['all'];
  declare progress: TaskContext['progress'];
  readonly #lease: HeldLease;
  readonly #calls: ContextCalls;

  constructor(lease: HeldLease, calls: ContextCalls) {
    const { claim } = lease;
    this.executionId = claim.executionId;
    this.kind = claim.kind;
    this.payload = claim.payload;
    this.lane = claim.lane;
    this.namespace = claim.namespace;
    this.tags = claim.tags;
    this.attemptIndex = claim.attemptIndex;
    this.resumed = claim.resumed;
    this.reclaimed = claim.reclaimed;
    this.#lease = lease;
    this.#calls = calls;
  }

  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  get fence(): string {
    return `${this.executionId}/${this.attemptIndex}/${this.#lease.claim.leaseEpoch}`;
  }

  get flow(): FlowScope | null {
    return this.#calls.flow;
  }

  get log(): Logger {
    return this.#calls.log;
  }

  get stream(): OutputStream {
    return this.#calls.stream;
  }

  get streams(): object {
    return this.#calls.streams;
  }

  static {
    for (const name of AWAITED) {
      method(this, name, (ctx) => {
        const calls = ctx.#calls as unknown as Record<string, (...args: unknown[]) => Promise<unknown>>;
        return (...args: unknown[]) => forgiven(() => calls[name]!(...args));
      });
    }
    method(this, 'progress', (ctx) => {
      const calls = ctx.#calls;
      return (progress: Progress) => calls.progress(progress);
    });
  }
}

/** Middleware may replace one of these with a method of its own. */
function method(
  { prototype }: typeof HandlerContext,
  name: string,
  make: (ctx: HandlerContext) => unknown,
): void {
  Object.defineProperty(prototype, name, {
    get(this: HandlerContext) {
      return make(this);
    },
    set(this: HandlerContext, value: unknown) {
      Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true });
    },
  });
}
