/**
 * What each operation on a leased execution returns, given what was done to it before: the table by which races of two
 * and more are judged. Pure; the outcomes are the functions' own, `again` marks the repetition of an earlier result.
 */
import type { Call, Calls, Lease } from '../calls.ts';

export const OPERATIONS = [
  'complete',
  'fail',
  'retry',
  'release',
  'pause',
  'renew',
  'cancel',
  'revoke',
] as const;
export type Operation = (typeof OPERATIONS)[number];

/** The state of an execution after the last operation that changed it. */
type State = 'leased' | Operation;

const ACCEPTED: Record<Operation, string> = {
  complete: 'completed',
  fail: 'failed',
  retry: 'retry_scheduled',
  release: 'released',
  pause: 'paused',
  renew: 'renewed',
  cancel: 'cancelled',
  revoke: 'revoked',
};

/** By the first operation, then by the second. All of them use the lease the execution had at the start. */
const AFTER: Record<State, Record<Operation, string>> = {
  leased: ACCEPTED,
  renew: ACCEPTED,
  complete: {
    complete: 'completed again',
    fail: 'conflict',
    retry: 'conflict',
    release: 'conflict',
    pause: 'conflict',
    renew: 'not_active',
    cancel: 'not_active',
    revoke: 'no_active_lease',
  },
  fail: {
    complete: 'conflict',
    fail: 'failed again',
    retry: 'failed again',
    release: 'conflict',
    pause: 'conflict',
    renew: 'not_active',
    cancel: 'not_active',
    revoke: 'no_active_lease',
  },
  retry: {
    complete: 'conflict',
    fail: 'retry_scheduled again',
    retry: 'retry_scheduled again',
    release: 'conflict',
    pause: 'conflict',
    renew: 'not_active',
    cancel: 'cancelled',
    revoke: 'no_active_lease',
  },
  release: {
    complete: 'not_active',
    fail: 'not_active',
    retry: 'not_active',
    release: 'released again',
    pause: 'conflict',
    renew: 'not_active',
    cancel: 'cancelled',
    revoke: 'no_active_lease',
  },
  pause: {
    complete: 'not_active',
    fail: 'not_active',
    retry: 'not_active',
    release: 'conflict',
    pause: 'paused again',
    renew: 'not_active',
    cancel: 'cancelled',
    revoke: 'no_active_lease',
  },
  cancel: {
    complete: 'not_active',
    fail: 'not_active',
    retry: 'not_active',
    release: 'not_active',
    pause: 'not_active',
    renew: 'not_active',
    cancel: 'already_cancelled',
    revoke: 'no_active_lease',
  },
  revoke: {
    complete: 'lease_revoked',
    fail: 'lease_revoked',
    retry: 'lease_revoked',
    release: 'lease_revoked',
    pause: 'lease_revoked',
    renew: 'lease_revoked',
    cancel: 'cancelled',
    revoke: 'no_active_lease',
  },
};

/** What these operations return when they run one after the other. */
export function answersInTurn(operations: Operation[]): string[] {
  let state: State = 'leased';
  return operations.map((operation) => {
    const answer = AFTER[state][operation];
    if (answer === ACCEPTED[operation]) state = operation;
    return answer;
  });
}

/** What the second returns that is called while the first is open: a renewal never waits, all others wait for the row. */
export function answersMeeting(
  first: Operation,
  second: Operation,
): { told: string[]; waitsOn: string | null } {
  if (second === 'renew') return { told: [ACCEPTED[first], 'held'], waitsOn: null };
  return { told: answersInTurn([first, second]), waitsOn: 'ff_execution' };
}

export function callOf(calls: Calls, operation: Operation, leases: Lease[]): Call {
  return calls[operation](leases);
}

/** Every pair, including each operation with itself. */
export function pairsOfOperations(): [Operation, Operation][] {
  return OPERATIONS.flatMap((one, index) =>
    OPERATIONS.slice(index).map((other): [Operation, Operation] => [one, other]),
  );
}
