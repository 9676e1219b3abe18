/**
 * Assembles the context of one run from its parts: steps, waits, children, progress. Each part is created on first use,
 * because most handlers use few of them.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { durationMs } from '../../contract/duration.ts';
import type { WorkerPort } from '../../contract/protocol.ts';
import type { Progress } from '../../contract/steps.ts';
import type { Transactor } from '../../contract/transactions.ts';
import { parsed } from '../../contract/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { shape } from '../../contract/shape.ts';
import type { Waitpoint } from '../../contract/signals.ts';
import type { StreamKinds } from '../../define/streams.ts';
import type { AnyTask } from '../../define/task.ts';
import { CallArguments, stepName, waitpointName } from './call-arguments.ts';
import { Children } from './children.ts';
import type {
  Child,
  FlowScope,
  Logger,
  OutputStream,
  SpawnOptions,
  StepFunction,
  StepOptions,
} from '../../define/context.ts';
import { flowScope } from './flow.ts';
import { HandlerContext, type ContextCalls } from './handler-context.ts';
import { HandOver, stepEnd } from './hand-over.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { ProgressReports } from './progress.ts';
import { currentTry, planOf, runStep } from './run-step.ts';
import { runTransaction } from './run-transaction.ts';
import { Signals } from './wait-for.ts';
import { StepBook } from './step-book.ts';
import { contractStreams, outputStream, type StreamRun } from './stream.ts';
import { StreamWriter } from './stream-writer.ts';
import { Waits } from './waits.ts';

/** What goes into the request of the child is checked with it. */
const spawnOptions = shape<SpawnOptions>({
  key: parsed.optional(),
  lane: parsed.optional(),
  priority: parsed.optional(),
  tags: parsed.optional(),
  delay: parsed.optional(),
});

/** The run whose transaction the caller is in. */
const insideTransaction = new AsyncLocalStorage<RunContext>();

export class RunContext implements ContextCalls {
  readonly ctx: HandlerContext;
  readonly #port: WorkerPort;
  readonly #lease: HeldLease;
  #madeArguments: CallArguments | undefined;
  #madeBook: StepBook | undefined;
  #madeWaits: Waits | undefined;
  #madeChildren: Children | undefined;
  #madeSignals: Signals | undefined;
  #madeHandOver: HandOver | undefined;
  readonly #log: Logger;
  #factLog: Logger | undefined;
  #thrownIn: WeakMap<object, string> | undefined;
  #isOver = false;
  #isClosed = false;
  #progress: ProgressReports | undefined;
  #writer: StreamWriter | undefined;
  #stream: OutputStream | undefined;
  readonly #kinds: StreamKinds;
  #streams: object | undefined;

  constructor(port: WorkerPort, lease: HeldLease, log: Logger, kinds: StreamKinds) {
    this.#port = port;
    this.#lease = lease;
    this.#log = log;
    this.#kinds = kinds;
    this.ctx = new HandlerContext(lease, this);
  }

  get #arguments(): CallArguments {
    return (this.#madeArguments ??= new CallArguments(this.#lease.claim));
  }

  get #book(): StepBook {
    return (this.#madeBook ??= new StepBook(this.#port, this.#lease));
  }

  get #waits(): Waits {
    if (this.#madeWaits === undefined) {
      this.#madeWaits = new Waits(this.#port, this.#lease, {
        stored: () => both(this.#writer?.settled(), this.orderStored()),
        isHandingOver: () => this.#madeHandOver?.isHandingOver() ?? false,
      });
      if (this.#isOver) this.#madeWaits.close();
    }
    return this.#madeWaits;
  }

  get #children(): Children {
    return (this.#madeChildren ??= new Children(this.#port, this.#lease, this.#waits, this.#handOver));
  }

  get #signals(): Signals {
    const parts = [this.#port, this.#lease, this.#book, this.#waits, this.#handOver] as const;
    return (this.#madeSignals ??= new Signals(...parts));
  }

  get #handOver(): HandOver {
    if (this.#madeHandOver === undefined) {
      this.#madeHandOver = new HandOver(this.#port, this.#lease, this.#waits, {
        isExempt: () => currentTry(this.#lease.signal) !== undefined || insideTransaction.getStore() === this,
        isWriting: () => this.#writer?.isSettled === false,
      });
      if (this.#isOver) this.#madeHandOver.close();
    }
    return this.#madeHandOver;
  }

  get flow(): FlowScope | null {
    const during = <Value>(work: () => Promise<Value>): Promise<Value> =>
      this.#handOver.take(this.#handOver.numbered('flow'), () =>
        this.#waits.during(async () => {
          await this.#handOver.saved();
          return work();
        }),
      );
    return flowScope(this.#port, this.#lease, during);
  }

  get stream(): OutputStream {
    return (this.#stream ??= outputStream(this.#streamRun(), this.#kinds));
  }

  get streams(): object {
    return (this.#streams ??= contractStreams(this.#streamRun(), this.#kinds));
  }

  #streamRun(): StreamRun {
    if (this.#writer === undefined) {
      this.#writer = new StreamWriter(this.#port, this.#lease);
      if (this.#isClosed) this.#writer.close();
    }
    return {
      claim: this.#lease.claim,
      writer: this.#writer,
      currentTry: () => currentTry(this.#lease.signal),
      isInTransaction: () => insideTransaction.getStore() === this,
      during: (work) => this.#handOver.beside(() => this.#waits.during(work)),
    };
  }

  /**
   * Accepts no more output; resolves when all of it is stored. Undefined when there was none: most handlers write
   * nothing.
   */
  endStream(): Promise<void> | undefined {
    this.#isClosed = true;
    this.#writer?.close();
    return this.#writer?.flush();
  }

  /** The handler's function has finished: a wait it abandoned is no reason to pause. */
  handled(): void {
    this.#isOver = true;
    this.#madeHandOver?.close();
    this.#madeWaits?.close();
  }

  /** Resolves when the order of delivered outcomes is stored; undefined when it is, or when nothing depends on it. */
  orderStored(): Promise<void> | undefined {
    return this.#madeHandOver?.saved();
  }

  /** The run has finished. Returns whether the handler used steps. */
  close(): boolean {
    this.handled();
    this.#progress?.close();
    return this.#madeBook !== undefined;
  }

  /** Warns of stored steps that a handler never reached although it ran to its end. */
  async warnOfUnreached(): Promise<void> {
    const unreached = await this.#book.unreached().catch(() => []);
    if (unreached.length === 0) return;
    const sentence = 'Stored steps were not reached: was the code changed under this execution?';
    this.log.warn({ steps: unreached }, sentence);
  }

  get log(): Logger {
    return (this.#factLog ??= withFacts(this.#log, factsOf(this.#lease)));
  }

  async step(...args: unknown[]): Promise<unknown> {
    const { name, key, what, options } = this.#arguments.named('step', args);
    if (typeof what !== 'function') throw this.#arguments.misused('step', 'needs a function');
    const plan = this.#arguments.checked(`step('${name}')`, () => planOf(options as StepOptions | undefined));
    this.#book.take('step', name, key);
    return this.#performed(name, key, async () => {
      const value = await this.#inStep(name, key, async () => {
        const made = await runStep({ name, key }, what as StepFunction<unknown>, plan, this.#lease.signal);
        // Once the step is stored it does not run again: its output must be stored before.
        await this.#writer?.settled();
        return made;
      });
      return (await this.#book.record({ name, key, value })).value;
    });
  }

  /** The stored value of a step, or what `perform` returns. */
  #performed(name: string, key: string, perform: () => Promise<unknown>): Promise<unknown> {
    return this.#handOver.take(stepEnd(name, key), (asked) =>
      this.#waits.during(async () => {
        const stored = await this.#book.find('step', name, key);
        if (stored !== undefined) return stored.value;
        const led = asked.begin();
        if (led !== undefined) await led;
        return perform();
      }),
    );
  }

  /** Remembers where an error came from: its message alone seldom tells. */
  async #inStep<Value>(name: string, key: string, work: () => Promise<Value>): Promise<Value> {
    try {
      return await work();
    } catch (error) {
      if (typeof error === 'object' && error !== null)
        (this.#thrownIn ??= new WeakMap()).set(error, key === '' ? name : `${name} [${key}]`);
      throw error;
    }
  }

  /** The step an error came from, if it came from one. */
  stepOf(error: unknown): string | undefined {
    return typeof error === 'object' && error !== null ? this.#thrownIn?.get(error) : undefined;
  }

  async tx(...args: unknown[]): Promise<unknown> {
    const { name, key, what, options } = this.#arguments.named('tx', args);
    if (typeof what !== 'function') throw this.#arguments.misused('tx', 'needs a function');
    if (insideTransaction.getStore() === this) {
      // Each would occupy one of the few connections while it waits for another.
      throw this.#arguments.misused(
        'tx',
        `'${name}' is inside another ctx.tx: use the outer one's transaction`,
      );
    }
    const through = (options as { through?: Transactor<unknown> } | undefined)?.through;
    this.#book.take('step', name, key);
    return this.#performed(name, key, async () => {
      // Not inside: frames use another connection, and a transaction must not wait for one.
      await this.#writer?.settled();
      this.#lease.signal.throwIfAborted();
      const call = what as (tx: unknown) => Promise<unknown>;
      const work = (tx: unknown) =>
        this.#inStep(name, key, () => insideTransaction.run(this, () => call(tx)));
      const parts = { port: this.#port, lease: this.#lease, book: this.#book };
      return runTransaction({ ...parts, name, key, through, work, log: this.log });
    });
  }

  async sleep(...args: unknown[]): Promise<void> {
    const { name, key, what } = this.#arguments.named('sleep', args);
    const sleepMs = this.#arguments.checked(`sleep('${name}')`, () =>
      durationMs(what, 'duration', LIMITS.delayMs),
    );
    this.#book.take('sleep', name, key);
    const askedAt = performance.now();
    const id = stepEnd(name, key);
    return this.#handOver.take(id, async (asked) => {
      const dueInMs = await this.#waits.busyWith(async () => {
        const stored = await this.#book.find('sleep', name, key);
        if (stored === undefined) await asked.begin();
        const begun = stored ?? (await this.#book.record({ name, key, sleepMs }));
        asked.endedAtMs = begun.value as number;
        // If the clock was set back, it may seem to be due again.
        return begun.dueInMs !== 0 && (await this.#handOver.wasHanded(id)) ? 0 : begun.dueInMs!;
      });
      if (dueInMs === 0) return;
      asked.live();
      return this.#waits.sleep(dueInMs, askedAt);
    });
  }

  /** `(name, options?)` or `(name, key, options?)`. */
  async waitFor(...args: unknown[]): Promise<unknown> {
    const keyed = typeof args[1] === 'string';
    const name = this.#arguments.nameOf('waitFor', args[0], stepName);
    const key = this.#arguments.keyOf('waitFor', keyed ? args[1] : '');
    const options = this.#arguments.optionsOf('waitFor', name, args.slice(keyed ? 2 : 1));
    return this.#signals.waitFor(name, key, options);
  }

  async createWaitpoint(named: unknown, ...rest: unknown[]): Promise<Waitpoint> {
    const name = this.#arguments.nameOf('createWaitpoint', named, waitpointName);
    return this.#signals.createWaitpoint(name, this.#arguments.optionsOf('createWaitpoint', name, rest));
  }

  async spawn(task: AnyTask, input: unknown, options: SpawnOptions = {}): Promise<Child<unknown>> {
    if (typeof task?.name !== 'string') throw this.#arguments.misused('spawn', 'needs a task made by task()');
    this.#arguments.checked('spawn', () => spawnOptions.check(options, 'options'));
    const key = this.#arguments.keyOf('spawn', options.key ?? '');
    this.#book.take('spawn', task.name, key);
    return this.#handOver.take(JSON.stringify(['spawn', task.name, key]), () =>
      this.#waits.during(() => this.#children.spawn(task, input, options)),
    );
  }

  async all(children: readonly Child<unknown>[]): Promise<unknown[]> {
    this.#lease.throwIfTold();
    if (!Array.isArray(children) || !children.every((child) => this.#children.isOwn(child))) {
      throw this.#arguments.misused('all', 'takes a list of children that this run has spawned by ctx.spawn');
    }
    return this.#children.results(children);
  }

  progress(progress: Progress): void {
    this.#progress ??= new ProgressReports(this.#port, this.#lease);
    this.#progress.say(progress);
  }
}

function both(one: Promise<void> | undefined, other: Promise<void> | undefined): Promise<void> | undefined {
  return one === undefined || other === undefined ? (one ?? other) : one.then(() => other);
}

function factsOf({ claim }: HeldLease): object {
  return { executionId: claim.executionId, kind: claim.kind, attemptIndex: claim.attemptIndex };
}

/** Adds fields to everything that is logged. A logger that throws must not fail the work. */
function withFacts(log: Logger, facts: object): Logger {
  const say =
    (level: keyof Logger) =>
    (own: object, message?: string): void => {
      try {
        if (typeof own === 'string') log[level](facts, own);
        else log[level]({ ...facts, ...own }, message);
      } catch {
        // A logger's own error cannot be logged.
      }
    };
  return { debug: say('debug'), info: say('info'), warn: say('warn'), error: say('error') };
}
