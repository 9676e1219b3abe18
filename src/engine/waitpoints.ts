/**
 * Waitpoints before and while they are waited at: opening one, tokens for it, and lists of those that are open. Lists show the
 * fingerprints of tokens, never tokens.
 */
import { randomUUID } from 'node:crypto';
import { EngineError } from '../contract/errors.ts';
import type { LeaseRef } from '../contract/engine.ts';
import { formatExecutionId, isUuid, parseExecutionId } from '../contract/ids.ts';
import { LIMITS } from '../contract/limits.ts';
import type {
  CreateWaitpointOutcome,
  IssuedToken,
  PendingWaitpoint,
  SignalCondition,
  TokenRequest,
  WaitpointListRequest,
  WaitpointPage,
  WaitpointRequest,
  WaitReason,
} from '../contract/signals.ts';
import type { BlockingReason } from '../contract/states.ts';
import { leavesOf } from '../model/conditions.ts';
import {
  createWaitpoint as create,
  findWaitpoint,
  listWaitedFor,
  listWaitpointsOf,
  type OpenWaitpoint,
  type SuspensionPlace,
} from '../store/signals.ts';
import { checkName, checkText, checkWhole, refuse } from './checks.ts';
import type { EngineContext } from './context.ts';
import { encodeJson } from './json.ts';
import { decodeText, encodeText, invalidCursor } from './list-cursor.ts';
import { checkChoice, checkMembers } from './members.ts';
import { checkPayloadSchema } from './payload-schema.ts';
import { leaseKey, toRefusal } from './refusals.ts';
import { signingKey } from './signing-keys.ts';
import { checkSource } from './signals.ts';
import { refuseFault } from './suspend.ts';
import { bondText, fingerprintOf, linkWith, type TokenBond, type TokenClaims } from './tokens.ts';

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
  const { kid } = await signingKey(context);
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
  const { token, expiresAtMs } = await makeToken(context, key, answer.waitpoint_id, {
    expiresAtMs: answer.token_expires_at_ms ?? answer.created_at_ms + expiresInMs,
    bond: {},
  });
  return {
    outcome: 'created',
    waitpoint: {
      waitpointId: answer.waitpoint_id,
      executionId: formatExecutionId(key.partition, key.uuid),
      name,
      createdAtMs: answer.created_at_ms,
      token,
      tokenExpiresAtMs: expiresAtMs,
    },
  };
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
  const expiresAtMs = found.now_ms + expiresInMs;
  const { token } = await makeToken(context, key, found.waitpoint_id, { expiresAtMs, bond });
  const link = linkTo === null ? null : linkWith(linkTo, token);
  return { token, expiresAtMs, fingerprint: fingerprintOf(token), link };
}

async function makeToken(
  context: EngineContext,
  { uuid: executionUuid, partition }: { uuid: string; partition: number },
  waitpointUuid: string,
  { expiresAtMs, bond }: Pick<TokenClaims, 'expiresAtMs' | 'bond'>,
): Promise<{ token: string; expiresAtMs: number }> {
  const { kid, print } = await signingKey(context);
  const claims = { kid, partition, executionUuid, waitpointUuid, expiresAtMs, bond };
  return { token: context.signing.sign(claims, print), expiresAtMs };
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
  const url = URL.canParse(address) ? new URL(address) : undefined;
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:')
    refuse('request.linkTo', 'must be an http or https address');
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
  const { rows, last } = await listWaitedFor(context.database, after, limit);
  return {
    waitpoints: rows.map((row) => toPending(context, row)),
    cursor: last === null ? null : encodeText(['waitpoints', last.suspendedAtMs, last.uuid]),
  };
}

function placeOf(cursor: string): SuspensionPlace {
  const [list, suspendedAtMs, uuid] = decodeText(cursor);
  if (
    list !== 'waitpoints' ||
    !Number.isSafeInteger(suspendedAtMs) ||
    typeof uuid !== 'string' ||
    !isUuid(uuid)
  )
    throw invalidCursor('is not of a list of waitpoints');
  return { suspendedAtMs: suspendedAtMs as number, uuid };
}

const REASONS: Partial<Record<BlockingReason, WaitReason>> = {
  waiting_for_signal: 'signal',
  waiting_for_approval: 'approval',
  waiting_for_callback: 'callback',
  waiting_for_tool_result: 'tool_result',
  paused_by_operator: 'review',
};

function toPending(context: EngineContext, row: OpenWaitpoint): PendingWaitpoint {
  const isWaiting = row.suspended_at_ms !== null;
  return {
    executionId: formatExecutionId(row.partition_key, row.execution_id),
    kind: row.kind,
    lane: row.lane,
    namespace: row.namespace,
    waitpointId: row.waitpoint_id,
    name: row.name,
    state: isWaiting ? 'waiting' : 'pending',
    wait: row.step_name === null ? null : { name: row.step_name, key: row.step_key! },
    reason: isWaiting ? (REASONS[row.blocking_reason] ?? null) : null,
    createdAtMs: row.created_at_ms,
    waitingSinceMs: row.suspended_at_ms,
    timeoutAtMs: row.timeout_at_ms,
    expiresAtMs: row.expires_at_ms,
    matches: row.condition === null ? [] : matchesAt(row.condition, row.name),
    signalCount: row.signal_count,
    tokenKid: row.kid,
    tokenFingerprint: fingerprint(context, row),
  };
}

/** None, when some leaf takes any name. */
function matchesAt(condition: SignalCondition, waitpoint: string): string[] {
  const matches = leavesOf(condition)
    .filter((leaf) => leaf.waitpoints.includes(waitpoint))
    .map((leaf) => leaf.match);
  return matches.includes(undefined) ? [] : [...new Set(matches as string[])];
}

/** Made again, since tokens are stored nowhere. */
function fingerprint({ signing }: EngineContext, row: OpenWaitpoint): string | null {
  const { kid, secret_print: print, token_expires_at_ms: expiresAtMs } = row;
  if (kid === null || print === null || expiresAtMs === null || !signing.knows(print)) return null;
  const claims = {
    kid,
    partition: row.partition_key,
    executionUuid: row.execution_id,
    waitpointUuid: row.waitpoint_id,
    expiresAtMs,
    bond: {},
  };
  return fingerprintOf(signing.sign(claims, print));
}
