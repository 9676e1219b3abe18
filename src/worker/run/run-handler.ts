/**
 * Runs one claimed execution and reports its outcome. Nothing is written once the lease is not trusted; while the
 * database is unavailable the report is retried as long as the lease lasts.
 */
import { isEngineError } from '../../contract/errors.ts';
import type { CompleteOutcome, FailOutcome, Failure, WorkerPort } from '../../contract/protocol.ts';
import type { StreamKinds } from '../../define/streams.ts';
import { parseWith } from '../../contract/shape/schema.ts';
import { parseInput } from '../../define/task.ts';
import type { Logger } from '../../define/task-context.ts';
import type { Middleware, TaskHandler } from '../../define/handlers.ts';
import { insist, insistAfter, requireTrust } from './insist.ts';
import { abortCodeFor, type HeldLease } from '../loop/lease-watch.ts';
import { callAfter } from './long-timer.ts';
import { HandlerContext } from './handler-context.ts';
import type { Run } from './run.ts';
import { subjectOf, TaskAborted, TaskFailed, toFailure } from '../task.ts';

/** The outcome of a run, for the worker's counters. */
export type RunOutcome = 'completed' | 'failed' | 'retry_scheduled' | 'paused' | 'lost';

/** The worker that runs handlers. One object for all runs: what is created for each run is paid for by each. */
export interface RunHost<Lease extends HeldLease> {
  readonly port: WorkerPort;
  readonly log: Logger;
  readonly middleware: readonly Middleware[];
  /** Called when the handler has finished, before its outcome is reported. */
  handled(lease: Lease): void;
  /** Called when there is nothing left to do for the run, never before the run's promise is returned. */
  finished(lease: Lease, outcome: RunOutcome): void;
}

/**
 * Runs a handler and reports its outcome. Never rejects. A handler that completes at the first try, as most do, costs
 * this one promise and two waits: for the handler, and for the report.
 */
export async function runHandler<Lease extends HeldLease>(
  host: RunHost<Lease>,
  lease: Lease,
  handler: TaskHandler,
): Promise<void> {
  const { port } = host;
  const ctx = new HandlerContext(host, lease, handler.task.streams as StreamKinds);
  let run: Run | undefined;
  let result: unknown;
  try {
    result = await called(ctx, lease, handler, host.middleware);
    run = HandlerContext.over(ctx);
    const written = run?.closeOutput();
    if (written !== undefined) await written;
  } catch (thrown) {
    host.finished(lease, await failed(host, lease, HandlerContext.runOf(ctx), thrown).catch(lost));
    return;
  }
  if (run?.close() === true) await run.warnOfUnreached();
  host.handled(lease);
  let outcome: RunOutcome;
  try {
    const ordered = run?.orderStored();
    if (ordered !== undefined) await storedIfPossible(run!, ordered);
    requireTrust(lease);
    outcome = toOutcome(lease, await port.complete(lease.claim, result));
  } catch (error) {
    outcome = await completedLater(port, lease, run, result, error).catch(lost);
  }
  host.finished(lease, outcome);
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
  run.log.error({ err: thrown, ...(step === undefined ? {} : { step }) }, 'The attempt failed.');
  return reportFailure(host.port, lease, run, withStep(toFailure(thrown), step));
}

/** Continues after the first report of a result failed, with what it failed with. */
async function completedLater(
  port: WorkerPort,
  lease: HeldLease,
  run: Run | undefined,
  result: unknown,
  error: unknown,
): Promise<RunOutcome> {
  if (error instanceof TaskAborted) return outcomeOfLost(lease);
  try {
    return await answered(
      lease,
      insistAfter(error, lease, () => port.complete(lease.claim, result)),
    );
  } catch (hopeless) {
    // The result itself cannot be stored; a retry would produce the same one.
    const message = `${subjectOf(lease.claim)}: ${toFailure(hopeless).message}`;
    return reportFailure(port, lease, run, { message, category: 'permanent', retry: 'never' });
  }
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

async function reportFailure(
  port: WorkerPort,
  lease: HeldLease,
  run: Run | undefined,
  failure: Failure,
): Promise<RunOutcome> {
  try {
    return await report(lease, run, () => port.fail(lease.claim, failure));
  } catch (error) {
    // The handler's retry options were refused: then the failure alone must be reported.
    const message = `${failure.message} (its retry options were invalid: ${toFailure(error).message})`;
    const retry = failure.retry === 'never' ? 'never' : 'policy';
    return report(lease, run, () => port.fail(lease.claim, { message, retry }));
  }
}

type Report = () => Promise<CompleteOutcome | FailOutcome>;

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

async function answered(
  lease: HeldLease,
  answer: Promise<CompleteOutcome | FailOutcome>,
): Promise<RunOutcome> {
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

function toOutcome(lease: HeldLease, answer: CompleteOutcome | FailOutcome): RunOutcome {
  switch (answer.outcome) {
    case 'completed':
    case 'failed':
    case 'retry_scheduled':
      return answer.outcome;
    default:
      lease.lose(abortCodeFor(answer));
      return outcomeOfLost(lease);
  }
}

function outcomeOfLost(lease: HeldLease): RunOutcome {
  return lease.lostBy === 'paused' ? 'paused' : 'lost';
}
