/**
 * Says something to a waiting execution: by a token, which is authenticated before any row is looked at, or as an operator.
 */
import { randomUUID } from 'node:crypto';
import { EngineError } from '../contract/errors.ts';
import { parseExecutionId } from '../contract/ids.ts';
import { LIMITS } from '../contract/limits.ts';
import type { ApproveRequest, DeliverOutcome, SignalRequest, SignalSource } from '../contract/signals.ts';
import { deliverSignal as deliver, type SignalAnswer, type SignalCall } from '../store/signals.ts';
import { checkName, checkText, refuse } from './checks.ts';
import type { EngineContext } from './context.ts';
import { encodeJson } from './json.ts';
import { checkMembers } from './members.ts';
import { checkPayload } from './payload-schema.ts';
import { fingerprintOf, MAX_TOKEN_LENGTH, tokenIn, type TokenBond } from './tokens.ts';

const DEFAULT_NAME = 'signal';
const DEFAULT_APPROVAL = 'approved';
/** A link has an address besides its token. */
const MAX_LINK_LENGTH = MAX_TOKEN_LENGTH + 2_048;

export async function deliverSignal(context: EngineContext, request: SignalRequest): Promise<DeliverOutcome> {
  checkMembers(request, 'request', ['token', 'name', 'payload', 'source', 'idempotencyKey']);
  // Whoever is not configured to know tokens should hear that, and not that this one is bad.
  void context.signing.firstPrint;
  const { token: given } = request;
  if (typeof given !== 'string') refuse('request.token', 'must be a string');
  const token = given.length > MAX_LINK_LENGTH ? '' : tokenIn(given);
  const claims = context.signing.open(token);
  if (claims === undefined) throw invalidToken();
  const { type, identity } = sourceOf(request.source, claims.bond, token);
  const answer = await send(context, {
    uuid: claims.executionUuid,
    partition: claims.partition,
    waitpoint: {
      uuid: claims.waitpointUuid,
      kid: claims.kid,
      print: claims.print,
      tokenExpiresAtMs: claims.expiresAtMs,
    },
    sourceType: type,
    sourceIdentity: identity,
    ...saidBy(request, claims.bond, token),
  });
  if (answer.outcome === 'unknown') throw invalidToken();
  return toOutcome(answer);
}

export async function approve(
  context: EngineContext,
  executionId: string,
  waitpoint: string,
  request: ApproveRequest,
): Promise<DeliverOutcome> {
  checkMembers(request, 'request', ['by', 'name', 'payload', 'idempotencyKey']);
  const answer = await send(context, {
    ...parseExecutionId(executionId),
    waitpoint: { name: checkName(waitpoint, 'waitpoint', LIMITS.waitpointNameBytes) },
    sourceType: 'operator',
    sourceIdentity: checkText(request.by, 'request.by', LIMITS.sourceBytes),
    ...saidBy({ ...request, name: request.name ?? DEFAULT_APPROVAL }, {}, ''),
  });
  if (answer.outcome === 'unknown')
    throw new EngineError('not_found', `${executionId} does not exist, or has no waitpoint ${waitpoint}.`);
  return toOutcome(answer);
}

type Said = Pick<SignalCall, 'signalId' | 'name' | 'payload' | 'idempotencyKey'>;

/** What a token says cannot be said differently. */
function saidBy(
  request: Pick<SignalRequest, 'name' | 'payload' | 'idempotencyKey'>,
  { signal, once }: TokenBond,
  token: string,
): Said {
  for (const member of ['name', 'payload'] as const)
    if (signal !== undefined && request[member] !== undefined)
      refuse(`request.${member}`, 'is said by the token already');
  const { name = DEFAULT_NAME, payload } = signal ?? request;
  const signalId = randomUUID();
  return {
    signalId,
    name: checkText(name, 'request.name', LIMITS.signalNameBytes),
    payload: encodeJson(payload ?? null, 'request.payload', LIMITS.signalBytes)!,
    idempotencyKey: once === true ? `t:${fingerprintOf(token)}` : keyOf(request.idempotencyKey, signalId),
  };
}

/** A signal without a key is still one signal when its answer is lost and it is sent again. */
function keyOf(key: string | undefined, signalId: string): string {
  if (key === undefined) return `s:${signalId}`;
  return `k:${checkText(key, 'request.idempotencyKey', LIMITS.idempotencyKeyBytes)}`;
}

function sourceOf(source: SignalSource | undefined, bond: TokenBond, token: string): Required<SignalSource> {
  const given = source === undefined ? undefined : checkSource(source, 'request.source');
  const bound = bond.source;
  if (bound === undefined) return given ?? { type: 'token', identity: fingerprintOf(token) };
  if (given !== undefined && (given.type !== bound.type || given.identity !== bound.identity))
    refuse('request.source', 'is not who the token is for');
  return bound;
}

export function checkSource(source: SignalSource, field: string): Required<SignalSource> {
  checkMembers(source, field, ['type', 'identity']);
  return {
    type: checkText(source.type ?? 'user', `${field}.type`, LIMITS.sourceBytes),
    identity: checkText(source.identity, `${field}.identity`, LIMITS.sourceBytes),
  };
}

type Call = Omit<SignalCall, 'maxSignals' | 'maxBytes'>;

/** The schema of a waitpoint that has one is answered first, and its payload sent again when it fits. */
async function send(context: EngineContext, said: Call): Promise<SignalAnswer> {
  const call = { ...said, maxSignals: LIMITS.signals, maxBytes: LIMITS.signalsBytes };
  let answer = await deliver(context.database, call, 'unchecked');
  if (answer.outcome === 'unchecked') {
    checkPayload(call.payload, answer.schema);
    answer = await deliver(context.database, call, 'checked');
  }
  if (answer.outcome === 'accepted' && answer.effect === 'resumed') ring(context, answer);
  // Only a call of this one's can have the same id: its answer was lost on the way.
  const isOwn = answer.outcome === 'duplicate' && answer.signal_id === call.signalId;
  return isOwn ? { ...answer, outcome: 'accepted' } : answer;
}

function ring({ doorbell }: EngineContext, { route_id: route, due_in_ms: dueInMs }: SignalAnswer): void {
  if (dueInMs === null) doorbell.ring({ routes: [route!], count: 1 });
  else doorbell.ring({ dueInMs });
}

function toOutcome({ outcome, signal_id: signalId, effect }: SignalAnswer): DeliverOutcome {
  if (outcome === 'accepted' || outcome === 'duplicate') return { outcome, signalId, effect };
  if (outcome === 'closed' || outcome === 'expired' || outcome === 'too_many') return { outcome };
  throw new EngineError('invariant_broken', `The database answered an unknown outcome ${outcome}.`);
}

/** One sentence for everything: a stranger learns nothing from it. */
function invalidToken(): EngineError {
  return new EngineError('invalid_token', 'The token is not valid.', { field: 'request.token' });
}
