/**
 * The errors the engine throws. A refusal that callers must expect in normal operation (a lost lease, an execution that
 * has already finished) is a returned value and never appears here; an error means that the caller, the database or the
 * engine broke its contract.
 */

/** Every code the engine can throw, with what it means. The list is closed: adding one is a contract change. */
export const ERROR_CODES = {
  invalid_input: 'an argument is malformed; `field` names it',
  invalid_id: 'an id does not have the form {fp:N}:<uuid>',
  invalid_policy: 'a policy is malformed or out of range; `field` names it',
  invalid_capabilities: 'a capability token or list is malformed',
  payload_too_large: 'a payload, result, frame, document or batch is over its named limit',
  too_many: 'a list is longer than its named limit',
  invalid_cursor: 'a cursor is malformed or belongs to another filter',
  cursor_expired:
    'the events after a cursor are no longer kept; `oldest` is the first cursor that can be read from',
  cursor_ahead:
    'a cursor is beyond the last event: it is from another database, or this one was restored to an earlier time',
  undecodable_event: 'an event in the log is unknown to this version; the message names its position',
  idempotency_key_reused: 'an idempotency key already stands for a different request',
  key_of_another_task: 'a key names an execution of another task',
  key_not_here: 'children and members of a flow cannot have keys',
  not_found: 'nothing with this id exists',
  route_limit_reached: 'the number of distinct lane, kind and capability combinations is at its limit',
  retry_transaction: "the caller's own transaction must be rolled back and tried again; `sqlState` says why",
  isolation_unsupported: 'the operation needs READ COMMITTED and the transaction runs at another level',
  contention:
    'the database kept reporting conflicts after all tries, or a session held a row, key or id for too long; the message says which',
  unavailable: 'the database cannot be reached, is shutting down, or accepts no writes',
  no_connection: 'no connection was left: of the server, the role, or the budget of this process',
  statement_cancelled: 'the database ended a statement: a statement_timeout, or an administrator',
  database_unsupported: 'the database has an encoding or a setting that the engine cannot work with',
  schema_missing: 'the schema has not been migrated',
  schema_newer: 'the database was migrated by newer code that this version cannot work with',
  schema_drift: 'an applied migration differs from the file of the same number',
  permission_denied: 'the database role lacks a right the engine needs',
  embedded_unavailable: 'no Postgres could be started on this machine',
  database_error: 'the database refused a statement for another reason; `sqlState` names it',
  invalid_token:
    'a token is malformed, not for this, or no longer valid; the message does not tell which, since a stranger may be asking',
  signing_not_configured: 'tokens need a signing secret, and this process has none, or not the one in use',
  cycle: 'edges of a flow form a cycle; the message names its members',
  not_a_member: 'an execution is not a member of the flow, or is a member of another one',
  flow_ended: 'the flow has finished or is being cancelled, and can no longer change',
  flow_sealed: 'the flow is sealed: only its own running members may extend it',
  stale_revision: 'the graph of the flow has changed since the expected revision',
  join_fixed: 'the join of a member can no longer change, because edges lead to it',
  already_started: 'what has begun, or whose join is decided, cannot wait for anything more',
  execution_ended: 'the execution, or its run, ended before it replied to a request',
  no_reply: 'no reply to a request arrived within its timeout; a request with the same id waits again',
  lease_lost: 'the lease the call was made under is gone',
  invalid_step: 'a step is used in a way that cannot be stored; the message says how to write it',
  closed: 'the engine or worker was closed',
  invariant_broken: 'stored state contradicts itself; nothing was written; please report it',
} as const;

/** The code of an EngineError; see `ERROR_CODES`. */
export type ErrorCode = keyof typeof ERROR_CODES;

/** The details of an EngineError besides its code and message. */
export interface EngineErrorDetail {
  /** The argument at fault, as a path into the request, for example `items[3].payload`. */
  field?: string;
  /** SQLSTATE of the database error behind this one. */
  sqlState?: string;
  /** With `cursor_expired`: the first cursor that can still be read from. */
  oldest?: string;
  /** The error that caused this one. Do not show it to users: it may quote data. */
  cause?: unknown;
}

/** The one error class of the engine. Branch on `code`; the message is for people. */
export class EngineError extends Error {
  override readonly name = 'EngineError';
  readonly code: ErrorCode;
  // Declared only: a detail that was not given does not appear where the error is printed.
  declare readonly field: string | undefined;
  declare readonly sqlState: string | undefined;
  declare readonly oldest: string | undefined;

  constructor(code: ErrorCode, message: string, { cause, ...detail }: EngineErrorDetail = {}) {
    super(message, cause === undefined ? undefined : { cause });
    this.code = code;
    Object.assign(this, detail);
  }
}

/**
 * No connection was free within `LIMITS.connectionWaitMs`. A class of its own because retrying at once would only wait
 * as long again.
 */
export class ConnectionWaitOver extends EngineError {
  constructor(message: string) {
    super('no_connection', message);
  }
}

/** Whether a value is an EngineError, including one from another copy of this package. */
export function isEngineError(value: unknown): value is EngineError {
  return value instanceof Error && value.name === 'EngineError' && 'code' in value;
}

/** Whether an error is a temporary problem with the whole database, not with the request. */
export function isPassingTrouble(error: unknown): boolean {
  return isEngineError(error) && PASSING.includes(error.code);
}

/** Whether a long-running loop should wait for the problem to pass. Excludes `closed`: a closed engine stays closed. */
export function isOutage(error: unknown): error is EngineError {
  return isPassingTrouble(error) && (error as EngineError).code !== 'closed';
}

const PASSING: readonly ErrorCode[] = [
  'unavailable',
  'no_connection',
  'statement_cancelled',
  'contention',
  'closed',
  'schema_missing',
  'permission_denied',
];

/** How an execution finished that did not succeed. */
export interface UnsuccessfulEnd {
  outcome: 'failed' | 'cancelled' | 'expired' | 'skipped';
  message: string | null;
  category: string | null;
  by: string | null;
}

/** Thrown where the result of an execution is awaited and it did not succeed. `end` has its outcome. */
export class ExecutionFailed extends Error {
  override readonly name = 'ExecutionFailed';
  readonly executionId: string;
  readonly end: UnsuccessfulEnd;

  constructor(executionId: string, end: UnsuccessfulEnd) {
    super(`${executionId} ended as ${end.outcome}${end.message === null ? '' : `: ${end.message}`}`);
    this.executionId = executionId;
    this.end = end;
  }
}
