/**
 * Suspends a running execution until something is said. What is asked for is checked as a whole before anything is written.
 */
import { randomUUID } from 'node:crypto';
import { EngineError } from '../../contract/errors.ts';
import type { LeaseRef } from '../../contract/protocol.ts';
import { LIMITS } from '../../contract/limits.ts';
import {
  TIMEOUT_BEHAVIOURS,
  WAIT_REASONS,
  type CountCondition,
  type SignalCondition,
  type SuspendOutcome,
  type SuspendRequest,
  type WaitReason,
  type WaitRequest,
} from '../../contract/signals.ts';
import { conditionFault, waitpointsOf, type ConditionFault } from '../../model/conditions.ts';
import type { TransitionName } from '../../model/transitions.ts';
import { suspendExecution, type SuspendAnswer, type WaitpointRow, type WaitRow } from './signals.sql.ts';
import { announce } from '../kit/announce.ts';
import { checkList, checkName, checkText, checkWhole, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { checkChoice, checkMembers } from '../kit/settings.ts';
import { checkPayloadSchema } from './payload-schema.ts';
import { leaseKey, toRefusal } from '../kit/answers.ts';
import { pauseTerms } from '../executions/pause-terms.ts';

const REQUEST_MEMBERS: readonly (keyof SuspendRequest)[] = [
  'waits',
  'waitpoints',
  'mode',
  'wakeInMs',
  'children',
];
const WAIT_MEMBERS: readonly (keyof WaitRequest)[] = [
  'name',
  'key',
  'condition',
  'timeoutMs',
  'onTimeout',
  'resumeDelayMs',
  'reason',
];

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
): Promise<SuspendOutcome> {
  checkMembers(request, 'request', REQUEST_MEMBERS);
  checkChoice(request.mode, 'request.mode', ['suspend', 'look']);
  checkList(request.waits, 'request.waits', LIMITS.waits);
  if (request.waits.length === 0) refuse('request.waits', 'must name what is waited for');
  const waits = Array.from(request.waits, (wait, index) => waitRow(wait, `request.waits[${index}]`));
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

/** What only the database could know to be wrong. */
export function refuseFault(fault: string): void {
  if (fault === 'too_many_waitpoints')
    refuse('waitpoints', `are more than the ${LIMITS.waitpoints} an execution may have`, 'too_many');
  if (fault === 'waitpoint_taken')
    refuse('condition', 'names a waitpoint that belongs to another wait; give this one a name of its own');
  if (fault === 'schema_late')
    refuse('schema', 'must be given to createWaitpoint as well: what comes before the wait is checked by it');
  if (fault === 'name_taken')
    throw new EngineError('invalid_step', 'A wait has the name of a step or sleep that is stored already.', {
      field: 'name',
    });
}

function waitRow(wait: WaitRequest, field: string): WaitRow {
  checkMembers(wait, field, WAIT_MEMBERS);
  checkChoice(wait.onTimeout, `${field}.onTimeout`, TIMEOUT_BEHAVIOURS);
  checkChoice(wait.reason, `${field}.reason`, WAIT_REASONS);
  const { timeoutMs, onTimeout, resumeDelayMs = 0 } = wait;
  if (timeoutMs === undefined && onTimeout !== undefined) refuse(`${field}.onTimeout`, 'needs a timeoutMs');
  const key =
    wait.key === undefined || wait.key === '' ? '' : checkText(wait.key, `${field}.key`, LIMITS.stepKeyBytes);
  return {
    name: checkText(wait.name, `${field}.name`, LIMITS.stepNameBytes),
    key,
    condition: checkCondition(wait.condition, `${field}.condition`),
    timeout_ms:
      timeoutMs === undefined ? null : checkWhole(timeoutMs, `${field}.timeoutMs`, 0, LIMITS.delayMs),
    on_timeout: onTimeout ?? 'fail',
    resume_delay_ms: checkWhole(resumeDelayMs, `${field}.resumeDelayMs`, 0, LIMITS.delayMs),
    reason: wait.reason ?? 'signal',
  };
}

const FAULTS: Record<ConditionFault, string> = {
  too_deep: `is nested deeper than ${LIMITS.conditionDepth} levels`,
  too_many_leaves: `counts in more than ${LIMITS.conditionLeaves} places`,
  too_long: `is longer than ${LIMITS.conditionBytes} bytes as JSON`,
  no_members: 'has an all or any without members',
  too_many_members: `has an all or any of more than ${LIMITS.conditionMembers} members`,
  no_waitpoints: 'counts at no waitpoint',
  too_many_waitpoints: `counts at more than ${LIMITS.conditionWaitpoints} waitpoints`,
  count_not_positive: 'counts to n, which must be a whole number from 1',
  count_too_high: `counts to more than ${LIMITS.conditionCount}`,
  count_exceeds_waitpoints: 'counts more waitpoints than it names',
  empty_match: 'matches an empty name',
};

/** Only what is known of it is passed on. */
function checkCondition(condition: SignalCondition, field: string): SignalCondition {
  const plain = toCondition(condition, field, 0);
  const fault = conditionFault(plain);
  if (fault !== undefined) refuse(field, FAULTS[fault]);
  return plain;
}

function toCondition(condition: SignalCondition, field: string, depth: number): SignalCondition {
  // A condition that contains itself must come to an end.
  if (depth > LIMITS.conditionDepth) refuse(field, FAULTS.too_deep);
  const given = condition as SignalCondition | null | undefined;
  if (given?.kind === 'count') return toCount(given, field);
  if (given?.kind !== 'all' && given?.kind !== 'any')
    refuse(`${field}.kind`, 'must be one of count, all, any');
  checkMembers(given, field, ['kind', 'of']);
  checkList(given.of, `${field}.of`, LIMITS.conditionMembers);
  return {
    kind: given.kind,
    of: Array.from(given.of, (member, index) => toCondition(member, `${field}.of[${index}]`, depth + 1)),
  };
}

function toCount(count: CountCondition, field: string): CountCondition {
  checkMembers(count, field, ['kind', 'n', 'by', 'waitpoints', 'match']);
  if (count.by === undefined) refuse(`${field}.by`, 'must be one of signals, waitpoints, sources');
  checkChoice(count.by, `${field}.by`, ['signals', 'waitpoints', 'sources']);
  checkList(count.waitpoints, `${field}.waitpoints`, LIMITS.conditionWaitpoints);
  const { n, by, match } = count;
  return {
    kind: 'count',
    n,
    by,
    waitpoints: Array.from(count.waitpoints, (name, index) =>
      checkName(name, `${field}.waitpoints[${index}]`, LIMITS.waitpointNameBytes),
    ),
    ...(match === undefined ? {} : { match: checkText(match, `${field}.match`, LIMITS.signalNameBytes) }),
  };
}

/** The schemas that are given, by waitpoint, as JSON texts. */
function schemasOf({ waitpoints = [] }: SuspendRequest): Map<string, string | null> {
  checkList(waitpoints, 'request.waitpoints', LIMITS.waitpoints);
  return new Map(
    Array.from(waitpoints, (waitpoint, index) => {
      const field = `request.waitpoints[${index}]`;
      checkMembers(waitpoint, field, ['name', 'schema']);
      const name = checkName(waitpoint.name, `${field}.name`, LIMITS.waitpointNameBytes);
      return [name, checkPayloadSchema(waitpoint.schema, `${field}.schema`)];
    }),
  );
}

/** One row a waitpoint: each is one wait's alone, and lives as long as that may last. */
function waitpointRows(
  waits: readonly WaitRow[],
  schemas: ReadonlyMap<string, string | null>,
): WaitpointRow[] {
  const rows = waits.flatMap(({ name: step, key, condition, timeout_ms: timeout }) =>
    waitpointsOf(condition).map((name): WaitpointRow => {
      const schema = schemas.get(name) ?? null;
      return {
        id: randomUUID(),
        name,
        expires_in_ms: timeout,
        step_name: step,
        step_key: key,
        ...(schema === null ? {} : { schema: JSON.parse(schema) as unknown }),
      };
    }),
  );
  const names = new Set(rows.map((row) => row.name));
  if (names.size < rows.length) refuse('request.waits', 'share a waitpoint; each must have its own');
  for (const name of schemas.keys())
    if (!names.has(name)) refuse('request.waitpoints', `has ${name}, at which nothing is waited for`);
  return rows;
}
