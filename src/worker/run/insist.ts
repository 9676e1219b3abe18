/**
 * Calls that must not be given up because a connection broke: they are retried as long as the lease is trusted. Errors
 * caused by the caller, and errors that no retry can fix, are thrown; an unknown error is retried a few times, because
 * a statement may have been cancelled by chance.
 */
import { setTimeout as delay } from 'node:timers/promises';
import {
  ConnectionWaitOver,
  isEngineError,
  isPassingTrouble,
  type EngineError,
} from '../../contract/errors.ts';
import { TaskAborted } from '../task.ts';
import type { HeldLease } from '../loop/lease-watch.ts';

const RETRY_MS = 100;
const MAX_ODD_TRIES = 50;
/** A few seconds: whoever limits connections on purpose should learn of it. */
const MAX_ROOMLESS_TRIES = 30;

/** Throws a TaskAborted once the lease is no longer trusted. */
export function insist<Answer>(lease: HeldLease, call: () => Promise<Answer>): Promise<Answer> {
  return insistUnless(lease, call, never);
}

/** The same when the first try was made elsewhere, and failed with this error. */
export function insistAfter<Answer>(
  error: unknown,
  lease: HeldLease,
  call: () => Promise<Answer>,
): Promise<Answer> {
  let isFirst = true;
  return insist(lease, () => {
    if (!isFirst) return call();
    isFirst = false;
    return Promise.reject(error as Error);
  });
}

/** Throws a TaskAborted if the lease is no longer trusted. */
export function requireTrust(lease: HeldLease): void {
  if (!lease.isTrusted()) throw new TaskAborted(lease.lostBy ?? 'lease_lost');
}

function never(): boolean {
  return false;
}

/**
 * The same for calls that need their own connection: that none is free is reported once, and thrown after some tries.
 */
export async function insistOnConnection<Answer>(
  lease: HeldLease,
  call: () => Promise<Answer>,
  report: (error: EngineError) => void,
): Promise<Answer> {
  let tries = 0;
  return insistUnless(lease, call, (error) => {
    if (!isEngineError(error) || error.code !== 'no_connection') return false;
    tries += 1;
    if (tries === 1) report(error);
    return error instanceof ConnectionWaitOver || tries >= MAX_ROOMLESS_TRIES;
  });
}

async function insistUnless<Answer>(
  lease: HeldLease,
  call: () => Promise<Answer>,
  isEnough: (error: unknown) => boolean,
): Promise<Answer> {
  let oddTries = 0;
  while (lease.isTrusted()) {
    try {
      return await call();
    } catch (error) {
      if (isEngineError(error) && error.code === 'closed') {
        lease.lose('lease_lost');
        break;
      }
      if (!isPassingTrouble(error)) oddTries += 1;
      if (isHopeless(error) || isEnough(error) || oddTries >= MAX_ODD_TRIES) throw error;
      await delay(RETRY_MS, undefined, { signal: lease.signal }).catch(() => undefined);
    }
  }
  throw new TaskAborted(lease.lostBy ?? 'lease_lost');
}

/** An error of the engine with its own code, other than a transient database error, will be the same next time. */
export function isHopeless(error: unknown): boolean {
  return isEngineError(error) && !isPassingTrouble(error) && error.code !== 'database_error';
}
