/**
 * The keys that tokens are signed with: which one signs, which verify, and the functions that change that. Only
 * statements, no decisions.
 */
import type { SigningKey } from '../../contract/signals.ts';
import { columns, inSchema, type RowOf } from '../database/columns.ts';
import { run, type Database } from '../database/database.ts';
import type { TokenContent } from './tokens.ts';

/** A key's id, and the print that identifies its secret. */
export type KeyName = Pick<TokenContent, 'kid'> & { print: string };

const KEY = columns<KeyName & Omit<SigningKey, 'state' | 'secret'> & { nowMs: number }>({
  kid: 'kid',
  print: 'secret_print',
  createdAtMs: 'created_at_ms',
  verifiesUntilMs: 'verify_until_ms',
  revokedAtMs: 'revoked_at_ms',
  nowMs: 's.ff_now_ms()',
});

export function listKeys(database: Database): Promise<RowOf<typeof KEY>[]> {
  return run(database, {
    doing: 'listing signing keys',
    columns: KEY,
    text: inSchema(
      database,
      `SELECT ${KEY.list} FROM s.ff_signing_key ORDER BY created_at_ms DESC, kid LIMIT 1000`,
    ),
    params: [],
    repeatable: 'yes',
  });
}

const CURRENT = columns<KeyName>({ kid: 'kid', print: 'secret_print' });

/** Returns the key that signs; the offered one becomes it when there is none. */
export async function currentKey(database: Database, offered: KeyName, tokenMs: number): Promise<KeyName> {
  const rows = await run(database, {
    doing: 'finding the signing key',
    columns: CURRENT,
    text: `SELECT ${CURRENT.list} FROM ${database.prefix}ff_current_key($1::text, $2::text, $3::bigint)`,
    params: [offered.kid, offered.print, tokenMs],
    repeatable: 'yes',
  });
  return rows[0]!;
}

/** Not repeatable: a second rotation would make one key too many. */
export async function rotateKey(
  database: Database,
  made: KeyName,
  graceMs: number | null,
  forgetMs: number,
): Promise<string | null> {
  const rows = await run<{ previous: string | null }>(database, {
    doing: 'rotating the signing key',
    text: `SELECT ${database.prefix}ff_rotate_key($1::text, $2::text, $3::bigint, $4::bigint) AS previous`,
    params: [made.kid, made.print, graceMs, forgetMs],
    repeatable: 'no',
  });
  return rows[0]!.previous;
}

export async function revokeKey(database: Database, kid: string): Promise<string> {
  const rows = await run<{ outcome: string }>(database, {
    doing: 'revoking a signing key',
    text: `SELECT ${database.prefix}ff_revoke_key($1::text) AS outcome`,
    params: [kid],
    repeatable: 'yes',
  });
  return rows[0]!.outcome;
}

/** Whether tokens of a key are valid now. */
export async function keyVerifies(database: Database, kid: string, print: string): Promise<boolean> {
  const rows = await run<{ verifies: boolean }>(database, {
    doing: 'checking a signing key',
    text: `SELECT ${database.prefix}ff_key_verifies($1::text, $2::text) AS verifies`,
    params: [kid, print],
    repeatable: 'yes',
  });
  return rows[0]!.verifies;
}
