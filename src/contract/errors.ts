/**
 * The errors the engine throws. A refusal that a caller is expected to meet in normal life (a lost lease, an
 * execution that already ended) is a value and never appears here; an error means that a promise was broken,
 * by the caller, by the database or by us.
 */

/** Every code the engine can throw, with what it means. The list is closed: adding one is a contract change. */
export const ERROR_CODES = {
  invalid_input: 'an argument is malformed; `field` names it',
  invalid_id: 'an id does not have the form {fp:N}:<uuid>',
  invalid_policy: 'a policy is malformed or out of range; `field` names it',
  invalid_capabilities: 'a capability token or list is malformed',
  payload_too_large: 'a payload, result or batch is over its named limit',
  too_many: 'a list is longer than its named limit',
  invalid_cursor: 'a cursor is malformed or belongs to another filter',
  cursor_expired:
    'the events after a cursor are no longer kept; `oldest` is the first cursor that can be read from',
  cursor_ahead:
    'a cursor is beyond the last event: it is of another database, or this one was restored to an earlier time',
  undecodable_event: 'an event in the log is not one this version knows; the message names its position',
  idempotency_key_reused: 'an idempotency key already stands for a request that differs from this one',
  not_found: 'the thing named by the id does not exist',
  route_limit_reached: 'the number of distinct lane, kind and capability combinations is at its limit',
  retry_transaction: "the caller's own transaction must be rolled back and tried again; `sqlState` says why",
  isolation_unsupported: 'the operation needs READ COMMITTED and the transaction runs at another level',
  contention:
    'the database kept reporting conflicts after all tries, or a session holds a row, key or id for too long; the message says which',
  unavailable: 'the database cannot be reached, is shutting down, or accepts no writes',
  no_connection: 'no connection was left: of the server, the role, or the budget of this process',
  statement_cancelled: 'the database ended a statement: a statement_timeout, or an administrator',
  database_unsupported: 'the database has an encoding or a setting that the engine cannot work with',
  schema_missing: 'the schema has not been migrated',
  schema_newer: 'the database was migrated by newer code that this version cannot work with',
  schema_drift: 'an applied migration differs from the file of the same number',
  permission_denied: 'the database role lacks a right the engine needs',
  embedded_unavailable: 'no Postgres could be started on this machine',
  database_error: 'the database refused a statement for a reason of its own; `sqlState` names it',
  invalid_token:
    'a token is not one, is not for this, or is no longer good; nothing more is said, since a stranger may be asking',
  signing_not_configured: 'tokens need a signing secret, and this process has none, or not the one in use',
  cycle: 'edges of a flow lead in a circle; the message names its members',
  not_a_member: 'an execution is not a member of the flow, or of another one',
  flow_ended: 'the flow has ended or is being cancelled, and cannot change any more',
  flow_sealed: 'the flow is sealed: only its own running members may extend it',
  stale_revision: 'the graph of the flow has changed since the revision that was expected',
  join_fixed: 'the join of a member cannot change any more, because edges lead to it',
  already_started: 'what has begun, or been decided on, cannot wait for anything more',
  lease_lost: 'the lease the call was made under is gone',
  invalid_step: 'a step is used in a way that cannot be remembered; the message says how to write it',
  closed: 'the engine or worker was closed',
  invariant_broken: 'stored state contradicts itself; nothing was written; please report it',
} as const;

/** What is wrong, for programs. */
export type ErrorCode = keyof typeof ERROR_CODES;

/** What an error says besides its code and message. */
export interface EngineErrorDetail {
  /** The argument at fault, as a path into the request, for example `items[3].payload`. */
  field?: string;
  /** SQLSTATE of the database error behind this one. */
  sqlState?: string;
  /** With `cursor_expired`: where the feed begins now. */
  oldest?: string;
  /** Error that caused this one. Never shown to users as text: it may quote data. */
  cause?: unknown;
}

/** The one error class of the engine. Branch on `code`; the message is for people. */
export class EngineError extends Error {
  override readonly name = 'EngineError';
  readonly code: ErrorCode;
  readonly field: string | undefined;
  readonly sqlState: string | undefined;
  readonly oldest: string | undefined;

  constructor(code: ErrorCode, message: string, detail: EngineErrorDetail = {}) {
    super(message, detail.cause === undefined ? undefined : { cause: detail.cause });
    this.code = code;
    this.field = detail.field;
    this.sqlState = detail.sqlState;
    this.oldest = detail.oldest;
  }
}

/** No connection, after as long a wait as there is for one (`LIMITS.connectionWaitMs`): asking again at once would only take as long again. */
export class ConnectionWaitOver extends EngineError {
  constructor(message: string) {
    super('no_connection', message);
  }
}

/** True for an EngineError, also one made by another copy of this package. */
export function isEngineError(value: unknown): value is EngineError {
  return value instanceof Error && value.name === 'EngineError' && 'code' in value;
}

/** True for trouble with the database as a whole, which passes: what was asked for is not at fault. */
export function isPassingTrouble(error: unknown): boolean {
  return isEngineError(error) && PASSING.includes(error.code);
}

/** The same, where whatever runs for long waits until it is over: an engine that was closed does not open again. */
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

/** How an execution ended that did not succeed. */
export interface UnsuccessfulEnd {
  outcome: 'failed' | 'cancelled' | 'expired' | 'skipped';
  message: string | null;
  category: string | null;
  by: string | null;
}

/** Thrown to whoever asks for the result of an execution that has none. */
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
