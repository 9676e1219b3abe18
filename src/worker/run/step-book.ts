/**
 * The steps of one run: which names were used, what is stored under them, and the recording of new ones. Stored steps
 * are read when the first step is used, and only if there can be any: a first run has none.
 */
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { WorkerPort } from '../../contract/protocol.ts';
import type { NewStep, RecordOutcome, StepRecord } from '../../contract/steps.ts';
import type { ParentChange } from '../../contract/streams.ts';
import type { SqlExecutor } from '../../contract/transactions.ts';
import { insist } from './insist.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { subjectOf, TaskAborted } from '../task.ts';

export type StepUse = 'step' | 'sleep' | 'wait' | 'spawn';

export class StepBook {
  readonly #port: WorkerPort;
  readonly #lease: HeldLease;
  readonly #onFound: (stored: StepRecord) => void;
  readonly #used = new Map<string, StepUse>();
  #readAt = 0;
  #stored: Promise<Map<string, StepRecord>> | undefined;

  /** `onFound` is called with what is found, in the order in which the handler asks. */
  constructor(port: WorkerPort, lease: HeldLease, onFound: (stored: StepRecord) => void) {
    this.#port = port;
    this.#lease = lease;
    this.#onFound = onFound;
  }

  /** Reserves a name for this run. A pair of name and key stands for one thing, so it may be used once. */
  take(use: StepUse, name: string, key: string): void {
    const pair = pairOf(use, name, key);
    const before = this.#used.get(pair);
    if (before !== undefined) throw this.#misused(reuseSentence(use, name, key));
    if (this.#used.size >= LIMITS.steps) {
      throw this.#misused(`more than ${LIMITS.steps} steps in one execution; split the work into children`);
    }
    this.#used.set(pair, use);
  }

  /** What is stored under the name, if anything. */
  async find(kind: StepRecord['kind'], name: string, key: string): Promise<StepRecord | undefined> {
    this.#stored ??= this.#read();
    const stored = (await this.#stored).get(pairOf(kind, name, key));
    if (stored === undefined) return undefined;
    if (stored.kind === kind) {
      this.#onFound(stored);
      return { ...stored, dueInMs: this.#leftOf(stored.dueInMs) };
    }
    throw this.#misused(
      `"${name}" was stored as a ${stored.kind} by an earlier run and is now used as a ${kind}; give the new one another name`,
    );
  }

  /** All that was stored before this run. */
  async stored(): Promise<StepRecord[]> {
    this.#stored ??= this.#read();
    return [...(await this.#stored).values()];
  }

  /** Stores a step, and with it changes of the parent's document; returns what is stored. */
  async record(step: NewStep, forParent: readonly ParentChange[] = []): Promise<StepRecord> {
    const { claim } = this.#lease;
    const record = () =>
      forParent.length === 0
        ? this.#port.recordStep(claim, step)
        : this.#port.recordForParent(claim, step, forParent);
    try {
      return this.#accepted(await insist(this.#lease, record)).step;
    } catch (error) {
      throw this.#explained(error, step);
    }
  }

  /** Stores a step in a transaction of the handler: once, without retries. */
  async recordInside(step: NewStep, executor: SqlExecutor): Promise<{ repeated: boolean; step: StepRecord }> {
    if (!this.#lease.isTrusted()) throw new TaskAborted(this.#lease.lostBy ?? 'lease_lost');
    try {
      return this.#accepted(await this.#port.recordStep(this.#lease.claim, step, { executor }));
    } catch (error) {
      throw this.#explained(error, step);
    }
  }

  /** What is stored under the name now, whatever was read before. */
  async readAgain(name: string, key: string): Promise<StepRecord | undefined> {
    const { executionId } = this.#lease.claim;
    const steps = await insist(this.#lease, () => this.#port.readSteps(executionId));
    return steps.find((step) => step.name === name && step.key === key);
  }

  /** Stored steps that this run never reached: its code was changed. */
  async unreached(): Promise<string[]> {
    if (this.#stored === undefined) return [];
    const stored = await this.#stored;
    return [...stored]
      .filter(([pair]) => !this.#used.has(pair))
      .map(([, step]) => nameOf(step.name, step.key));
  }

  /** A sleep continues while the handler does something else. */
  #leftOf(dueInMs: number | null): number | null {
    return dueInMs === null ? null : Math.max(0, dueInMs - (performance.now() - this.#readAt));
  }

  #accepted(outcome: RecordOutcome): { repeated: boolean; step: StepRecord } {
    if (outcome.outcome === 'recorded') return outcome;
    this.#lease.refused(outcome);
    throw new TaskAborted(this.#lease.lostBy ?? 'lease_lost');
  }

  async #read(): Promise<Map<string, StepRecord>> {
    const { claim } = this.#lease;
    if (claim.attemptIndex === 0 && !claim.resumed) return new Map();
    const steps = await insist(this.#lease, () => this.#port.readSteps(claim.executionId));
    this.#readAt = performance.now();
    return new Map(steps.map((step) => [pairOf(step.kind, step.name, step.key), step]));
  }

  #misused(what: string): EngineError {
    return new EngineError('invalid_step', `${subjectOf(this.#lease.claim)}: ${what}.`);
  }

  /** Adds the name of the step to an error about it. */
  #explained(error: unknown, { name, key = '' }: NewStep): unknown {
    if (!isEngineError(error) || !error.field?.startsWith('step.')) return error;
    const { code, field, message } = error;
    const which = `${subjectOf(this.#lease.claim)}: step "${nameOf(name, key)}" cannot be stored`;
    return new EngineError(code, `${which}: ${message}`, { field, cause: error.cause });
  }
}

/** Steps, sleeps and waits share one set of names; children have their own. */
function pairOf(use: StepUse, name: string, key: string): string {
  return `${use === 'spawn' ? 'spawn' : 'step'}\u0000${name}\u0000${key}`;
}

function nameOf(name: string, key: string): string {
  return key === '' ? name : `${name} [${key}]`;
}

function reuseSentence(use: StepUse, name: string, key: string): string {
  const again = `"${nameOf(name, key)}" is used twice in one run`;
  if (use === 'spawn') return `${again}; tell the children apart by a key: ctx.spawn(task, input, { key })`;
  const method = use === 'wait' ? 'waitFor' : use;
  return `${again}; in a loop give each round a key: ctx.${method}('${name}', String(i), …)`;
}
