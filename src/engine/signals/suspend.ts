/**
 * Suspends a running execution until a signal arrives. The whole request is checked before anything is written.
 */
import { randomUUID } from 'node:crypto';
import { EngineError } from '../../contract/errors.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import { choice, list, parsed, string } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { fault, faultAt, refuse, shape, variants } from '../../contract/shape/shape.ts';
import {
  TIMEOUT_BEHAVIOURS,
  WAIT_REASONS,
  type CountCondition,
  type MessageCondition,
  type SignalCondition,
  type SuspendOutcome,
  type SuspendRequest,
  type WaitCondition,
  type WaitReason,
  type WaitRequest,
} from '../../contract/signals.ts';
import type { TopicCondition } from '../../contract/topics.ts';
import { conditionFault, waitpointsOf, type ConditionFault } from '../../model/conditions.ts';
import type { TransitionName } from '../../model/transitions.ts';
import {
  suspendExecution,
  type ConditionRow,
  type SuspendAnswer,
  type TopicOffer,
  type WaitpointRow,
  type WaitRow,
} from './signals.sql.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { delayTime, namespaceName } from '../kit/kinds.ts';
import { checkPayloadSchema } from './payload-schema.ts';
import { signalName, waitpointName } from './signals.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';
import { pauseFields, pauseTerms } from '../executions/pause-terms.ts';

const waitRequest = shape<WaitRequest>({
  name: string(LIMITS.stepNameBytes),
  key: string(LIMITS.stepKeyBytes, 0).optional(),
  condition: parsed,
  timeoutMs: delayTime.optional(),
  onTimeout: choice(TIMEOUT_BEHAVIOURS).optional(),
  resumeDelayMs: delayTime.optional(),
  reason: choice(WAIT_REASONS).optional(),
}).and(({ timeoutMs, onTimeout }) =>
  timeoutMs === undefined && onTimeout !== undefined
    ? faultAt('.onTimeout', fault('needs a timeoutMs'))
    : undefined,
);

const suspendRequest = shape<SuspendRequest>({
  ...pauseFields,
  waits: list(waitRequest, LIMITS.waits, 1),
  waitpoints: list(
    shape<NamedWaitpoint>({ name: waitpointName, schema: parsed.optional() }),
    LIMITS.waitpoints,
  ).optional(),
  mode: choice(['suspend', 'poll']).optional(),
});

type NamedWaitpoint = NonNullable<SuspendRequest['waitpoints']>[number];
interface All {
  readonly kind: 'all';
  readonly of: readonly SignalCondition[];
}
type Any = Omit<All, 'kind'> & { readonly kind: 'any' };

/** Depth and counts are checked for the condition as a whole. */
const signalCondition = variants<CountCondition | All | Any, 'kind'>('kind', {
  count: shape<CountCondition>({
    kind: choice(['count']),
    n: parsed,
    by: choice(['signals', 'waitpoints', 'sources']),
    waitpoints: list(waitpointName, LIMITS.conditionWaitpoints),
    match: signalName.optional(),
  }),
  all: shape<All>({ kind: choice(['all']), of: list(parsed, LIMITS.conditionParts) }),
  any: shape<Any>({ kind: choice(['any']), of: list(parsed, LIMITS.conditionParts) }),
});

const messageCondition = shape<MessageCondition>({
  kind: choice(['message']),
  mailbox: string(LIMITS.mailboxBytes),
});

const topicCondition = shape<TopicCondition>({
  kind: choice(['topic']),
  topic: string(LIMITS.topicBytes),
  namespace: namespaceName.optional(),
});

/** What the homes of topics offer, by the conditions that ask for them. */
export type TopicOffers = ReadonlyMap<WaitCondition, TopicOffer>;

const TRANSITIONS: Record<WaitReason, TransitionName> = {
  signal: 'suspend',
  approval: 'suspend_for_approval',
  callback: 'suspend_for_callback',
  tool_result: 'suspend_for_tool_result',
  review: 'suspend_for_review',
};

export async function suspend(
  context: EngineContext,
  lease: LeaseRef,
  request: SuspendRequest,
  offers: TopicOffers = new Map(),
): Promise<SuspendOutcome> {
  suspendRequest.check(request, 'request');
  const waits = request.waits.map((wait, index) => waitRow(wait, `request.waits[${index}]`, offers));
  const key = leaseKey(lease, 'lease');
  const answer = await suspendExecution(context.database, {
    lease: key,
    transition: TRANSITIONS[waits[0]!.reason],
    mode: request.mode ?? 'suspend',
    waits,
    waitpoints: waitpointRows(waits, schemasOf(request)),
    maxWaitpoints: LIMITS.waitpoints,
    ...pauseTerms(request),
  });
  announce(context, [{ ...answer, uuid: key.uuid }]);
  return toOutcome(answer);
}

function toOutcome(answer: SuspendAnswer): SuspendOutcome {
  switch (answer.outcome) {
    case 'suspended':
      return { outcome: 'suspended', repeated: false };
    case 'already_suspended':
      return { outcome: 'suspended', repeated: true };
    case 'satisfied':
      return { outcome: 'already_satisfied', ended: answer.ended as never };
    case 'due':
    case 'open':
      return { outcome: answer.outcome };
    default:
      refuseFault(answer.outcome);
      return toRefusal(answer);
  }
}

/** Throws for faults that only the database can find. */
export function refuseFault(outcome: string): void {
  if (outcome === 'too_many_waitpoints')
    refuse('waitpoints', `exceed the limit of ${LIMITS.waitpoints} per execution`, 'too_many');
  if (outcome === 'waitpoint_taken')
    refuse('condition', 'names a waitpoint that belongs to another wait; use another name');
  if (outcome === 'schema_late')
    refuse(
      'schema',
      'must be passed to createWaitpoint, too, because earlier signals are checked against it',
    );
  if (outcome === 'name_taken')
    throw new EngineError(
      'invalid_step',
      'A wait has the name of a stored step or sleep; rename one of them.',
      {
        field: 'name',
      },
    );
}

function waitRow(wait: WaitRequest, field: string, offers: TopicOffers): WaitRow {
  return {
    name: wait.name,
    key: wait.key ?? '',
    condition: conditionRow(wait.condition, `${field}.condition`, offers),
    timeout_ms: wait.timeoutMs ?? null,
    on_timeout: wait.onTimeout ?? 'fail',
    resume_delay_ms: wait.resumeDelayMs ?? 0,
    reason: wait.reason ?? 'signal',
  };
}

const FAULTS: Record<ConditionFault, string> = {
  too_deep: `is nested deeper than ${LIMITS.conditionDepth} levels`,
  too_many_leaves: `has more than ${LIMITS.conditionLeaves} counts`,
  too_long: `is longer than ${LIMITS.conditionBytes} bytes as JSON`,
  no_parts: 'has an all or any without conditions',
  too_many_parts: `has an all or any of more than ${LIMITS.conditionParts} conditions`,
  no_waitpoints: 'counts at no waitpoint; name at least one',
  too_many_waitpoints: `counts at more than ${LIMITS.conditionWaitpoints} waitpoints`,
  count_not_positive: 'has an n that is not a whole number of at least 1',
  count_too_high: `has an n above ${LIMITS.conditionCount}`,
  count_exceeds_waitpoints: 'asks for more waitpoints than it names',
  empty_match: 'has an empty match',
};

/** Returns a copy with known keys only. */
function checkCondition(condition: SignalCondition, field: string): SignalCondition {
  const plain = toCondition(condition, field, 0);
  const found = conditionFault(plain);
  if (found !== undefined) refuse(field, FAULTS[found]);
  return plain;
}

/** Conditions that are not about signals are a whole wait; they are no part of another. */
function conditionRow(condition: WaitCondition, field: string, offers: TopicOffers): ConditionRow {
  if (condition?.kind === 'message') {
    const { kind, mailbox } = messageCondition.check(condition, field);
    return { kind, mailbox, limit: LIMITS.messagesPerRun };
  }
  if (condition?.kind !== 'topic') return checkCondition(condition, field);
  const { kind, topic, namespace = 'default' } = topicCondition.check(condition, field);
  return { kind, topic, namespace, ...(offers.get(condition) ?? { last: 0, offer: null }) };
}

function toCondition(condition: SignalCondition, field: string, depth: number): SignalCondition {
  // Stops at a condition that contains itself.
  if (depth > LIMITS.conditionDepth) refuse(field, FAULTS.too_deep);
  const given = signalCondition.check(condition, field);
  if (given.kind === 'count') {
    const { n, by, waitpoints, match } = given;
    return { kind: 'count', n, by, waitpoints: [...waitpoints], ...(match === undefined ? {} : { match }) };
  }
  return {
    kind: given.kind,
    of: given.of.map((part, index) => toCondition(part, `${field}.of[${index}]`, depth + 1)),
  };
}

/** The given schemas as JSON, by waitpoint. */
function schemasOf({ waitpoints = [] }: SuspendRequest): Map<string, string | null> {
  return new Map(
    waitpoints.map(({ name, schema }, index) => [
      name,
      checkPayloadSchema(schema, `request.waitpoints[${index}].schema`),
    ]),
  );
}

/** One row per waitpoint: each belongs to one wait, and stays open as long as that may last. */
function waitpointRows(
  waits: readonly WaitRow[],
  schemas: ReadonlyMap<string, string | null>,
): WaitpointRow[] {
  const rows = waits.flatMap(({ name: step, key, condition, timeout_ms: timeout }) =>
    (condition.kind === 'message' || condition.kind === 'topic' ? [] : waitpointsOf(condition)).map(
      (name): WaitpointRow => {
        const schema = schemas.get(name) ?? null;
        return {
          id: randomUUID(),
          name,
          expires_in_ms: timeout,
          step_name: step,
          step_key: key,
          ...(schema === null ? {} : { schema: JSON.parse(schema) as unknown }),
        };
      },
    ),
  );
  const names = new Set(rows.map((row) => row.name));
  if (names.size < rows.length) refuse('request.waits', 'share a waitpoint; give each wait its own');
  for (const name of schemas.keys())
    if (!names.has(name)) refuse('request.waitpoints', `has ${name}, which no wait uses`);
  return rows;
}
