/**
 * Calls that must not be given up because a connection broke: they are tried again for as long as the lease is
 * trusted, whatever the database's trouble. Only what the caller gave is thrown back.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { isEngineError } from '../contract/errors.ts';
import { TaskAborted } from './task.ts';
import type { HeldLease } from './lease-watch.ts';

const RETRY_MS = 100;

/** Throws a TaskAborted once the lease is not trusted any more. */
export async function insist<Answer>(lease: HeldLease, call: () => Promise<Answer>): Promise<Answer> {
  while (lease.isTrusted()) {
    try {
      return await call();
    } catch (error) {
      if (isCallersFault(error)) throw error;
      if (isEngineError(error) && error.code === 'closed') lease.lose('lease_lost');
      else await pause(RETRY_MS, undefined, { signal: lease.signal }).catch(() => undefined);
    }
  }
  throw new TaskAborted(lease.lostBy ?? 'lease_lost');
}

function isCallersFault(error: unknown): boolean {
  return (
    isEngineError(error) &&
    [
      'invalid_input',
      'invalid_id',
      'invalid_policy',
      'invalid_capabilities',
      'payload_too_large',
      'too_many',
    ].includes(error.code)
  );
}
