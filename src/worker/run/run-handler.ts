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
import { insist } from './insist.ts';
import { abortCodeFor, type HeldLease } from '../loop/lease-watch.ts';
import { callAfter } from './long-timer.ts';
import { Run } from './run.ts';
import { subjectOf, TaskAborted, TaskFailed, toFailure } from '../task.ts';

/** The outcome of a run, for the worker's counters. */
export type RunOutcome = 'completed' | 'failed' | 'retry_scheduled' | 'paused' | 'lost';

export interface RunOptions {
  log: Logger;
  middleware: readonly Middleware[];
  /** Called when the handler has finished, before its outcome is reported. */
  onHandled(): void;
}

export async function runHandler(
  port: WorkerPort,
  lease: HeldLease,
  handler: TaskHandler,
  options: RunOptions,
): Promise<RunOutcome> {
  const run = new Run(port, lease, options.log, handler.task.streams as StreamKinds);
  let result: unknown;
  try {
    result = await called(run, lease, handler, options.middleware);
    const written = run.closeOutput();
    if (written !== undefined) await written;
  } catch (thrown) {
    run.close();
    // Output from before the failure is written if possible; the failure is reported in any case.
    await run.closeOutput()?.catch(() => undefined);
    options.onHandled();
    if (lease.lostBy !== undefined) return outcomeOfLost(lease);
    const step = run.stepOf(thrown);
    run.log.error({ err: thrown, ...(step === undefined ? {} : { step }) }, 'The attempt failed.');
    return reportFailure(port, lease, run, withStep(toFailure(thrown), step));
  }
  if (run.close()) await run.warnOfUnreached();
  options.onHandled();
  try {
    return await report(lease, run, () => port.complete(lease.claim, result));
  } catch (error) {
    // The result itself cannot be stored; a retry would produce the same one.
    const message = `${subjectOf(lease.claim)}: ${toFailure(error).message}`;
    return reportFailure(port, lease, run, { message, category: 'permanent', retry: 'never' });
  }
}

function withStep(failure: Failure, step: string | undefined): Failure {
  return step === undefined ? failure : { ...failure, message: `${failure.message} (in step "${step}")` };
}

/** These lines run for every execution: a task without schemas, time limit and middleware awaits nothing else. */
function called(
  run: Run,
  lease: HeldLease,
  handler: TaskHandler,
  middleware: readonly Middleware[],
): Promise<unknown> {
  const { input, output, timeoutMs } = handler.task;
  const isPlain = input === undefined && output === undefined && middleware.length === 0;
  if (!isPlain) return inTime(lease, timeoutMs, () => callChecked(run, handler, middleware));
  if (timeoutMs === undefined) return callPlain(run, handler, run.ctx.payload);
  return inTime(lease, timeoutMs, () => callPlain(run, handler, run.ctx.payload));
}

async function callPlain(run: Run, handler: TaskHandler, input: unknown): Promise<unknown> {
  try {
    return await handler.run(input, run.ctx);
  } finally {
    run.handled();
  }
}

async function callChecked(
  run: Run,
  handler: TaskHandler,
  middleware: readonly Middleware[],
): Promise<unknown> {
  const { ctx } = run;
  const { task } = handler;
  const input = await checked('invalid_input', () => parseInput(task, ctx.payload, subjectOf(ctx)));
  let callNext = (): Promise<unknown> => callPlain(run, handler, input);
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
  run: Run,
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

async function report(lease: HeldLease, run: Run, call: Report): Promise<RunOutcome> {
  try {
    const ordered = run.orderStored();
    if (ordered !== undefined) await storedIfPossible(run, ordered);
    return toOutcome(lease, await insist(lease, call));
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
