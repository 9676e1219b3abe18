/**
 * One run of a handler: the parts that its context uses, such as steps, waits, children and progress, and what closes
 * them when the handler has finished. It is created when the handler first uses one of them, and each part on its own
 * first use, because most handlers use few of them, or none.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import { LIMITS } from '../../contract/limits.ts';
import type { WorkerPort } from '../../contract/protocol.ts';
import type { StepKey } from '../../contract/steps.ts';
import type { StreamKinds } from '../../define/streams.ts';
import type { FlowScope, Logger, TaskLogger } from '../../define/task-context.ts';
import type { OutputStream, ParentScope } from '../../define/output.ts';
import { CallArguments } from './call-arguments.ts';
import { Children } from './children.ts';
import { flowScope } from './flow.ts';
import { HandOver, stepOutcomeId } from './hand-over.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { Messages } from './messages.ts';
import { parentScope } from './parent.ts';
import { ProgressReports } from './progress.ts';
import { Rerun } from './rerun.ts';
import { currentTry } from './run-step.ts';
import { Signals } from './wait-for.ts';
import { Topics } from './topics.ts';
import { StepBook } from './step-book.ts';
import { contractStreams, outputStream, type StreamRun } from './stream.ts';
import { StreamWriter } from './stream-writer.ts';
import { Waits } from './waits.ts';

/** The run whose transaction the caller is in. */
const insideTransaction = new AsyncLocalStorage<Run>();

export class Run {
  readonly port: WorkerPort;
  readonly lease: HeldLease;
  #madeArguments: CallArguments | undefined;
  #madeBook: StepBook | undefined;
  #madeWaits: Waits | undefined;
  #madeChildren: Children | undefined;
  #madeSignals: Signals | undefined;
  #madeMessages: Messages | undefined;
  #madeTopics: Topics | undefined;
  #madeHandOver: HandOver | undefined;
  readonly #log: Logger;
  #factLog: TaskLogger | undefined;
  #thrownIn: WeakMap<object, string> | undefined;
  #isHandled = false;
  #isOutputClosed = false;
  #madeProgress: ProgressReports | undefined;
  #madeWriter: StreamWriter | undefined;
  #madeRerun: Rerun | undefined;
  #madeStream: OutputStream | undefined;
  #madeParent: ParentScope | undefined;
  readonly #kinds: StreamKinds;
  #madeStreams: object | undefined;

  constructor(port: WorkerPort, lease: HeldLease, log: Logger, kinds: StreamKinds) {
    this.port = port;
    this.lease = lease;
    this.#log = log;
    this.#kinds = kinds;
  }

  get arguments(): CallArguments {
    return (this.#madeArguments ??= new CallArguments(this.lease.claim));
  }

  get book(): StepBook {
    return (this.#madeBook ??= new StepBook(this.port, this.lease, (found) => this.rerun?.passedStep(found)));
  }

  /** What a handler that runs again writes is compared; undefined in a first run. */
  get rerun(): Rerun | undefined {
    const { resumed, attemptIndex } = this.lease.claim;
    if (!resumed && attemptIndex === 0) return undefined;
    return (this.#madeRerun ??= new Rerun(this.port, this.lease, () => this.book.stored()));
  }

  get waits(): Waits {
    if (this.#madeWaits === undefined) {
      this.#madeWaits = new Waits(this.port, this.lease, {
        stored: () => both(this.outputStored(), this.orderStored()),
        isHandingOver: () => this.#madeHandOver?.isHandingOver() ?? false,
      });
      if (this.#isHandled) this.#madeWaits.close();
    }
    return this.#madeWaits;
  }

  get children(): Children {
    return (this.#madeChildren ??= new Children(this.port, this.lease, this.waits, this.handOver));
  }

  get signals(): Signals {
    const parts = [this.port, this.lease, this.book, this.waits, this.handOver] as const;
    return (this.#madeSignals ??= new Signals(...parts));
  }

  get messages(): Messages {
    return (this.#madeMessages ??= new Messages(this));
  }

  get topics(): Topics {
    return (this.#madeTopics ??= new Topics(this.lease, this.book, this.waits, this.handOver));
  }

  get handOver(): HandOver {
    if (this.#madeHandOver === undefined) {
      this.#madeHandOver = new HandOver(this.port, this.lease, this.waits, {
        isExempt: () => currentTry(this.lease.signal) !== undefined || this.isInTransaction(),
        isWriting: () => this.#madeWriter?.isSettled === false,
      });
      if (this.#isHandled) this.#madeHandOver.close();
    }
    return this.#madeHandOver;
  }

  get progress(): ProgressReports {
    return (this.#madeProgress ??= new ProgressReports(this.port, this.lease));
  }

  get flow(): FlowScope | null {
    const during = <Value>(work: () => Promise<Value>): Promise<Value> =>
      this.handOver.take(this.handOver.numbered('flow'), () =>
        this.waits.during(async () => {
          await this.handOver.saved();
          return work();
        }),
      );
    return flowScope(this.port, this.lease, during);
  }

  get parent(): ParentScope {
    return (this.#madeParent ??= parentScope({
      port: this.port,
      lease: this.lease,
      currentTry: () => currentTry(this.lease.signal),
      isInTransaction: () => this.isInTransaction(),
    }));
  }

  get stream(): OutputStream {
    return (this.#madeStream ??= outputStream(this.#streamRun(), this.#kinds));
  }

  get streams(): object {
    return (this.#madeStreams ??= contractStreams(this.#streamRun(), this.#kinds));
  }

  #streamRun(): StreamRun {
    if (this.#madeWriter === undefined) {
      this.#madeWriter = new StreamWriter(this.port, this.lease, this.rerun);
      if (this.#isOutputClosed) this.#madeWriter.close();
    }
    return {
      claim: this.lease.claim,
      writer: this.#madeWriter,
      currentTry: () => currentTry(this.lease.signal),
      isInTransaction: () => this.isInTransaction(),
      during: (work) => this.handOver.beside(() => this.waits.during(work)),
    };
  }

  /** Resolves when the output so far is stored; undefined when it is, or when there is none. */
  outputStored(): Promise<void> | undefined {
    return this.#madeWriter?.settled();
  }

  /**
   * Accepts no more output; resolves when all of it is stored. Undefined when there was none: most handlers write
   * nothing.
   */
  closeOutput(): Promise<void> | undefined {
    this.#isOutputClosed = true;
    this.#madeWriter?.close();
    return this.#madeWriter?.flush();
  }

  /** The handler's function has finished: a wait it abandoned is no reason to pause. */
  handled(): void {
    this.#isHandled = true;
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
    this.#madeProgress?.close();
    return this.#madeBook !== undefined;
  }

  /** Warns of stored steps that the handler never reached although it completed. */
  async warnOfUnreached(): Promise<void> {
    const unreached = await this.book.unreached().catch(() => []);
    if (unreached.length === 0) return;
    const sentence = 'Stored steps were not reached: did the code change while this execution was running?';
    this.log.warn({ steps: unreached }, sentence);
  }

  get log(): TaskLogger {
    return (this.#factLog ??= withFacts(this.#log, factsOf(this.lease)));
  }

  /** The stored value of a step, or what `perform` stored: in both cases a value that the step's function returned. */
  performed<Value>(name: string, key: string, perform: () => Promise<unknown>): Promise<Value> {
    return this.handOver.take(stepOutcomeId(name, key), (asked) =>
      this.waits.during(async () => {
        const stored = await this.book.find('step', name, key);
        if (stored !== undefined) return stored.value as Value;
        const led = asked.begin();
        if (led !== undefined) await led;
        return (await perform()) as Value;
      }),
    );
  }

  /** A sleep that is recorded already keeps its end, whatever this run asks for. */
  sleep(step: Required<StepKey> & ({ sleepMs: number } | { sleepUntilMs: number })): Promise<void> {
    const { name, key } = step;
    this.book.take('sleep', name, key);
    const askedAt = performance.now();
    const id = stepOutcomeId(name, key);
    return this.handOver.take(id, async (asked) => {
      const dueInMs = await this.waits.busyWith(async () => {
        const stored = await this.book.find('sleep', name, key);
        if (stored === undefined) await asked.begin();
        const begun = stored ?? (await this.book.record(step));
        asked.endedAtMs = begun.value as number;
        // If the clock was set back, it may seem to be due again.
        return begun.dueInMs !== 0 && (await this.handOver.wasHanded(id)) ? 0 : begun.dueInMs!;
      });
      if (dueInMs === 0) return;
      asked.live();
      // A later date is waited for in parts: the next run finds that it is not due yet.
      return this.waits.sleep(Math.min(dueInMs, LIMITS.delayMs), askedAt);
    });
  }

  /** Remembers where an error came from: its message alone is seldom enough. */
  async inStep<Value>(name: string, key: string, work: () => Promise<Value>): Promise<Value> {
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

  /** Whether the caller is inside a ctx.tx of this run. */
  isInTransaction(): boolean {
    return insideTransaction.getStore() === this;
  }

  inTransaction<Value>(work: () => Promise<Value>): Promise<Value> {
    return insideTransaction.run(this, work);
  }
}

function both(one: Promise<void> | undefined, other: Promise<void> | undefined): Promise<void> | undefined {
  return one === undefined || other === undefined ? (one ?? other) : one.then(() => other);
}

function factsOf({ claim }: HeldLease): object {
  return { executionId: claim.executionId, kind: claim.kind, attemptIndex: claim.attemptIndex };
}

/** Adds fields to everything that is logged. A logger that throws must not fail the work. */
function withFacts(log: Logger, facts: object): TaskLogger {
  const write =
    (level: keyof Logger) =>
    (own: object | string, message?: string): void => {
      try {
        if (typeof own === 'string') log[level](facts, own);
        else log[level]({ ...facts, ...own }, message);
      } catch {
        // A logger's own error cannot be logged.
      }
    };
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
}
