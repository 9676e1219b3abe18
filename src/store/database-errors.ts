/**
 * Translates what the driver throws into the engine's closed codes, and says which failures may be tried again.
 * Database messages can quote data, so they travel only as `cause`, never in the text of the error.
 */
import { EngineError, type ErrorCode } from '../contract/errors.ts';
import { LIMITS } from '../contract/limits.ts';

const BY_SQLSTATE: Record<string, [ErrorCode, string]> = {
  FF001: ['isolation_unsupported', 'the transaction must run at READ COMMITTED'],
  FF002: ['invariant_broken', 'a write did not reach every row it had locked; nothing was written'],
  FF003: [
    'route_limit_reached',
    `${LIMITS.routes} distinct combinations of lane, kind and capabilities are in use, which is the limit; those out of use are forgotten about a day after the last submit, once nothing is kept of what they ran. Keep results for less long, or use fewer lanes: tell tenants apart by namespace or tag`,
  ],
  FF004: ['invalid_id', 'an id names a uuid that belongs to an execution of another partition'],
  FF005: [
    'idempotency_key_reused',
    'an idempotency key already stands for a request that differs from this one',
  ],
  FF007: [
    'invalid_step',
    'the handler of a consumer ended its transaction itself; leave COMMIT and ROLLBACK to the consumer',
  ],
  FF006: [
    'invariant_broken',
    'positions were asked for in a way that could lose events; nothing was written',
  ],
  FF008: ['invalid_input', 'a change of a flow was refused'],
  '40001': ['contention', 'the database reported a serialization conflict'],
  '40P01': ['contention', 'the database reported a deadlock'],
  '55P03': ['contention', 'a lock was not available in time'],
  '42P01': ['schema_missing', 'a table is missing; run the migrations first'],
  '42883': ['schema_missing', 'a function is missing; run the migrations first'],
  '3F000': ['schema_missing', 'the schema does not exist; run the migrations first'],
  '42501': ['permission_denied', 'the database role lacks a right; migrate with grantTo set to it'],
  '22P05': ['invalid_input', 'text holds the character \\u0000, which Postgres cannot store'],
  '22021': ['invalid_input', 'text holds bytes that are not valid UTF-8'],
  '25P02': ['retry_transaction', 'the transaction had already failed; roll it back'],
  '28P01': ['permission_denied', 'the database refused the password'],
  '28000': ['permission_denied', 'the database refused the role'],
  '53100': ['unavailable', 'the database has no disk space left'],
  '3D000': ['unavailable', 'the database named in the URL does not exist'],
};

/**
 * Connection gone, server starting, stopping, full or read-only, statement cancelled or timed out: what was asked for
 * is not at fault, and it may or may not have happened.
 */
const UNREACHABLE = /^(08|53|57P0|57014|58|25006|25P03|25P04)/;

/** Libraries wrap the driver's error in one or more of their own. */
const MAX_CAUSES = 5;

/** Five characters with a digit among them; Node's own codes and those of other libraries have another form. */
const SQLSTATE = /^(?=.*[0-9])(?!P[0-9]{4}$)[0-9A-Z]{5}$|^P000[0-4]$/;

/** ECONNRESET, EPIPE, EAI_AGAIN …: the operating system's. */
const NODE_CODE = /^E(AI_)?[A-Z]+$/;

interface DriverError {
  code?: unknown;
  message?: unknown;
  /** Only on errors of the operating system. */
  syscall?: unknown;
}

function* withCauses(error: unknown): Generator<DriverError> {
  let current: unknown = error;
  for (let depth = 0; depth < MAX_CAUSES && typeof current === 'object' && current !== null; depth += 1) {
    yield current;
    current = (current as { cause?: unknown }).cause;
  }
}

export function sqlStateOf(error: unknown): string | undefined {
  for (const { code, syscall } of withCauses(error)) {
    if (typeof code === 'string' && syscall === undefined && SQLSTATE.test(code)) return code;
  }
  return undefined;
}

function isUnreachable(error: unknown): boolean {
  const state = sqlStateOf(error);
  if (state !== undefined) return UNREACHABLE.test(state);
  for (const { code, message, syscall } of withCauses(error)) {
    if (syscall !== undefined || (typeof code === 'string' && NODE_CODE.test(code))) return true;
    if (typeof message === 'string' && /connection|terminated|timeout/i.test(message)) return true;
  }
  return false;
}

/** The system's code and the address, which quote no data; empty when the error does not say. */
function placeOf(error: unknown): string {
  const { code, address, port } = error as { code?: unknown; address?: unknown; port?: unknown };
  const parts = [code, address === undefined ? undefined : `${String(address)}:${String(port)}`];
  const known = parts.filter((part) => typeof part === 'string');
  return known.length === 0 ? '' : ` (${known.join(' ')})`;
}

/** The engine's error for anything thrown while talking to the database. `doing` completes "while …". */
export function toEngineError(error: unknown, doing: string): EngineError {
  if (error instanceof EngineError) return error;
  const sqlState = sqlStateOf(error);
  const known = sqlState === undefined ? undefined : BY_SQLSTATE[sqlState];
  const detail = { cause: error, ...(sqlState === undefined ? {} : { sqlState }) };
  if (known !== undefined) return new EngineError(known[0], `While ${doing}: ${known[1]}.`, detail);
  if (isUnreachable(error)) {
    const where = placeOf(error);
    return new EngineError(
      'unavailable',
      `While ${doing}: the database could not be reached${where}.`,
      detail,
    );
  }
  const why =
    sqlState === undefined
      ? 'the statement failed before it reached the database; check the connection settings'
      : `the database refused the statement (${sqlState})`;
  return new EngineError('database_error', `While ${doing}: ${why}.`, detail);
}
