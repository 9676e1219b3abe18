/**
 * Delivers signals: with a token, which is authenticated before any row is read, or as an operator.
 */
import { createHash, randomUUID } from 'node:crypto';
import { EngineError } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { anyString, asciiName, parsed, string } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, refuse, shape } from '../../contract/shape/shape.ts';
import type { ApproveRequest, DeliverOutcome, SignalRequest, SignalSource } from '../../contract/signals.ts';
import {
  deliverSignal as deliverAlone,
  deliverSignals,
  type SignalAnswer,
  type SignalCall,
} from './signals.sql.ts';
import { keyVerifies } from './signing-keys.sql.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import type { Database } from '../database/database.ts';
import { Deliveries } from '../kit/deliveries.ts';
import { encodeJson } from '../../model/json.ts';
import { checkPayload } from './payload-schema.ts';
import { fingerprintOf, MAX_TOKEN_LENGTH, tokenIn, type TokenBond, type TokenContent } from './tokens.ts';

const DEFAULT_NAME = 'signal';
const DEFAULT_APPROVAL = 'approved';
/** A link has an address besides its token. */
const MAX_LINK_LENGTH = MAX_TOKEN_LENGTH + 2 * LIMITS.linkBytes;

/** Source types that only the engine assigns. */
const RESERVED_TYPES = ['operator', 'token', 'engine'];

export const waitpointName = asciiName(LIMITS.waitpointNameBytes);
export const signalName = string(LIMITS.signalNameBytes);
export const signalSource = shape<SignalSource>({
  type: string(LIMITS.sourceBytes)
    .and((type) =>
      type.includes(':') || RESERVED_TYPES.includes(type)
        ? fault(`must contain no colon and not be ${RESERVED_TYPES.join(', ')}, which are reserved`)
        : undefined,
    )
    .optional(),
  identity: string(LIMITS.sourceBytes),
});

const sayingFields = {
  name: signalName.optional(),
  payload: parsed.optional(),
  idempotencyKey: string(LIMITS.idempotencyKeyBytes).optional(),
};
const signalRequest = shape<SignalRequest>({
  token: anyString,
  ...sayingFields,
  source: signalSource.optional(),
});
const approveRequest = shape<ApproveRequest>({ by: string(LIMITS.sourceBytes), ...sayingFields });

export type SignalDeliveries = Deliveries<SignalCall, SignalAnswer>;

export function createSignalDeliveries(database: Database): SignalDeliveries {
  return new Deliveries({
    together: (calls) => deliverSignals(database, calls),
    alone: (call) => deliverAlone(database, call),
    keyOf: ({ signalId }) => signalId,
  });
}

/** Where signals are delivered and announced. */
export interface Delivering {
  context: EngineContext;
  deliveries: SignalDeliveries;
}

export async function deliverSignal(
  { context, deliveries }: Delivering,
  request: SignalRequest,
): Promise<DeliverOutcome> {
  signalRequest.checkKeys(request, 'request');
  // Throws without a signing secret, instead of calling the token invalid.
  void context.signing.firstPrint;
  const given = anyString.check(request.token, 'request.token');
  const token = given.length > MAX_LINK_LENGTH ? '' : tokenIn(given);
  const content = context.signing.open(token);
  if (content === undefined) throw invalidToken();
  const answer = await send(
    { context, deliveries },
    {
      uuid: content.executionUuid,
      partition: content.partition,
      waitpoint: {
        uuid: content.waitpointUuid,
        kid: content.kid,
        print: content.print,
        tokenExpiresAtMs: content.expiresAtMs,
      },
      ...(await faultlessly(context, content, () =>
        saidBy(signalRequest.check(request, 'request'), content, token),
      )),
      ...LIMIT,
    },
  );
  if (answer.outcome === 'unknown') throw invalidToken();
  return toOutcome(answer);
}

const LIMIT = { maxSignals: LIMITS.signals, maxBytes: LIMITS.signalsBytes };
/** A reserve for operators: others may have used up the limit. */
const OPERATOR_LIMIT = {
  maxSignals: LIMITS.signals + LIMITS.operatorSignals,
  maxBytes: LIMITS.signalsBytes + LIMITS.operatorSignalsBytes,
};

/** Reports faults of a request only to callers with a valid token; others learn nothing. */
async function faultlessly<Value>(
  context: EngineContext,
  { kid, print }: { kid: string; print: string },
  check: () => Value,
): Promise<Value> {
  try {
    return check();
  } catch (error) {
    if (await keyVerifies(context.database, kid, print)) throw error;
    throw invalidToken();
  }
}

export async function approve(
  delivering: Delivering,
  executionId: string,
  waitpoint: string,
  request: ApproveRequest,
): Promise<DeliverOutcome> {
  approveRequest.check(request, 'request');
  const answer = await send(delivering, {
    ...parseExecutionId(executionId),
    waitpoint: { name: waitpointName.check(waitpoint, 'waitpoint') },
    ...said(
      { ...request, name: request.name ?? DEFAULT_APPROVAL },
      { type: 'operator', identity: request.by },
    ),
    ...OPERATOR_LIMIT,
  });
  if (answer.outcome === 'unknown')
    throw new EngineError('not_found', `${executionId} does not exist, or has no waitpoint ${waitpoint}.`);
  return toOutcome(answer);
}

type Said = Pick<
  SignalCall,
  'signalId' | 'name' | 'payload' | 'idempotencyKey' | 'sourceType' | 'sourceIdentity'
>;
type Saying = Pick<SignalRequest, 'name' | 'payload' | 'idempotencyKey'>;

/** Applies what the token fixes: the signal, its source, and that it can be sent once only. */
function saidBy(request: SignalRequest, { bond, waitpointUuid }: TokenContent, token: string): Said {
  for (const key of ['name', 'payload'] as const)
    if (bond.signal !== undefined && request[key] !== undefined)
      refuse(`request.${key}`, 'is fixed by the token; leave it out');
  const source = sourceOf(request.source, bond) ?? { type: 'token', identity: waitpointUuid };
  const saying = said({ ...request, ...bond.signal }, source);
  return bond.once === true ? { ...saying, idempotencyKey: `t:${fingerprintOf(token)}` } : saying;
}

function said(
  { name: saying = DEFAULT_NAME, payload, idempotencyKey }: Saying,
  source: Required<SignalSource>,
): Said {
  const signalId = randomUUID();
  return {
    signalId,
    name: saying,
    payload: encodeJson(payload ?? null, 'request.payload', LIMITS.signalBytes)!,
    idempotencyKey: keyOf(idempotencyKey, source, signalId),
    sourceType: source.type,
    sourceIdentity: source.identity,
  };
}

/**
 * Keys are separate per source, so that nobody can use up another's. Without a key the signal id takes its place, so
 * that a signal sent again after a lost response is still one signal.
 */
function keyOf(key: string | undefined, { type, identity }: SignalSource, signalId: string): string {
  if (key === undefined) return `s:${signalId}`;
  const own = [type, identity, key];
  return `k:${createHash('sha256').update(JSON.stringify(own)).digest('hex')}`;
}

function sourceOf(
  source: SignalSource | undefined,
  { source: bound }: TokenBond,
): Required<SignalSource> | undefined {
  const given = source === undefined ? undefined : withType(source);
  if (bound === undefined) return given;
  if (given !== undefined && (given.type !== bound.type || given.identity !== bound.identity))
    refuse('request.source', 'is not the source the token was issued for');
  return bound;
}

export function withType({ type = 'user', identity }: SignalSource): Required<SignalSource> {
  return { type, identity };
}

/** A waitpoint with a schema returns it first; the signal is sent again once its payload matches. */
async function send(
  { context, deliveries }: Delivering,
  request: Omit<SignalCall, 'payloadIs'>,
): Promise<SignalAnswer> {
  const call: SignalCall = { ...request, payloadIs: 'unchecked' };
  let answer = await deliveries.deliver(call);
  if (answer.outcome === 'unchecked') {
    checkPayload(call.payload, answer.schema);
    answer = await deliveries.deliver({ ...call, payloadIs: 'checked' });
  }
  // The same signal id means that this very call was repeated after its response was lost.
  const isOwn = answer.outcome === 'duplicate' && answer.signalId === call.signalId;
  if (isOwn) answer = { ...answer, outcome: 'accepted' };
  if (answer.outcome === 'accepted') announce(context, [{ ...answer, outcome: answer.effect }]);
  // A repeat returns no route.
  if (isOwn && answer.effect === 'resumed')
    announce(context, [{ outcome: 'opened', routes: 'all', count: 0 }]);
  return answer;
}

function toOutcome({ outcome, signalId, effect }: SignalAnswer): DeliverOutcome {
  if (outcome === 'accepted' || outcome === 'duplicate') return { outcome, signalId, effect };
  if (outcome === 'closed' || outcome === 'expired' || outcome === 'too_many') return { outcome };
  throw new EngineError('invariant_broken', `The database returned an unknown outcome: ${outcome}.`);
}

/** One message for every fault, so that a stranger learns nothing from it. */
function invalidToken(): EngineError {
  return new EngineError('invalid_token', 'The token is not valid.', { field: 'request.token' });
}
