/**
 * Says something to a waiting execution: by a token, which is authenticated before any row is looked at, or as an operator.
 */
import { createHash, randomUUID } from 'node:crypto';
import { EngineError } from '../../contract/errors.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { anyString, asciiName, parsed, string } from '../../contract/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, refuse, shape } from '../../contract/shape.ts';
import type { ApproveRequest, DeliverOutcome, SignalRequest, SignalSource } from '../../contract/signals.ts';
import { deliverSignal as deliver, type SignalAnswer, type SignalCall } from './signals.sql.ts';
import { keyVerifies } from './signing-keys.sql.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { encodeJson } from '../../model/json.ts';
import { checkPayload } from './payload-schema.ts';
import { fingerprintOf, MAX_TOKEN_LENGTH, tokenIn, type TokenBond, type TokenClaims } from './tokens.ts';

const DEFAULT_NAME = 'signal';
const DEFAULT_APPROVAL = 'approved';
/** A link has an address besides its token. */
const MAX_LINK_LENGTH = MAX_TOKEN_LENGTH + 2 * LIMITS.linkBytes;

/** Given by the engine itself, and by nobody else. */
const KEPT_TYPES = ['operator', 'token', 'engine'];

export const waitpointName = asciiName(LIMITS.waitpointNameBytes);
export const signalName = string(LIMITS.signalNameBytes);
export const signalSource = shape<SignalSource>({
  type: string(LIMITS.sourceBytes)
    .and((type) =>
      type.includes(':') || KEPT_TYPES.includes(type)
        ? fault(`must have no colon and be none of ${KEPT_TYPES.join(', ')}`)
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

export async function deliverSignal(context: EngineContext, request: SignalRequest): Promise<DeliverOutcome> {
  signalRequest.checkKeys(request, 'request');
  // Whoever is not configured to know tokens should hear that, and not that this one is bad.
  void context.signing.firstPrint;
  const given = anyString.check(request.token, 'request.token');
  const token = given.length > MAX_LINK_LENGTH ? '' : tokenIn(given);
  const claims = context.signing.open(token);
  if (claims === undefined) throw invalidToken();
  const answer = await send(context, {
    uuid: claims.executionUuid,
    partition: claims.partition,
    waitpoint: {
      uuid: claims.waitpointUuid,
      kid: claims.kid,
      print: claims.print,
      tokenExpiresAtMs: claims.expiresAtMs,
    },
    ...(await faultlessly(context, claims, () =>
      saidBy(signalRequest.check(request, 'request'), claims, token),
    )),
    ...LIMIT,
  });
  if (answer.outcome === 'unknown') throw invalidToken();
  return toOutcome(answer);
}

const LIMIT = { maxSignals: LIMITS.signals, maxBytes: LIMITS.signalsBytes };
/** Others may have used up what there is. */
const OPERATOR_LIMIT = {
  maxSignals: LIMITS.signals + LIMITS.operatorSignals,
  maxBytes: LIMITS.signalsBytes + LIMITS.operatorSignalsBytes,
};

/** What is wrong with a request is for those whose token is good; others learn nothing. */
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
  context: EngineContext,
  executionId: string,
  waitpoint: string,
  request: ApproveRequest,
): Promise<DeliverOutcome> {
  approveRequest.check(request, 'request');
  const answer = await send(context, {
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

/** What a token says cannot be said differently, nor by anybody else, nor twice. */
function saidBy(request: SignalRequest, { bond, waitpointUuid }: TokenClaims, token: string): Said {
  for (const member of ['name', 'payload'] as const)
    if (bond.signal !== undefined && request[member] !== undefined)
      refuse(`request.${member}`, 'is said by the token already');
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
 * A key is its source's own: another's cannot be taken. A signal without one is still one signal when its answer is lost and it
 * is sent again.
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
    refuse('request.source', 'is not who the token is for');
  return bound;
}

export function withType({ type = 'user', identity }: SignalSource): Required<SignalSource> {
  return { type, identity };
}

/** The schema of a waitpoint that has one is answered first, and its payload sent again when it fits. */
async function send(context: EngineContext, call: SignalCall): Promise<SignalAnswer> {
  let answer = await deliver(context.database, call, 'unchecked');
  if (answer.outcome === 'unchecked') {
    checkPayload(call.payload, answer.schema);
    answer = await deliver(context.database, call, 'checked');
  }
  if (answer.outcome === 'accepted') announce(context, [{ ...answer, outcome: answer.effect }]);
  // Only a call of this one's can have the same id: its answer was lost on the way.
  const isOwn = answer.outcome === 'duplicate' && answer.signalId === call.signalId;
  return isOwn ? { ...answer, outcome: 'accepted' } : answer;
}

function toOutcome({ outcome, signalId, effect }: SignalAnswer): DeliverOutcome {
  if (outcome === 'accepted' || outcome === 'duplicate') return { outcome, signalId, effect };
  if (outcome === 'closed' || outcome === 'expired' || outcome === 'too_many') return { outcome };
  throw new EngineError('invariant_broken', `The database answered an unknown outcome ${outcome}.`);
}

/** One sentence for everything: a stranger learns nothing from it. */
function invalidToken(): EngineError {
  return new EngineError('invalid_token', 'The token is not valid.', { field: 'request.token' });
}
