/**
 * Runs one claimed execution and reports how it ended. Nothing is written once the lease is not trusted; while the
 * database is away the report is tried again for as long as the lease lasts.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { isEngineError } from '../contract/errors.ts';
import type { CompleteOutcome, Engine, Failure, FailOutcome } from '../contract/engine.ts';
import { abortCodeFor, type HeldLease } from './lease-watch.ts';
import { toFailure, toTask, type Handler } from './task.ts';

const REPORT_RETRY_MS = 100;

/** How a run ended, for the worker's counters. */
export type RunEnd = 'completed' | 'failed' | 'retry_scheduled' | 'lost';

/** `onHandled` is called when the handler is over, before its end is reported. */
export async function runHandler(
  engine: Engine,
  lease: HeldLease,
  handler: Handler,
  onHandled: () => void,
): Promise<RunEnd> {
  const { claim } = lease;
  let result: unknown;
  try {
    result = await handler(toTask(claim, lease));
  } catch (thrown) {
    onHandled();
    return reportFailure(engine, lease, toFailure(thrown));
  }
  onHandled();
  try {
    return await report(lease, () => engine.complete(claim, result));
  } catch (error) {
    // The result itself cannot be stored; the next try would make the same one.
    return reportFailure(engine, lease, { ...toFailure(error), category: 'permanent', retry: 'never' });
  }
}

async function reportFailure(engine: Engine, lease: HeldLease, failure: Failure): Promise<RunEnd> {
  try {
    return await report(lease, () => engine.fail(lease.claim, failure));
  } catch (error) {
    // What the handler said about its failure was refused: then the failure alone must be reported.
    const message = `${failure.message} (how to treat it was refused: ${toFailure(error).message})`;
    const retry = failure.retry === 'never' ? 'never' : 'policy';
    return report(lease, () => engine.fail(lease.claim, { message, retry }));
  }
}

/**
 * Tries for as long as the lease is trusted, whatever the database's trouble: what was done must not be called
 * undone because a statement was cancelled. Only what the caller gave is thrown back.
 */
async function report(lease: HeldLease, call: () => Promise<CompleteOutcome | FailOutcome>): Promise<RunEnd> {
  while (lease.isTrusted()) {
    try {
      return toEnd(lease, await call());
    } catch (error) {
      if (isRefusedInput(error)) throw error;
      if (isEngineError(error) && error.code === 'closed') return 'lost';
      await pause(REPORT_RETRY_MS, undefined, { signal: lease.signal }).catch(() => undefined);
    }
  }
  return 'lost';
}

function isRefusedInput(error: unknown): boolean {
  return isEngineError(error) && ['invalid_input', 'payload_too_large'].includes(error.code);
}

function toEnd(lease: HeldLease, answer: CompleteOutcome | FailOutcome): RunEnd {
  switch (answer.outcome) {
    case 'completed':
    case 'failed':
    case 'retry_scheduled':
      return answer.outcome;
    default:
      lease.lose(abortCodeFor(answer));
      return 'lost';
  }
}
