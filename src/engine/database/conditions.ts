/**
 * Every database condition that the engine explains: by SQLSTATE, by the code of a TLS failure, or, failing those, by
 * the driver's message. Each row has the error code, the reason with its remedy, and whether the statement is retried
 * before the caller gets the error.
 */
import type { ErrorCode } from '../../contract/errors.ts';
import { LIMITS } from '../../contract/limits.ts';

/**
 * `conflict`: at once, because nothing happened. `outage`: for some seconds, as long as a restart takes. `briefly`: a
 * few times, because it may pass in a moment. `never`: the next try would fail in the same way. `outage` and `briefly`
 * apply only to statements that may safely happen twice.
 */
export type Retry = 'conflict' | 'outage' | 'briefly' | 'never';

export interface Condition {
  code: ErrorCode;
  /** Completes a sentence: what is wrong, and what to do about it. */
  reason: string;
  retry: Retry;
}

function condition(code: ErrorCode, reason: string, retry: Retry = 'never'): Condition {
  return { code, reason, retry };
}

const OURS: Record<string, Condition> = {
  FF001: condition('isolation_unsupported', 'the transaction must run at READ COMMITTED'),
  FF002: condition('invariant_broken', 'a write did not reach every row it had locked; nothing was written'),
  FF003: condition(
    'route_limit_reached',
    `the limit of ${LIMITS.routes} distinct combinations of lane, kind and capabilities is reached; unused ones are forgotten about a day after their last submit, once none of their executions are kept. Shorten retention or use fewer lanes; separate tenants by namespace or tag instead`,
  ),
  FF004: condition(
    'invalid_id',
    'an id has the uuid of an execution in another partition, or a child is not in the partition of its parent',
  ),
  FF005: condition('idempotency_key_reused', 'an idempotency key was already used for a different request'),
  FF006: condition(
    'invariant_broken',
    'assigning positions in this way could lose events; nothing was written',
  ),
  FF007: condition(
    'invalid_step',
    'a COMMIT or ROLLBACK inside the transaction ended it, so nothing was recorded; leave COMMIT and ROLLBACK to the code that began it',
  ),
  FF009: condition('key_of_another_task', 'a key names an execution of another task'),
  FF008: condition('invalid_input', 'a change of a flow was refused'),
};

const STATEMENTS: Record<string, Condition> = {
  '22P05': condition('invalid_input', 'a string contains the character \\u0000, which Postgres cannot store'),
  '22021': condition('invalid_input', 'a string contains bytes that are not valid UTF-8'),
  '25P02': condition('retry_transaction', 'the transaction had already failed; roll it back'),
  '40001': condition('contention', 'the database reported a serialization conflict', 'conflict'),
  '40P01': condition('contention', 'the database reported a deadlock', 'conflict'),
  '55P03': condition('contention', 'a lock was not available in time', 'conflict'),
  '57014': condition(
    'statement_cancelled',
    'the statement was cancelled: it exceeded the statement_timeout of the role or the database, or an administrator cancelled it; raise the timeout with ALTER ROLE … SET statement_timeout',
  ),
};

const RIGHTS: Record<string, Condition> = {
  '28P01': condition(
    'permission_denied',
    'the database refused the password; check the one in the URL, or set it with ALTER ROLE … PASSWORD',
  ),
  '28000': condition(
    'permission_denied',
    'the database refused the role: it does not exist, may not log in, or is not allowed from this host by pg_hba.conf (which may require TLS: sslmode=require)',
  ),
  '42501': condition(
    'permission_denied',
    'the database role lacks a privilege; migrate with grantTo set to it',
  ),
  '42P01': condition('schema_missing', 'a table is missing; run the migrations first'),
  '42883': condition('schema_missing', 'a function is missing; run the migrations first'),
  '3F000': condition('schema_missing', 'the schema does not exist; run the migrations first'),
};

/** Not caused by the statement itself, which may have happened unless the server reports that it refused it. */
const OUTAGES: Record<string, Condition> = {
  '25006': condition(
    'unavailable',
    'the server accepts no writes: it is a standby, or default_transaction_read_only is on; connect to the primary, or turn the setting off for the role',
    'briefly',
  ),
  '25P03': condition(
    'unavailable',
    'the database ended a transaction that was idle for longer than idle_in_transaction_session_timeout; raise the timeout for the role',
    'outage',
  ),
  '25P04': condition(
    'unavailable',
    'the database ended a transaction that took longer than transaction_timeout; raise the timeout for the role',
    'briefly',
  ),
  '3D000': condition(
    'unavailable',
    'the database named in the URL does not exist; check the name, or create it',
  ),
  '53100': condition('unavailable', 'the disk of the database is full; free some space', 'briefly'),
  '53200': condition('unavailable', 'the server is out of memory', 'briefly'),
  '53300': condition(
    'no_connection',
    'no connection is left for this role (max_connections of the server, or CONNECTION LIMIT of the role or the database); raise the limit, or lower poolSize (flowfabric doctor shows how many connections a process needs)',
    'briefly',
  ),
  '55000': condition(
    'unavailable',
    'the database does not accept connections (ALTER DATABASE … ALLOW_CONNECTIONS)',
  ),
  '57P01': condition(
    'unavailable',
    'the server is shutting down, or an administrator ended the connection',
    'outage',
  ),
  '57P02': condition('unavailable', 'the server crashed and is recovering', 'outage'),
  '57P03': condition('unavailable', 'the server is starting up or shutting down', 'outage'),
  '57P04': condition('unavailable', 'the database was dropped', 'outage'),
  '57P05': condition(
    'unavailable',
    'the server ended a connection that was idle for longer than idle_session_timeout',
    'outage',
  ),
};

/** Explained by class only: lost connections, exhausted resources, system errors of the server. */
const CLASSES: readonly [RegExp, Condition][] = [
  [/^08/, condition('unavailable', 'the connection to the database was lost', 'outage')],
  [/^53/, condition('unavailable', 'the server has run out of a resource', 'briefly')],
  [/^58/, condition('unavailable', 'the server reported a system error', 'outage')],
];

const UNTRUSTED = condition(
  'unavailable',
  'the certificate of the server is not signed by an authority this process trusts; add sslrootcert=FILE with the certificate of that authority to the URL, or turn verification off with sslmode=no-verify',
);

/** Codes of Node and OpenSSL for a failed handshake. */
const TLS: Record<string, Condition> = {
  DEPTH_ZERO_SELF_SIGNED_CERT: UNTRUSTED,
  SELF_SIGNED_CERT_IN_CHAIN: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT: UNTRUSTED,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNTRUSTED,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNTRUSTED,
  CERT_HAS_EXPIRED: condition('unavailable', 'the certificate of the server has expired; renew it'),
  CERT_NOT_YET_VALID: condition(
    'unavailable',
    'the certificate of the server is not valid yet; check the clock of this host',
  ),
  ERR_TLS_CERT_ALTNAME_INVALID: condition(
    'unavailable',
    'the certificate of the server does not match the host in the URL; use the name in the certificate',
  ),
};
const TLS_CODE = /^(ERR_SSL_|ERR_TLS_|ERR_OSSL_|EPROTO$)/;
const TLS_FAILED = condition('unavailable', 'the TLS handshake with the server failed');

/** The driver's own errors have no code. */
const BY_MESSAGE: readonly [RegExp, Condition][] = [
  [
    /does not support SSL/,
    condition(
      'unavailable',
      'the URL requires TLS and the server does not offer it; set ssl = on at the server, or sslmode=disable in the URL',
    ),
  ],
  [
    /timeout exceeded when trying to connect/,
    condition(
      'no_connection',
      'no connection of the pool became free in time: slow or unanswered statements occupy them all; raise poolSize',
    ),
  ],
  [
    /password must be a string/,
    condition('permission_denied', 'the server requires a password, and the URL has none'),
  ],
];

const BY_SQLSTATE: Record<string, Condition> = { ...OURS, ...STATEMENTS, ...RIGHTS, ...OUTAGES };

/** A fatal error ends the connection, whatever its reason. */
const ENDED = condition('unavailable', 'the server refused or ended the connection', 'briefly');
const FATAL = new Set(['FATAL', 'PANIC']);
/** These mean something else when they are not fatal. */
const ONLY_FATAL = new Set(['55000']);

export function conditionOfState(sqlState: string, severity: string): Condition | undefined {
  const isFatal = FATAL.has(severity);
  const known = BY_SQLSTATE[sqlState] ?? CLASSES.find(([pattern]) => pattern.test(sqlState))?.[1];
  if (known !== undefined && (isFatal || !ONLY_FATAL.has(sqlState))) return known;
  return isFatal ? ENDED : undefined;
}

export function conditionOfCode(code: string): Condition | undefined {
  return TLS[code] ?? (TLS_CODE.test(code) ? TLS_FAILED : undefined);
}

export function conditionOfMessage(message: string): Condition | undefined {
  return BY_MESSAGE.find(([pattern]) => pattern.test(message))?.[1];
}

/** The file is read for each connection, possibly while it is being replaced. */
export const UNREADABLE_FILE = condition(
  'unavailable',
  'a file named in the URL (sslrootcert, sslcert or sslkey) cannot be read; check its path and permissions',
  'briefly',
);
export const UNREACHABLE = condition('unavailable', 'the database could not be reached', 'outage');
