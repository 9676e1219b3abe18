/**
 * Translates what the driver throws into the engine's closed set of codes; conditions.ts has what each condition means.
 * Database messages can quote data, so they are kept as `cause` only and never become part of the message.
 */
import { EngineError } from '../../contract/errors.ts';
import {
  conditionOfCode,
  conditionOfMessage,
  conditionOfState,
  UNREACHABLE,
  UNREADABLE_FILE,
  type Condition,
} from './conditions.ts';

/** Libraries wrap the driver's error in one or more of their own. */
const MAX_CAUSES = 5;

/** Five characters with a digit among them; the codes of Node and of other libraries look different. */
const SQLSTATE = /^(?=.*[0-9])(?!P[0-9]{4}$)[0-9A-Z]{5}$|^P000[0-4]$/;

/** ECONNRESET, EPIPE, EAI_AGAIN …: the operating system's. */
const NODE_CODE = /^E(AI_)?[A-Z]+$/;

interface DriverError {
  code?: unknown;
  message?: unknown;
  /** Only on errors of the operating system. */
  syscall?: unknown;
  /** Only on errors of the server. */
  severity?: unknown;
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

/** The condition an error reports; undefined when the engine does not know it. */
export function conditionOf(error: unknown): Condition | undefined {
  const sqlState = sqlStateOf(error);
  if (sqlState !== undefined) return conditionOfState(sqlState, severityOf(error));
  for (const { code, message, syscall } of withCauses(error)) {
    const known = typeof code === 'string' ? conditionOfCode(code) : undefined;
    if (known !== undefined) return known;
    const byMessage = typeof message === 'string' ? conditionOfMessage(message) : undefined;
    if (byMessage !== undefined) return byMessage;
    if (syscall === 'open') return UNREADABLE_FILE;
    if (syscall !== undefined || (typeof code === 'string' && NODE_CODE.test(code))) return UNREACHABLE;
    if (typeof message === 'string' && /connection|terminated|timeout/i.test(message)) return UNREACHABLE;
  }
  return undefined;
}

function severityOf(error: unknown): string {
  for (const { severity } of withCauses(error)) if (typeof severity === 'string') return severity;
  return '';
}

/** SQLSTATEs of a lost connection, and of a server that is shutting down or starting up. */
const SERVER_LEFT = /^(08|57P0)/;
/**
 * SQLSTATEs of a transaction that was idle or open for longer than the server allows: the server closes its connection.
 */
const ENDED_BY_LIMIT = /^25P0[34]$/;
/** Driver messages for a lost connection; errors of the server itself have a SQLSTATE. */
const LOST_WORDS =
  /connection (was |has been )?(terminated|ended|closed|lost|reset|destroyed|error)|closed the connection|CONNECTION_(CLOSED|ENDED|DESTROYED)|terminating connection|not queryable/i;

/** `server`: counts only what the server itself reported, and not that a transaction exceeded a time limit. */
type LostBy = 'anything' | 'server';

/** True only if the connection broke: a statement that took too long, for example, still has its own. */
export function isConnectionLost(error: unknown, by: LostBy = 'anything'): boolean {
  const state = sqlStateOf(error);
  if (state !== undefined)
    return SERVER_LEFT.test(state) || (by === 'anything' && ENDED_BY_LIMIT.test(state));
  if (by === 'server') return false;
  for (const { code, message, syscall } of withCauses(error)) {
    if (syscall !== undefined || (typeof code === 'string' && NODE_CODE.test(code))) return true;
    if (typeof message === 'string' && LOST_WORDS.test(message)) return true;
  }
  return false;
}

/** The system's code and the address, which quote no data; empty when the error has neither. */
function addressOf(error: unknown): string {
  const { code, address, port } = error as { code?: unknown; address?: unknown; port?: unknown };
  const parts = [code, address === undefined ? undefined : `${String(address)}:${String(port)}`];
  const known = parts.filter((part) => typeof part === 'string');
  return known.length === 0 ? '' : ` (${known.join(' ')})`;
}

/** The engine's error for anything thrown while talking to the database. `doing` completes "while …". */
export function toEngineError(error: unknown, doing: string): EngineError {
  if (error instanceof EngineError) return error;
  const sqlState = sqlStateOf(error);
  const detail = { cause: error, ...(sqlState === undefined ? {} : { sqlState }) };
  const known = conditionOf(error);
  if (known !== undefined) {
    const where = sqlState === undefined ? addressOf(error) : '';
    return new EngineError(known.code, `While ${doing}: ${known.reason}${where}.`, detail);
  }
  const why =
    sqlState === undefined
      ? 'the statement failed before it reached the database; check the connection settings'
      : `the database refused the statement (${sqlState})`;
  return new EngineError('database_error', `While ${doing}: ${why}.`, detail);
}
