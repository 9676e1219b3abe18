/**
 * The object a handler gets: the one implementation of TaskContext. One is created for every run, and most handlers use
 * little of it, so whatever is expensive is a part of the run that is created on demand.
 */
import { durationMs, type Duration } from '../../contract/shape/duration.ts';
import type { ExecutionId } from '../../contract/ids.ts';
import type { Json, Jsonified } from '../../contract/json.ts';
import { parsed, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { refuse, shape } from '../../contract/shape/shape.ts';
import type { Waitpoint } from '../../contract/signals.ts';
import type { Progress } from '../../contract/steps.ts';
import type { SqlTransaction } from '../../contract/transactions.ts';
import type { StreamKinds } from '../../define/streams.ts';
import type { Inbox, InboxOptions, Message, ReceiveOptions } from '../../define/messages.ts';
import type { Task } from '../../define/task.ts';
import type { WorkerPort } from '../../contract/protocol.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import type {
  Child,
  ChildOutcomes,
  ChildResults,
  FlowScope,
  Logger,
  MapOptions,
  TaskLogger,
  SpawnOptions,
  StepFunction,
  StepOptions,
  TaskContext,
  TopicOptions,
  TransactionFunction,
  TransactionOptions,
  WaitForOptions,
  WaitpointOptions,
} from '../../define/task-context.ts';
import type { OutputStream, ParentScope } from '../../define/output.ts';
import { mailboxName, stepName, waitpointName, type Keyed } from './call-arguments.ts';
import { Continuation } from './continuation.ts';
import { mapItems } from './map.ts';
import { Run } from './run.ts';
import { planOf, runStep, stepDuration } from './run-step.ts';
import { runTransaction } from './run-transaction.ts';
import { forgiven } from './waits.ts';

/** What goes into the request of the child is checked with it. */
const spawnOptions = shape<SpawnOptions>({
  key: parsed.optional(),
  lane: parsed.optional(),
  priority: parsed.optional(),
  tags: parsed.optional(),
  delay: parsed.optional(),
  detached: parsed.optional(),
});

const DEFAULT_CONCURRENCY = 10;
const mapOptions = shape<MapOptions>({ concurrency: whole(1, LIMITS.mapConcurrency).optional() });

const ASYNC_METHODS = [
  'step',
  'tx',
  'sleep',
  'sleepUntil',
  'waitFor',
  'createWaitpoint',
  'receive',
  'topic',
  'spawn',
  'all',
  'allSettled',
  'map',
] as const;

/** What a context needs of the worker. */
interface ContextWorker {
  readonly port: WorkerPort;
  readonly log: { readonly logger: Logger };
}

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
  readonly #worker: ContextWorker;
  readonly #lease: HeldLease;
  readonly #kinds: StreamKinds;
  #madeRun: Run | undefined;
  #continuation: Continuation | undefined;
  #stage: 'running' | 'handled' | 'over' = 'running';

  constructor(worker: ContextWorker, lease: HeldLease, kinds: StreamKinds) {
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
    this.#worker = worker;
    this.#lease = lease;
    this.#kinds = kinds;
  }

  get redacted(): boolean {
    return this.#lease.claim.redacted;
  }

  /** For whatever runs the handler: its function has finished. */
  static handled(ctx: HandlerContext): void {
    ctx.#stage = 'handled';
    ctx.#madeRun?.handled();
  }

  /** The same, and nothing around the handler writes any more. Returns the run if the handler used anything of it. */
  static over(ctx: HandlerContext): Run | undefined {
    HandlerContext.handled(ctx);
    ctx.#stage = 'over';
    return ctx.#madeRun;
  }

  /** Whether the handler asked for the next run, and returned something else. */
  static forgot(ctx: HandlerContext, returned: unknown): boolean {
    return ctx.#continuation !== undefined && ctx.#continuation !== returned;
  }

  static runOf(ctx: HandlerContext): Run {
    return ctx.#run;
  }

  get #run(): Run {
    if (this.#madeRun !== undefined) return this.#madeRun;
    const run = new Run(this.#worker.port, this.#lease, this.#worker.log.logger, this.#kinds);
    if (this.#stage !== 'running') run.handled();
    if (this.#stage === 'over') {
      void run.closeOutput();
      run.close();
    }
    return (this.#madeRun = run);
  }

  get signal(): AbortSignal {
    return this.#lease.signal;
  }

  get fence(): string {
    return `${this.executionId}/${this.attemptIndex}/${this.#lease.claim.leaseEpoch}`;
  }

  get flow(): FlowScope | null {
    return this.#run.flow;
  }

  get log(): TaskLogger {
    return this.#run.log;
  }

  get stream(): OutputStream {
    return this.#run.stream;
  }

  get parent(): ParentScope {
    return this.#run.parent;
  }

  /** The streams of the task's contract, by name. */
  get streams(): object {
    return this.#run.streams;
  }

  async step<Value>(
    name: string,
    ...call: Keyed<[fn: StepFunction<Value>, options?: StepOptions | undefined]>
  ): Promise<Jsonified<Value>> {
    const run = this.#run;
    const { key, what: fn, options } = run.arguments.keyed('step', name, call);
    if (typeof fn !== 'function') throw run.arguments.misused('step', 'needs a function');
    const plan = run.arguments.checked(`step('${name}')`, () => planOf(options));
    run.book.take('step', name, key);
    return run.performed(name, key, async () => {
      const begunMs = performance.now();
      let tookMs = 0;
      const { value, forParent } = await run.inStep(name, key, async () => {
        const made = await runStep({ name, key }, fn, plan, run.lease.signal);
        tookMs = stepDuration(begunMs);
        // Once the step is stored it does not run again: its output must be stored before.
        await run.outputStored();
        return made;
      });
      return (await run.book.record({ name, key, value, durationMs: tookMs }, forParent)).value;
    });
  }

  async tx<Value, Tx = SqlTransaction>(
    name: string,
    ...call: Keyed<[fn: TransactionFunction<Value, Tx>, options?: TransactionOptions<Tx> | undefined]>
  ): Promise<Jsonified<Value>> {
    const run = this.#run;
    const { key, what: fn, options } = run.arguments.keyed('tx', name, call);
    if (typeof fn !== 'function') throw run.arguments.misused('tx', 'needs a function');
    if (run.isInTransaction()) {
      // Each would occupy one of the few connections while it waits for another.
      const sentence = `'${name}' is inside another ctx.tx: use the outer one's transaction`;
      throw run.arguments.misused('tx', sentence);
    }
    run.book.take('step', name, key);
    return run.performed(name, key, async () => {
      // Not inside: frames use another connection, and a transaction must not wait for one.
      await run.outputStored();
      run.lease.signal.throwIfAborted();
      const work = (tx: Tx) => run.inStep(name, key, () => run.inTransaction(() => fn(tx)));
      const { port, lease, book, log } = run;
      return runTransaction({ port, lease, book, name, key, through: options?.through, work, log });
    });
  }

  async sleep(name: string, ...call: Keyed<[duration: Duration]>): Promise<void> {
    const run = this.#run;
    const { key, what: duration } = run.arguments.keyed<Duration, never>('sleep', name, call);
    const sleepMs = run.arguments.checked(`sleep('${name}')`, () =>
      durationMs(duration, 'duration', LIMITS.delayMs),
    );
    return run.sleep({ name, key, sleepMs });
  }

  async sleepUntil(name: string, ...call: Keyed<[date: Date]>): Promise<void> {
    const run = this.#run;
    const { key, what: date } = run.arguments.keyed<Date, never>('sleepUntil', name, call);
    const sleepUntilMs = run.arguments.checked(`sleepUntil('${name}')`, () => momentOf(date));
    return run.sleep({ name, key, sleepUntilMs });
  }

  /** Only the overloads of TaskContext can tell, by the options, whether the wait may time out. */
  async waitFor(at: string | Waitpoint<unknown>, ...call: unknown[]): Promise<never> {
    const run = this.#run;
    const opened = typeof at === 'string' ? undefined : run.signals.opened(at);
    if (opened === undefined && typeof at === 'object')
      throw run.arguments.misused(
        'waitFor',
        'needs a name, or a waitpoint that this run opened with ctx.createWaitpoint',
      );
    const name = run.arguments.nameOf('waitFor', opened?.name ?? (at as string), stepName);
    const given = call as Keyed<[options?: WaitForOptions<unknown>]>;
    const { key, options } = run.arguments.keyedOptions('waitFor', name, given);
    const wanted = opened === undefined ? options : run.signals.optionsAt(opened, key, options);
    return run.signals.waitFor(name, key, wanted) as Promise<never>;
  }

  async createWaitpoint<Payload = Json>(
    name: string,
    ...rest: [options?: WaitpointOptions<Payload>]
  ): Promise<Waitpoint<Payload>> {
    const run = this.#run;
    run.arguments.nameOf('createWaitpoint', name, waitpointName);
    const options = run.arguments.optionsOf('createWaitpoint', name, rest);
    return run.signals.createWaitpoint(name, options);
  }

  /** Only the overloads of TaskContext can tell, by the options, whether there may be no message. */
  async receive<Payload = Json>(
    mailbox: string,
    ...rest: [options?: ReceiveOptions<Payload>]
  ): Promise<Message<Payload>> {
    const run = this.#run;
    run.arguments.nameOf('receive', mailbox, mailboxName);
    const options = run.arguments.optionsOf('receive', mailbox, rest);
    return (await run.messages.receive(mailbox, options)) as Message<Payload>;
  }

  inbox<Payload = Json>(mailbox: string, ...rest: [options?: InboxOptions<Payload>]): Inbox<Payload> {
    const run = this.#run;
    run.arguments.nameOf('inbox', mailbox, mailboxName);
    return run.messages.inbox(mailbox, run.arguments.optionsOf('inbox', mailbox, rest));
  }

  continueAs(input: unknown): never {
    return (this.#continuation = new Continuation(input)) as never;
  }

  /** Only the overloads of TaskContext can tell, by the options, whether the wait may time out. */
  async topic(name: string, options: TopicOptions<unknown> = {}): Promise<never> {
    const { arguments: given, topics } = this.#run;
    const plan = given.checked(`topic(${JSON.stringify(name)})`, () => topics.plan(name, options));
    return topics.wait(plan, name, options) as Promise<never>;
  }

  async spawn<In, Parsed, Made, Out, Streams extends StreamKinds>(
    task: Task<In, Parsed, Made, Out, Streams>,
    input: In,
    options: SpawnOptions = {},
  ): Promise<Child<Out>> {
    const run = this.#run;
    if (typeof task?.name !== 'string') throw run.arguments.misused('spawn', 'needs a task made by task()');
    run.arguments.checked('spawn', () => spawnOptions.check(options, 'options'));
    const key = run.arguments.keyOf('spawn', options.key ?? '');
    run.book.take('spawn', task.name, key);
    return run.handOver.take(JSON.stringify(['spawn', task.name, key]), () =>
      run.waits.during(async () => {
        const child = await run.children.spawn(task, input, options);
        run.rerun?.passedChild(child.executionId);
        return child;
      }),
    );
  }

  async all<const Children extends readonly Child<unknown>[]>(
    children: Children,
  ): Promise<ChildResults<Children>> {
    return this.#ownChildren('all', children).results(children);
  }

  async allSettled<const Children extends readonly Child<unknown>[]>(
    children: Children,
  ): Promise<ChildOutcomes<Children>> {
    return this.#ownChildren('allSettled', children).settled(children);
  }

  #ownChildren(verb: 'all' | 'allSettled', children: readonly unknown[]): Run['children'] {
    const run = this.#run;
    run.lease.throwIfStopped();
    if (!Array.isArray(children) || !children.every((child) => run.children.isOwn(child))) {
      throw run.arguments.misused(verb, 'takes a list of children that this run has spawned by ctx.spawn');
    }
    return run.children;
  }

  async map<Item, Value>(
    items: readonly Item[],
    fn: (item: Item, index: number) => Value | Promise<Value>,
    options: MapOptions = {},
  ): Promise<PromiseSettledResult<Awaited<Value>>[]> {
    const run = this.#run;
    run.lease.throwIfStopped();
    if (!Array.isArray(items) || items.length > LIMITS.mapItems)
      throw run.arguments.misused('map', `takes a list of at most ${LIMITS.mapItems} items`);
    if (typeof fn !== 'function') throw run.arguments.misused('map', 'needs a function');
    const { concurrency = DEFAULT_CONCURRENCY } = run.arguments.checked('map', () =>
      mapOptions.check(options, 'options'),
    );
    return mapItems(items, fn, concurrency) as Promise<PromiseSettledResult<Awaited<Value>>[]>;
  }

  progress(progress: Progress): void {
    this.#run.progress.report(progress);
  }

  static {
    for (const name of ASYNC_METHODS) detachable<Promise<unknown>>(this.prototype, name, forgiven);
    detachable<unknown>(this.prototype, 'inbox', (call) => call());
    detachable<unknown>(this.prototype, 'continueAs', (call) => call());
    detachable<void>(this.prototype, 'progress', (call) => call());
  }
}

/** A date before 1970 has passed as surely as 1970 has. */
function momentOf(date: Date): number {
  const ms = date instanceof Date ? date.getTime() : Number.NaN;
  if (Number.isNaN(ms)) refuse('date', 'must be a valid Date');
  return Math.max(0, ms);
}

/** A method that can also be destructured from the context, and that middleware may replace with one of its own. */
function detachable<Returned>(
  prototype: HandlerContext,
  name: (typeof ASYNC_METHODS)[number] | 'inbox' | 'continueAs' | 'progress',
  around: (call: () => Returned) => Returned,
): void {
  const method = Reflect.get(prototype, name) as (...args: unknown[]) => Returned;
  Object.defineProperty(prototype, name, {
    get(this: HandlerContext) {
      return (...args: unknown[]) => around(() => method.apply(this, args));
    },
    set(this: HandlerContext, value: unknown) {
      Object.defineProperty(this, name, { value, writable: true, enumerable: true, configurable: true });
    },
  });
}
