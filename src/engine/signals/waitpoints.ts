/**
 * Waitpoints: opening one, its tokens, and lists of open ones. Lists show fingerprints of tokens, never tokens.
 */
import { randomUUID } from 'node:crypto';
import { EngineError } from '../../contract/errors.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import { formatExecutionId, isUuid, parseExecutionId } from '../../contract/ids.ts';
import { choice, parsed, string, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, refuse, shape } from '../../contract/shape/shape.ts';
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
import type { EngineContext } from '../kit/context.ts';
import { encodeJson } from '../../model/json.ts';
import { decodeText, encodeText, invalidCursor } from '../kit/cursor-text.ts';
import { duration, msOf } from '../../contract/shape/duration.ts';
import { pageSize } from '../kit/kinds.ts';
import { checkPayload, checkPayloadSchema } from './payload-schema.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';
import { signingKey } from './signing-keys.ts';
import { signalName, signalSource, waitpointName, withType } from './signals.ts';
import { refuseFault } from './suspend.ts';
import { bondText, fingerprintOf, linkWith, type TokenBond } from './tokens.ts';

const DEFAULT_PAGE = 100;

const waitpointRequest = shape<WaitpointRequest>({
  name: waitpointName,
  expiresInMs: whole(1, LIMITS.tokenMs).optional(),
  schema: parsed.optional(),
});
const tokenRequest = shape<TokenRequest>({
  expiresIn: duration(LIMITS.tokenMs, 1).optional(),
  source: signalSource.optional(),
  signal: shape<NonNullable<TokenRequest['signal']>>({
    name: signalName,
    payload: parsed.optional(),
  }).optional(),
  use: choice(['once', 'many']).optional(),
  linkTo: string(LIMITS.linkBytes)
    .and((address) => (isWebAddress(address) ? undefined : fault('must be an http or https address')))
    .optional(),
});
const listRequest = shape<WaitpointListRequest>({
  executionId: parsed.optional(),
  limit: pageSize.optional(),
  cursor: parsed.optional(),
});

export async function createWaitpoint(
  context: EngineContext,
  lease: LeaseRef,
  request: WaitpointRequest,
): Promise<CreateWaitpointOutcome> {
  const { name, expiresInMs = LIMITS.tokenDefaultMs } = waitpointRequest.check(request, 'request');
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

/** Makes the token again from what is stored: the same token, as long as it is valid. */
function toWaitpoint(
  context: EngineContext,
  key: LeaseKey,
  name: string,
  answer: WaitpointAnswer,
): Waitpoint {
  const { waitpointId, createdAtMs, expiresAtMs } = answer;
  const token = tokenOf(context, key, answer);
  if (token === undefined || expiresAtMs === null)
    throw new EngineError('invalid_step', `The waitpoint ${name} is closed: its wait has finished.`, {
      field: 'name',
    });
  const executionId = formatExecutionId(key.partition, key.uuid);
  return { waitpointId, executionId, name, createdAtMs, token, tokenExpiresAtMs: expiresAtMs };
}

/** Returns the token issued with a waitpoint; undefined when there is none any more. */
function tokenOf(
  { signing }: EngineContext,
  { uuid, partition }: ExecutionKey,
  { kid, print, waitpointUuid, expiresAtMs }: StoredToken,
): string | undefined {
  if (kid === null || print === null || expiresAtMs === null) return undefined;
  const content = { kid, partition, executionUuid: uuid, waitpointUuid, expiresAtMs, bond: {} };
  return signing.sign(content, print);
}

export async function issueToken(
  context: EngineContext,
  executionId: string,
  waitpoint: string,
  request: TokenRequest = {},
): Promise<IssuedToken> {
  const { expiresIn = LIMITS.tokenDefaultMs, linkTo } = tokenRequest.check(request, 'request');
  const expiresInMs = msOf(expiresIn);
  const bond = bondOf(request);
  const key = parseExecutionId(executionId);
  const name = waitpointName.check(waitpoint, 'waitpoint');
  const found = await findWaitpoint(context.database, key, name);
  if (found === undefined)
    throw new EngineError('not_found', `${executionId} has no open waitpoint ${name}.`, {
      field: 'waitpoint',
    });
  if (request.signal !== undefined && found.schema !== null)
    checkPayload(JSON.stringify(bond.signal!.payload), found.schema, 'request.signal.payload');
  const expiresAtMs = Math.min(found.nowMs + expiresInMs, found.expiresAtMs ?? Infinity);
  const { kid, print } = await signingKey(context, expiresInMs);
  const { waitpointUuid } = found;
  const content = { kid, partition: key.partition, executionUuid: key.uuid, waitpointUuid };
  const token = context.signing.sign({ ...content, expiresAtMs, bond }, print);
  const link = linkTo === undefined ? null : linkWith(linkTo, token);
  return { token, expiresAtMs, fingerprint: fingerprintOf(token), link };
}

export async function revokeTokens(
  context: EngineContext,
  executionId: string,
  waitpoint: string,
): Promise<void> {
  const name = waitpointName.check(waitpoint, 'waitpoint');
  const isFound = await revoke(context.database, parseExecutionId(executionId), name, randomUUID());
  if (!isFound)
    throw new EngineError('not_found', `${executionId} has no waitpoint ${name}.`, { field: 'waitpoint' });
}

function bondOf({ source, signal, use }: TokenRequest): TokenBond {
  const bond: TokenBond = {
    ...(source === undefined ? {} : { source: withType(source) }),
    ...(signal === undefined
      ? {}
      : {
          signal: {
            name: signal.name,
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

function isWebAddress(address: string): boolean {
  return URL.canParse(address) && ['https:', 'http:'].includes(new URL(address).protocol);
}

export async function listWaitpoints(
  context: EngineContext,
  request: WaitpointListRequest = {},
): Promise<WaitpointPage> {
  const { executionId, cursor, limit = DEFAULT_PAGE } = listRequest.check(request, 'request');
  if (executionId !== undefined) {
    if (cursor !== undefined) refuse('request.cursor', 'cannot be combined with executionId');
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
    throw invalidCursor('does not belong to a list of waitpoints');
  return { suspendedAtMs: suspendedAtMs as number, uuid, name };
}

function toPending(context: EngineContext, row: OpenWaitpoint): PendingWaitpoint {
  const { uuid, partition, token, ...waitpoint } = row;
  return { ...waitpoint, tokenFingerprint: fingerprint(context, { uuid, partition }, token) };
}

/** Null when this process does not have its secret. */
function fingerprint(context: EngineContext, key: ExecutionKey, stored: StoredToken): string | null {
  const isKnown = stored.print !== null && context.signing.knows(stored.print);
  const token = isKnown ? tokenOf(context, key, stored) : undefined;
  return token === undefined ? null : fingerprintOf(token);
}
