/**
 * Submits executions: checks everything, mints ids, and writes all of a call in one statement, on the engine's pool or
 * inside the caller's own transaction. Nothing is written unless every request of the call is in order.
 */
import { randomFillSync } from 'node:crypto';
import { EngineError } from '../contract/errors.ts';
import { formatExecutionId, mintExecutionId, parseExecutionId } from '../contract/ids.ts';
import { LIMITS } from '../contract/limits.ts';
import type { SubmitOptions, SubmitRequest, SubmitResult } from '../contract/engine.ts';
import { MAX_ROUTES } from '../model/routes.ts';
import {
  submitExecutions,
  submitExecutionsInside,
  type SubmitAnswer,
  type SubmitRoute,
  type SubmitRow,
} from '../store/executions.ts';
import {
  checkCapabilities,
  checkList,
  checkName,
  checkTags,
  checkText,
  checkWhole,
  refuse,
} from './checks.ts';
import type { EngineContext } from './context.ts';
import { encodeJson } from './json.ts';
import { encodePolicy } from './policy.ts';

interface CheckedRequest {
  /** A minted id cannot have been there before: `duplicate` then means that an unanswered try had succeeded. */
  minted: boolean;
  row: Omit<SubmitRow, 'routeOrdinal'>;
  route: SubmitRoute;
}

export async function submit(
  context: EngineContext,
  requests: readonly SubmitRequest[],
  options: SubmitOptions = {},
): Promise<SubmitResult[]> {
  checkList(requests, 'requests', LIMITS.submitBatch);
  if (requests.length === 0) return [];
  const mint = newMint();
  const checked = requests.map((request, index) => checkRequest(request, `requests[${index}]`, mint));
  checkBytes(checked);
  // Inside one call the first request with an id wins, as it would over two calls.
  const first = new Map<string, CheckedRequest>();
  for (const entry of checked) {
    const known = first.get(entry.row.uuid);
    if (known === undefined) first.set(entry.row.uuid, entry);
    else if (known.row.partition !== entry.row.partition) {
      refuse('requests', 'name one uuid in two partitions', 'invalid_id');
    }
  }
  const call = { ...withRoutes([...first.values()]), maxRoutes: MAX_ROUTES };
  const answers = await (options.executor === undefined
    ? submitExecutions(context.database, call)
    : submitExecutionsInside(context.database, options.executor, call, options.hint ?? 'on'));
  const results = toResults(checked, first, answers);
  if (options.executor === undefined) ringFor(context, answers);
  return results;
}

function checkRequest(request: SubmitRequest, field: string, mint: () => string): CheckedRequest {
  if (typeof request !== 'object' || request === null) refuse(field, 'must be an object');
  const id = parseExecutionId(request.executionId ?? mint(), `${field}.executionId`);
  const delayMs = request.delayMs ?? 0;
  return {
    minted: request.executionId === undefined,
    row: {
      ...id,
      namespace: checkText(request.namespace ?? 'default', `${field}.namespace`, LIMITS.namespaceBytes),
      priority: checkWhole(request.priority ?? 0, `${field}.priority`, 0, LIMITS.priority),
      delayMs: checkWhole(delayMs, `${field}.delayMs`, 0, LIMITS.delayMs),
      payload: encodeJson(request.payload, `${field}.payload`),
      policy: encodePolicy(request.policy, `${field}.policy`),
      tags: JSON.stringify(checkTags(request.tags ?? {}, `${field}.tags`)),
    },
    route: {
      lane: checkName(request.lane ?? 'default', `${field}.lane`, LIMITS.laneBytes),
      kind: checkName(request.kind, `${field}.kind`, LIMITS.kindBytes),
      capabilities: checkCapabilities(request.capabilities ?? [], `${field}.capabilities`),
    },
  };
}

function checkBytes(checked: readonly CheckedRequest[]): void {
  const bytes = checked.reduce((sum, entry) => sum + Buffer.byteLength(entry.row.payload ?? ''), 0);
  if (bytes <= LIMITS.submitBytes) return;
  throw new EngineError(
    'payload_too_large',
    `The payloads of one submit call are ${bytes} bytes together; the limit is ${LIMITS.submitBytes}. Split the call.`,
    { field: 'requests' },
  );
}

/** Each distinct route once, and every row pointing to its own. */
function withRoutes(entries: readonly CheckedRequest[]): { routes: SubmitRoute[]; rows: SubmitRow[] } {
  const keyed = new Map(entries.map((entry) => [routeKey(entry.route), entry.route]));
  const keys = [...keyed.keys()];
  const ordinals = new Map(keys.map((key, index) => [key, index + 1]));
  return {
    routes: keys.map((key) => keyed.get(key)!),
    rows: entries.map((entry) => ({ ...entry.row, routeOrdinal: ordinals.get(routeKey(entry.route))! })),
  };
}

function routeKey(route: SubmitRoute): string {
  return JSON.stringify([route.lane, route.kind, route.capabilities]);
}

function ringFor(context: EngineContext, answers: readonly SubmitAnswer[]): void {
  const ready = answers.filter((answer) => answer.due_in_ms === null);
  const delays = answers.flatMap((answer) => (answer.due_in_ms === null ? [] : [Number(answer.due_in_ms)]));
  context.doorbell.ring({
    routes: [...new Set(ready.map((answer) => answer.route_id))],
    count: ready.length,
    dueInMs: delays.length === 0 ? null : Math.min(...delays),
  });
}

function toResults(
  checked: readonly CheckedRequest[],
  first: ReadonlyMap<string, CheckedRequest>,
  answers: readonly SubmitAnswer[],
): SubmitResult[] {
  const outcomes = new Map(answers.map((answer) => [answer.execution_id, answer.outcome]));
  return checked.map((entry) => {
    const { uuid, partition } = entry.row;
    const repeated = first.get(uuid) !== entry || outcomes.get(uuid) !== 'submitted';
    const outcome = repeated && !entry.minted ? 'duplicate' : 'submitted';
    return { executionId: formatExecutionId(partition, uuid), outcome };
  });
}

/** Ids of one call, from one draw of randomness. The host's time only orders index pages; nothing reads it back. */
function newMint(): () => string {
  const pool = new Uint8Array(10 * 64);
  let used = pool.length;
  return () => {
    if (used >= pool.length) {
      randomFillSync(pool);
      used = 0;
    }
    used += 10;
    return mintExecutionId(performance.timeOrigin + performance.now(), pool.subarray(used - 10, used));
  };
}
