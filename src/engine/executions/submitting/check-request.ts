/**
 * Checks the requests of a submit and turns each into what is sent. Nothing is built for a valid request that only an
 * error would need.
 */
import { EngineError } from '../../../contract/errors.ts';
import type { SubmitRequest } from '../../../contract/executions.ts';
import {
  KEY_MARK,
  parseExecutionId,
  partitionOfIdempotencyKey,
  partitionOfKey,
  type ParsedExecutionId,
} from '../../../contract/ids.ts';
import { LIMITS } from '../../../contract/limits.ts';
import type { ExecutionPolicy } from '../../../contract/policy.ts';
import { choice, list, MAX_UNIT_BYTES, parsed, string, whole } from '../../../contract/shape/kinds.ts';
import { duration, msOf } from '../../../contract/shape/duration.ts';
import { fault, refuse, shape } from '../../../contract/shape/shape.ts';
import type { ChildRequest } from '../../../contract/steps.ts';
import { normaliseCapabilities } from '../../../model/capabilities.ts';
import { encodeJson } from '../../../model/json.ts';
import { capabilityList, kindName, laneName, namespaceName, tagMap, tagsJson } from '../../kit/kinds.ts';
import { executionKey } from '../keys.ts';
import { idempotencyOf } from './idempotency.ts';
import { newMint } from './mint.ts';
import { detachedPolicy, encodePolicy, executionPolicy, optionalMs } from './policy.ts';
import type { CheckedRequest } from './submit-call.ts';

const submitRequest = shape<SubmitRequest>({
  kind: kindName,
  payload: parsed.optional(),
  lane: laneName.optional(),
  namespace: namespaceName.optional(),
  priority: whole(0, LIMITS.priority).optional(),
  capabilities: capabilityList.optional(),
  tags: tagMap.optional(),
  policy: executionPolicy.optional(),
  delay: duration(LIMITS.delayMs).optional(),
  executionId: parsed.optional(),
  idempotencyKey: string(LIMITS.idempotencyKeyBytes)
    .and((text) => (text.includes(KEY_MARK) ? fault('must not contain the character \\u0001') : undefined))
    .optional(),
  key: executionKey.optional(),
  ifExists: choice(['attach', 'refuse', 'replace']).optional(),
});
const submitRequests = list(parsed, LIMITS.submitBatch);

/** The policy of requests without one: as given, and as stored. */
export interface DefaultPolicy {
  policy: ExecutionPolicy;
  stored: string;
}

/** The names of a request and of its parts. */
type Fields = ReturnType<typeof fieldsOf>;

function fieldsOf(request: string) {
  return {
    request,
    payload: `${request}.payload`,
    tags: `${request}.tags`,
    executionId: `${request}.executionId`,
  };
}

const ONE = fieldsOf('request');

/** The request of a call that has one. */
export function checkOne(request: SubmitRequest, defaultPolicy: DefaultPolicy): CheckedRequest {
  return checkRequest(request, ONE, newMint(), defaultPolicy);
}

export function checkRequests(
  requests: readonly SubmitRequest[],
  defaultPolicy: DefaultPolicy,
  mint: () => ParsedExecutionId,
): CheckedRequest[] {
  submitRequests.check(requests, 'requests');
  const entries: CheckedRequest[] = [];
  for (let index = 0; index < requests.length; index += 1)
    entries.push(checkNth(requests[index]!, index, mint, defaultPolicy));
  checkBytes(entries);
  return entries;
}

/** Whether a child ends with its parent is a part of its policy. */
export function checkChildRequests(
  requests: readonly ChildRequest[],
  defaultPolicy: DefaultPolicy,
  mint: () => ParsedExecutionId,
): CheckedRequest[] {
  submitRequests.check(requests, 'requests');
  const detached = requests.map((request, index) => {
    const { detached: given } = (request ?? {}) as Partial<ChildRequest>;
    if (given !== undefined && typeof given !== 'boolean')
      refuse(`requests[${index}].detached`, 'must be true or false');
    return given === true;
  });
  const entries = checkRequests(requests.map(asSubmitted), defaultPolicy, mint);
  return entries.map((entry, index) =>
    detached[index]! ? { ...entry, policy: detachedPolicy(entry.policy) } : entry,
  );
}

function asSubmitted(request: ChildRequest): SubmitRequest {
  if (typeof request !== 'object' || request === null) return request;
  const { detached: _, ...submitted } = request;
  return submitted;
}

/** Which request it is matters for an error only: then it is checked once more, under its name. */
function checkNth(
  request: SubmitRequest,
  index: number,
  mint: () => ParsedExecutionId,
  defaultPolicy: DefaultPolicy,
): CheckedRequest {
  try {
    return checkRequest(request, ONE, mint, defaultPolicy);
  } catch (error) {
    checkRequest(request, fieldsOf(`requests[${index}]`), mint, defaultPolicy);
    throw error;
  }
}

/** A member of a flow, whose partition and namespace come from the flow. */
export function checkMemberRequest(
  request: Omit<SubmitRequest, 'kind'> & { kind?: string },
  field: string,
  namespace: string,
  mint: () => ParsedExecutionId,
  defaultPolicy: DefaultPolicy,
): CheckedRequest {
  const named = { ...request, namespace } as SubmitRequest;
  return checkRequest(named, fieldsOf(field), mint, defaultPolicy);
}

const NO_CAPABILITIES: readonly string[] = [];

function checkRequest(
  request: SubmitRequest,
  fields: Fields,
  mint: () => ParsedExecutionId,
  defaultPolicy: DefaultPolicy,
): CheckedRequest {
  submitRequest.check(request, fields.request);
  const { namespace = 'default', policy, executionId, tags, capabilities } = request;
  const minted = executionId === undefined;
  const id = minted ? mint() : parseExecutionId(executionId, fields.executionId);
  const payload = encodeJson(request.payload, fields.payload);
  const idempotency =
    request.idempotencyKey === undefined
      ? null
      : idempotencyOf(request, payload, fields.request, defaultPolicy.policy.dedupWindow);
  const own = request.key === undefined && request.ifExists === undefined ? null : ownKeyOf(request, fields);
  return {
    uuid: id.uuid,
    partition: placeOf(namespace, own, idempotency) ?? id.partition,
    minted,
    namespace,
    priority: request.priority ?? 0,
    delayMs: msOf(request.delay ?? 0),
    payload,
    policy: policy === undefined ? defaultPolicy.stored : encodePolicy(policy, defaultPolicy.policy),
    tags: tags === undefined ? '{}' : tagsJson(tags, fields.tags),
    lane: request.lane ?? 'default',
    kind: request.kind,
    capabilities: capabilities === undefined ? NO_CAPABILITIES : normaliseCapabilities(capabilities),
    deadlineMs: optionalMs(policy?.deadline ?? defaultPolicy.policy.deadline),
    idempotency,
    own,
  };
}

function ownKeyOf(
  { key, ifExists = 'attach', executionId }: SubmitRequest,
  { request }: Fields,
): CheckedRequest['own'] {
  if (key === undefined) refuse(`${request}.ifExists`, 'needs a key');
  if (executionId !== undefined) refuse(`${request}.key`, 'cannot be given together with executionId');
  return { key, ifExists };
}

/** Where keys place an execution; undefined when it has none. */
function placeOf(
  namespace: string,
  own: CheckedRequest['own'],
  idempotency: CheckedRequest['idempotency'],
): number | undefined {
  if (own !== null) return partitionOfKey(namespace, own.key);
  return idempotency === null ? undefined : partitionOfIdempotencyKey(namespace, idempotency.key);
}

function checkBytes(entries: readonly CheckedRequest[]): void {
  let units = 0;
  for (const { payload } of entries) units += payload?.length ?? 0;
  if (units * MAX_UNIT_BYTES <= LIMITS.submitBytes) return;
  const bytes = entries.reduce((sum, entry) => sum + Buffer.byteLength(entry.payload ?? ''), 0);
  if (bytes <= LIMITS.submitBytes) return;
  throw new EngineError(
    'payload_too_large',
    `The payloads of one submit call have ${bytes} bytes in total; the limit is ${LIMITS.submitBytes}. Split the call.`,
    { field: 'requests' },
  );
}
