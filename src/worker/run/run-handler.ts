/**
 * Runs one claimed execution and reports its outcome. Nothing is written once the lease is not trusted; while the
 * database is unavailable the report is retried as long as the lease lasts.
 */
import { isEngineError } from '../../contract/errors.ts';
import {
  promisedTo,
  type CompleteFor,
  type CompleteOutcome,
  type CompletionWaiter,
  type FailOutcome,
  type Failure,
  type OwnPort,
  type WorkerPort,
} from '../../contract/protocol.ts';
import type { ContinueOutcome } from '../../contract/messages.ts';
import type { StreamKinds } from '../../define/streams.ts';
import { parseWith } from '../../contract/shape/schema.ts';
import { checkInput, parseInput } from '../../define/task.ts';
import type { Middleware, TaskHandler } from '../../define/handlers.ts';
import { insist, insistAfter, requireTrust } from './insist.ts';
import type { FailedAttempt, WorkerLog } from '../log/worker-log.ts';
import type { HeldLease } from '../loop/lease-watch.ts';
import { callAfter } from './long-timer.ts';
import { Continuation, notReturned } from './continuation.ts';
import { HandlerContext } from './handler-context.ts';
import type { Run } from './run.ts';
import { subjectOf, TaskAborted, TaskFailed, toFailure } from '../task.ts';

/** The outcome of a run, for the worker's counters. */
export type RunOutcome = 'completed' | 'failed' | 'retry_scheduled' | 'paused' | 'lost';

/** The worker that runs handlers. One object for all runs: what is created for each run is paid for by each. */
export interface RunHost<Lease extends HeldLease> {
  readonly port: WorkerPort;
  readonly completeFor: CompleteFor;
  readonly log: WorkerLog;
  readonly middleware: readonly Middleware[];
  /** Called when the handler has finished, before its outcome is reported. */
  handled(lease: Lease): void;
  /** Called once, when there is nothing left to do for the run, and never before `runHandler` has returned. */
  finished(lease: Lease, outcome: RunOutcome): void;
}

/**
 * Runs a handler and reports its outcome. Never throws. A handler that uses nothing of its run and completes at the first
 * try, as most do, costs one wait, for the handler, and no promise besides its own: callbacks do the rest.
 */
export function runHandler<Lease extends HeldLease>(
  host: RunHost<Lease>,
  lease: Lease,
  handler: TaskHandler,
): void {
  const ctx = new HandlerContext(host, lease, handler.task.streams as StreamKinds);
  let made: Promise<unknown>;
  try {
    made = Promise.resolve(called(ctx, lease, handler, host.middleware));
  } catch (thrown) {
    void endFailed(host, lease, ctx, thrown);
    return;
  }
  void made.then(
    (result) => handled(host, lease, ctx, result),
    (thrown: unknown) => endFailed(host, lease, ctx, thrown),
  );
}

function handled<Lease extends HeldLease>(
  host: RunHost<Lease>,
  lease: Lease,
  ctx: HandlerContext,
  result: unknown,
): Promise<void> | undefined {
  if (HandlerContext.forgot(ctx, result)) return endFailed(host, lease, ctx, notReturned(lease));
  const run = HandlerContext.over(ctx);
  if (run !== undefined) return endRun(host, lease, ctx, run, result);
  host.handled(lease);
  return sendEnd(host, lease, undefined, result);
}

/** Sends the result; or the input of the next run, if the handler asked for one. */
function sendEnd<Lease extends HeldLease>(
  host: RunHost<Lease>,
  lease: Lease,
  run: Run | undefined,
  result: unknown,
): Promise<void> | undefined {
  if (result instanceof Continuation) return endContinued(host, lease, run, result);
  new Completion(host, lease, run, result).send();
  return undefined;
}

async function endContinued<Lease extends HeldLease>(
  host: RunHost<Lease>,
  lease: Lease,
  run: Run | undefined,
  { input }: Continuation,
): Promise<void> {
  const sent = async (): Promise<RunOutcome> => {
    try {
      return await answered(
        lease,
        insist(lease, () => host.port.continueAs(lease.claim, input)),
      );
    } catch (hopeless) {
      return reportUnstorable(host, lease, run, hopeless);
    }
  };
  host.finished(lease, await sent().catch(lost));
}

/** Ends a run of which the handler has used something. */
async function endRun<Lease extends HeldLease>(
  host: RunHost<Lease>,
  lease: Lease,
  ctx: HandlerContext,
  run: Run,
  result: unknown,
): Promise<void> {
  try {
    const written = run.closeOutput();
    if (written !== undefined) await written;
  } catch (thrown) {
    await endFailed(host, lease, ctx, thrown);
    return;
  }
  if (run.close()) await run.warnOfUnreached();
  host.handled(lease);
  try {
    const ordered = run.orderStored();
    if (ordered !== undefined) await storedIfPossible(run, ordered);
  } catch (error) {
    new Completion(host, lease, run, result).reject(error);
    return;
  }
  await sendEnd(host, lease, run, result);
}

async function endFailed<Lease extends HeldLease>(
  host: RunHost<Lease>,
  lease: Lease,
  ctx: HandlerContext,
  thrown: unknown,
): Promise<void> {
  host.finished(lease, await failed(host, lease, HandlerContext.runOf(ctx), thrown).catch(lost));
}

/** The port of a connection completes without a promise for each run; others need not. */
export function completeForOf(port: WorkerPort): CompleteFor {
  const { completeFor } = port as Partial<OwnPort>;
  return completeFor ?? ((lease, result, waiter) => promisedTo(waiter, port.complete(lease, result)));
}

/** A result on its way, and the waiter for its outcome. */
class Completion<Lease extends HeldLease> implements CompletionWaiter {
  readonly #host: RunHost<Lease>;
  readonly #lease: Lease;
  readonly #run: Run | undefined;
  readonly #result: unknown;

  constructor(host: RunHost<Lease>, lease: Lease, run: Run | undefined, result: unknown) {
    this.#host = host;
    this.#lease = lease;
    this.#run = run;
    this.#result = result;
  }

  send(): void {
    try {
      requireTrust(this.#lease);
      this.#host.completeFor(this.#lease.claim, this.#result, this);
    } catch (error) {
      this.reject(error);
    }
  }

  resolve(outcome: CompleteOutcome): void {
    this.#host.finished(this.#lease, toOutcome(this.#lease, outcome));
  }

  reject(error: unknown): void {
    void this.#sendAgain(error);
  }

  async #sendAgain(failure: unknown): Promise<void> {
    const host = this.#host;
    const later = completedLater(host, this.#lease, this.#run, this.#result, failure);
    host.finished(this.#lease, await later.catch(lost));
  }
}

/** The report itself failed in a way nobody expects: the lease lapses, and another worker continues. */
function lost(): RunOutcome {
  return 'lost';
}

async function failed<Lease extends HeldLease>(
  host: RunHost<Lease>,
  lease: Lease,
  run: Run,
  thrown: unknown,
): Promise<RunOutcome> {
  run.close();
  // Output from before the failure is written if possible; the failure is reported in any case.
  await run.closeOutput()?.catch(() => undefined);
  host.handled(lease);
  if (lease.lostBy !== undefined) return outcomeOfLost(lease);
  const step = run.stepOf(thrown);
  return reportFailure(host, lease, run, { failure: withStep(toFailure(thrown), step), thrown, step });
}

/** Continues after the first report of a result failed, with what it failed with. */
async function completedLater<Lease extends HeldLease>(
  host: RunHost<Lease>,
  lease: Lease,
  run: Run | undefined,
  result: unknown,
  error: unknown,
): Promise<RunOutcome> {
  if (error instanceof TaskAborted) return outcomeOfLost(lease);
  try {
    return await answered(
      lease,
      insistAfter(error, lease, () => host.port.complete(lease.claim, result)),
    );
  } catch (hopeless) {
    return reportUnstorable(host, lease, run, hopeless);
  }
}

/** The result itself cannot be stored; a retry would produce the same one. */
function reportUnstorable<Lease extends HeldLease>(
  host: RunHost<Lease>,
  lease: Lease,
  run: Run | undefined,
  hopeless: unknown,
): Promise<RunOutcome> {
  const thrown = toFailure(hopeless);
  const message = `${subjectOf(lease.claim)}: ${thrown.message}`;
  const failure: Failure = { ...thrown, message, category: 'permanent', retry: 'never' };
  return reportFailure(host, lease, run, { failure, thrown: hopeless, step: undefined });
}

function withStep(failure: Failure, step: string | undefined): Failure {
  return step === undefined ? failure : { ...failure, message: `${failure.message} (in step "${step}")` };
}

/**
 * These lines run for every execution: a task without schemas, time limit and middleware is called directly. Returns or
 * throws what the handler does.
 */
function called(
  ctx: HandlerContext,
  lease: HeldLease,
  handler: TaskHandler,
  middleware: readonly Middleware[],
): unknown {
  const { input, output, timeoutMs } = handler.task;
  const isPlain = input === undefined && output === undefined && middleware.length === 0;
  if (!isPlain) return inTime(lease, timeoutMs, () => callChecked(ctx, handler, middleware));
  if (timeoutMs === undefined) return handler.run(ctx.payload, ctx);
  return inTime(lease, timeoutMs, () => callPlain(ctx, handler, ctx.payload));
}

async function callPlain(ctx: HandlerContext, handler: TaskHandler, input: unknown): Promise<unknown> {
  try {
    return await handler.run(input, ctx);
  } finally {
    HandlerContext.handled(ctx);
  }
}

async function callChecked(
  ctx: HandlerContext,
  handler: TaskHandler,
  middleware: readonly Middleware[],
): Promise<unknown> {
  const { task } = handler;
  const input = await checked('invalid_input', () => parseInput(task, ctx.payload, subjectOf(ctx)));
  let callNext = (): Promise<unknown> => callPlain(ctx, handler, input);
  for (const outer of middleware.toReversed()) {
    const next = callNext;
    callNext = async () => outer(ctx, next);
  }
  const made = await callNext();
  if (made instanceof Continuation) {
    await checked('invalid_input', () => checkInput(task, made.input));
    return made;
  }
  return checked('invalid_output', () =>
    parseWith(task.output, made, { field: 'output', of: subjectOf(ctx) }),
  );
}

/** A value that does not match its schema will not match the next time either. */
async function checked<Value>(category: string, parse: () => Promise<Value>): Promise<Value> {
  try {
    return await parse();
  } catch (error) {
    throw isEngineError(error) ? new TaskFailed(error.message, { category, retry: 'never' }) : error;
  }
}

/** A handler that takes too long is aborted, and not waited for. */
async function inTime(
  lease: HeldLease,
  timeoutMs: number | undefined,
  work: () => Promise<unknown>,
): Promise<unknown> {
  if (timeoutMs === undefined) return work();
  let callOff: (() => void) | undefined;
  const over = new Promise<never>((_, reject) => {
    callOff = callAfter(timeoutMs, () => {
      lease.stopHandler('deadline');
      reject(new TaskFailed(`The attempt took longer than ${timeoutMs} ms.`, { category: 'timeout' }));
    });
  });
  try {
    return await Promise.race([work(), over]);
  } finally {
    callOff?.();
  }
}

async function reportFailure<Lease extends HeldLease>(
  { port, log }: RunHost<Lease>,
  lease: Lease,
  run: Run | undefined,
  attempt: Omit<FailedAttempt, 'claim'>,
): Promise<RunOutcome> {
  const { claim } = lease;
  let { failure } = attempt;
  let answer: FailOutcome | undefined;
  const send = async (): Promise<FailOutcome> => (answer = await port.fail(claim, failure));
  try {
    return await report(lease, run, send);
  } catch (error) {
    // The handler's retry options were refused: then the failure alone must be reported.
    const message = `${failure.message} (its retry options were invalid: ${toFailure(error).message})`;
    const { detail } = failure;
    failure = { message, retry: failure.retry === 'never' ? 'never' : 'policy' };
    if (detail !== undefined) failure.detail = detail;
    return await report(lease, run, send);
  } finally {
    log.attemptFailed({ ...attempt, claim, failure }, answer);
  }
}

type EndOutcome = CompleteOutcome | FailOutcome | ContinueOutcome;
type Report = () => Promise<EndOutcome>;

async function report(lease: HeldLease, run: Run | undefined, call: Report): Promise<RunOutcome> {
  try {
    const ordered = run?.orderStored();
    if (ordered !== undefined) await storedIfPossible(run!, ordered);
  } catch (error) {
    if (error instanceof TaskAborted) return outcomeOfLost(lease);
    throw error;
  }
  return answered(lease, insist(lease, call));
}

async function answered(lease: HeldLease, answer: Promise<EndOutcome>): Promise<RunOutcome> {
  try {
    return toOutcome(lease, await answer);
  } catch (error) {
    if (error instanceof TaskAborted) return outcomeOfLost(lease);
    throw error;
  }
}

/** The next attempt, or a replay, takes the branches of this one; but the outcome itself matters more. */
async function storedIfPossible(run: Run, ordered: Promise<void>): Promise<void> {
  await ordered.catch((error: unknown) => {
    if (error instanceof TaskAborted) throw error;
    run.log.error({ err: error }, 'The order of outcomes could not be stored.');
  });
}

function toOutcome(lease: HeldLease, answer: EndOutcome): RunOutcome {
  switch (answer.outcome) {
    case 'completed':
    case 'failed':
    case 'retry_scheduled':
      return answer.outcome;
    case 'continued':
      return 'paused';
    default:
      lease.refused(answer);
      return outcomeOfLost(lease);
  }
}

function outcomeOfLost(lease: HeldLease): RunOutcome {
  return lease.lostBy === 'paused' ? 'paused' : 'lost';
}
