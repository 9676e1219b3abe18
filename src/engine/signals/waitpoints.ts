/**
 * Waitpoints before and while they are waited at: opening one, tokens for it, and lists of those that are open. Lists show the
 * fingerprints of tokens, never tokens.
 */
import { randomUUID } from 'node:crypto';
import { EngineError } from '../../contract/errors.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import { formatExecutionId, isUuid, parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import type {
  CreateWaitpointOutcome,
  IssuedToken,
  PendingWaitpoint,
  TokenRequest,
  Waitpoint,
  WaitpointListRequest,
  WaitpointPage,
  WaitpointRequest,
} from '../../contract/signals.ts';
import type { ExecutionKey, LeaseKey } from '../executions/executions.sql.ts';
import {
  createWaitpoint as create,
  findWaitpoint,
  listWaitedFor,
  listWaitpointsOf,
  revokeTokens as revoke,
  type OpenWaitpoint,
  type StoredToken,
  type WaitpointAnswer,
  type WaitpointPlace,
} from './signals.sql.ts';
import { checkName, checkText, checkWhole, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { encodeJson } from '../../model/json.ts';
import { decodeText, encodeText, invalidCursor } from '../kit/cursor-text.ts';
import { checkChoice, checkMembers } from '../kit/settings.ts';
import { checkPayload, checkPayloadSchema } from './payload-schema.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';
import { signingKey } from './signing-keys.ts';
import { checkSource } from './signals.ts';
import { refuseFault } from './suspend.ts';
import { bondText, fingerprintOf, linkWith, type TokenBond } from './tokens.ts';

const DEFAULT_PAGE = 100;

export async function createWaitpoint(
  context: EngineContext,
  lease: LeaseRef,
  request: WaitpointRequest,
): Promise<CreateWaitpointOutcome> {
  checkMembers(request, 'request', ['name', 'expiresInMs', 'schema']);
  const name = checkName(request.name, 'request.name', LIMITS.waitpointNameBytes);
  const expiresInMs = checkExpiry(request.expiresInMs);
  const schema = checkPayloadSchema(request.schema, 'request.schema');
  const key = leaseKey(lease, 'lease');
  const { kid } = await signingKey(context, expiresInMs);
  const row = { id: randomUUID(), name, expires_in_ms: expiresInMs, kid };
  const answer = await create(
    context.database,
    key,
    schema === null ? row : { ...row, schema: JSON.parse(schema) as unknown },
    LIMITS.waitpoints,
  );
  if (answer.outcome !== 'created') {
    refuseFault(answer.outcome);
    return toRefusal(answer);
  }
  return { outcome: 'created', waitpoint: toWaitpoint(context, key, name, answer) };
}

/** The token is made again from what is stored of it: the same one, as long as it is good. */
function toWaitpoint(
  context: EngineContext,
  key: LeaseKey,
  name: string,
  answer: WaitpointAnswer,
): Waitpoint {
  const { waitpointId, createdAtMs, expiresAtMs } = answer;
  const token = tokenOf(context, key, answer);
  if (token === undefined || expiresAtMs === null)
    throw new EngineError('invalid_step', `The waitpoint ${name} is closed: its wait is over.`, {
      field: 'name',
    });
  const executionId = formatExecutionId(key.partition, key.uuid);
  return { waitpointId, executionId, name, createdAtMs, token, tokenExpiresAtMs: expiresAtMs };
}

/** The token made with a waitpoint; undefined when there is none any more. */
function tokenOf(
  { signing }: EngineContext,
  { uuid, partition }: ExecutionKey,
  { kid, print, waitpointUuid, expiresAtMs }: StoredToken,
): string | undefined {
  if (kid === null || print === null || expiresAtMs === null) return undefined;
  const claims = { kid, partition, executionUuid: uuid, waitpointUuid, expiresAtMs, bond: {} };
  return signing.sign(claims, print);
}

export async function issueToken(
  context: EngineContext,
  executionId: string,
  waitpoint: string,
  request: TokenRequest = {},
): Promise<IssuedToken> {
  checkMembers(request, 'request', ['expiresInMs', 'source', 'signal', 'use', 'linkTo']);
  checkChoice(request.use, 'request.use', ['once', 'many']);
  const expiresInMs = checkExpiry(request.expiresInMs);
  const bond = bondOf(request);
  const linkTo = request.linkTo === undefined ? null : checkAddress(request.linkTo);
  const key = parseExecutionId(executionId);
  const name = checkName(waitpoint, 'waitpoint', LIMITS.waitpointNameBytes);
  const found = await findWaitpoint(context.database, key, name);
  if (found === undefined)
    throw new EngineError('not_found', `${executionId} has no open waitpoint ${name}.`, {
      field: 'waitpoint',
    });
  if (request.signal !== undefined && found.schema !== null)
    checkPayload(JSON.stringify(bond.signal!.payload), found.schema);
  const expiresAtMs = Math.min(found.nowMs + expiresInMs, found.expiresAtMs ?? Infinity);
  const { kid, print } = await signingKey(context, expiresInMs);
  const { waitpointUuid } = found;
  const claims = { kid, partition: key.partition, executionUuid: key.uuid, waitpointUuid };
  const token = context.signing.sign({ ...claims, expiresAtMs, bond }, print);
  const link = linkTo === null ? null : linkWith(linkTo, token);
  return { token, expiresAtMs, fingerprint: fingerprintOf(token), link };
}

export async function revokeTokens(
  context: EngineContext,
  executionId: string,
  waitpoint: string,
): Promise<void> {
  const name = checkName(waitpoint, 'waitpoint', LIMITS.waitpointNameBytes);
  const isFound = await revoke(context.database, parseExecutionId(executionId), name, randomUUID());
  if (!isFound)
    throw new EngineError('not_found', `${executionId} has no waitpoint ${name}.`, { field: 'waitpoint' });
}

function checkExpiry(expiresInMs: number = LIMITS.tokenDefaultMs): number {
  return checkWhole(expiresInMs, 'request.expiresInMs', 1, LIMITS.tokenMs);
}

function bondOf({ source, signal, use }: TokenRequest): TokenBond {
  if (signal !== undefined) checkMembers(signal, 'request.signal', ['name', 'payload']);
  const bond: TokenBond = {
    ...(source === undefined ? {} : { source: checkSource(source, 'request.source') }),
    ...(signal === undefined
      ? {}
      : {
          signal: {
            name: checkText(signal.name, 'request.signal.name', LIMITS.signalNameBytes),
            payload: JSON.parse(encodeJson(signal.payload ?? null, 'request.signal.payload')!) as never,
          },
        }),
    ...(use === 'once' ? { once: true } : {}),
  };
  const bytes = Buffer.byteLength(bondText(bond));
  if (bytes > LIMITS.tokenBoundBytes)
    refuse(
      'request',
      `binds ${bytes} bytes to the token; the limit is ${LIMITS.tokenBoundBytes}`,
      'payload_too_large',
    );
  return bond;
}

function checkAddress(address: string): string {
  const field = 'request.linkTo';
  const url = URL.canParse(checkText(address, field, LIMITS.linkBytes)) ? new URL(address) : undefined;
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:')
    refuse(field, 'must be an http or https address');
  return address;
}

export async function listWaitpoints(
  context: EngineContext,
  request: WaitpointListRequest = {},
): Promise<WaitpointPage> {
  checkMembers(request, 'request', ['executionId', 'limit', 'cursor']);
  const { executionId, cursor } = request;
  const limit = checkWhole(request.limit ?? DEFAULT_PAGE, 'request.limit', 1, LIMITS.listPage);
  if (executionId !== undefined) {
    if (cursor !== undefined) refuse('request.cursor', 'is of the list of all executions');
    const rows = await listWaitpointsOf(context.database, parseExecutionId(executionId));
    return { waitpoints: rows.map((row) => toPending(context, row)), cursor: null };
  }
  const after = cursor === undefined ? null : placeOf(cursor);
  const rows = await listWaitedFor(context.database, after, limit);
  const last = rows.length < limit ? undefined : rows.at(-1);
  return {
    waitpoints: rows.map((row) => toPending(context, row)),
    cursor: last === undefined ? null : encodeText(['waitpoints', last.waitingSinceMs, last.uuid, last.name]),
  };
}

function placeOf(cursor: string): WaitpointPlace {
  const [list, suspendedAtMs, uuid, name] = decodeText(cursor);
  const isPlace = typeof uuid === 'string' && isUuid(uuid) && typeof name === 'string';
  if (list !== 'waitpoints' || !Number.isSafeInteger(suspendedAtMs) || !isPlace)
    throw invalidCursor('is not of a list of waitpoints');
  return { suspendedAtMs: suspendedAtMs as number, uuid, name };
}

function toPending(context: EngineContext, row: OpenWaitpoint): PendingWaitpoint {
  const { uuid, partition, token, ...waitpoint } = row;
  return { ...waitpoint, tokenFingerprint: fingerprint(context, { uuid, partition }, token) };
}

/** Null where its secret is not configured. */
function fingerprint(context: EngineContext, key: ExecutionKey, stored: StoredToken): string | null {
  const isKnown = stored.print !== null && context.signing.knows(stored.print);
  const token = isKnown ? tokenOf(context, key, stored) : undefined;
  return token === undefined ? null : fingerprintOf(token);
}
