/**
 * Translates what the driver throws into the engine's closed codes, and says which failures may be tried again.
 * Database messages can quote data, so they travel only as `cause`, never in the text of the error.
 */
import { EngineError, type ErrorCode } from '../contract/errors.ts';

const BY_SQLSTATE: Record<string, [ErrorCode, string]> = {
  FF001: ['isolation_unsupported', 'the transaction must run at READ COMMITTED'],
  FF002: ['invariant_broken', 'a write did not reach every row it had locked; nothing was written'],
  FF003: ['route_limit_reached', 'too many distinct combinations of lane, kind and capabilities'],
  FF004: ['invalid_id', 'an id names a uuid that belongs to an execution of another partition'],
  '40001': ['contention', 'the database reported a serialization conflict'],
  '40P01': ['contention', 'the database reported a deadlock'],
  '55P03': ['contention', 'a lock was not available in time'],
  '42P01': ['schema_missing', 'a table is missing; run the migrations first'],
  '42883': ['schema_missing', 'a function is missing; run the migrations first'],
  '3F000': ['schema_missing', 'the schema does not exist; run the migrations first'],
  '42501': ['permission_denied', 'the database role lacks a right; migrate with grantTo set to it'],
  '22P05': ['invalid_input', 'text holds the character \\u0000, which Postgres cannot store'],
  '22021': ['invalid_input', 'text holds bytes that are not valid UTF-8'],
  '28P01': ['permission_denied', 'the database refused the password'],
  '28000': ['permission_denied', 'the database refused the role'],
  '3D000': ['unavailable', 'the database named in the URL does not exist'],
};

/** Connection gone, server starting, stopping or full: the statement may or may not have happened. */
const UNREACHABLE = /^(08|53|57P0|58)/;

const UNREACHABLE_NODE = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ENOTFOUND',
  'EHOSTUNREACH',
  'EAI_AGAIN',
]);

export function sqlStateOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === 'string' && /^[0-9A-Z]{5}$/.test(code) ? code : undefined;
}

function isUnreachable(error: unknown): boolean {
  const state = sqlStateOf(error);
  if (state !== undefined) return UNREACHABLE.test(state);
  const node = error as { code?: unknown; message?: unknown; errors?: unknown[] };
  if (typeof node.code === 'string') return UNREACHABLE_NODE.has(node.code);
  return typeof node.message === 'string' && /connection|terminated|timeout/i.test(node.message);
}

/** The engine's error for anything thrown while talking to the database. `doing` completes "while …". */
export function toEngineError(error: unknown, doing: string): EngineError {
  if (error instanceof EngineError) return error;
  const sqlState = sqlStateOf(error);
  const known = sqlState === undefined ? undefined : BY_SQLSTATE[sqlState];
  const detail = { cause: error, ...(sqlState === undefined ? {} : { sqlState }) };
  if (known !== undefined) return new EngineError(known[0], `While ${doing}: ${known[1]}.`, detail);
  if (isUnreachable(error)) {
    return new EngineError('unavailable', `While ${doing}: the database could not be reached.`, detail);
  }
  return new EngineError(
    'database_error',
    `While ${doing}: the database refused the statement (${sqlState ?? 'no SQLSTATE'}).`,
    detail,
  );
}
