/**
 * Submits executions: checks everything, mints ids, and writes all of a call in one statement, on the engine's pool or
 * inside the caller's own transaction. Nothing is written unless every request of the call is valid. Single submits
 * made at the same time share a statement.
 */
import { EngineError, isEngineError, isPassingTrouble } from '../../../contract/errors.ts';
import { formatExecutionId } from '../../../contract/ids.ts';
import { choice, func } from '../../../contract/shape/kinds.ts';
import { refuse, shape } from '../../../contract/shape/shape.ts';
import type { SubmitOptions, SubmitRequest, SubmitResult } from '../../../contract/executions.ts';
import type { LeaseRef } from '../../../contract/protocol.ts';
import type { ChildRequest, SpawnOutcome } from '../../../contract/steps.ts';
import { isLockTimeout, isUniqueViolation } from '../../database/database.ts';
import type { LeaseKey } from '../executions.sql.ts';
import {
  spawnExecutions,
  submitEach,
  submitExecutions,
  submitExecutionsInside,
  submitOne,
  type SpawnAnswer,
  type SubmitAnswer,
  type SubmitCall,
} from './submits.sql.ts';
import { insideOf } from '../../database/inside.ts';
import { announce, type Answer } from '../../kit/announce.ts';
import { Batch } from '../../kit/batch.ts';
import type { EngineContext } from '../../kit/context.ts';
import { checkChildRequests, checkOne, checkRequests, type DefaultPolicy } from './check-request.ts';
import { allHeld, HeldSubmits, heldError, HELD_PATIENCE_MS, type Held } from './held-submits.ts';
import { knowingRoutes } from './interning.ts';
import { mintFor, newMint } from './mint.ts';
import { leaseKey, toRefusal } from '../../kit/answers.ts';
import { toCall, type CheckedRequest } from './submit-call.ts';

const submitOptions = shape<SubmitOptions>({
  executor: func.optional(),
  hint: choice(['on', 'off']).optional(),
});

const BATCH = {
  maxItems: 500,
  maxFlights: 3,
  keyOf: lineOf,
  sizeOf: (entry: CheckedRequest) => entry.payload?.length ?? 0,
  isItemFault: (error: unknown) => !isPassingTrouble(error),
};

export interface Submits {
  one(request: SubmitRequest, options: SubmitOptions): Promise<SubmitResult>;
  many(requests: readonly SubmitRequest[], options: SubmitOptions): Promise<SubmitResult[]>;
  /** Submits children under the lease of their parent. */
  spawn(lease: LeaseRef, requests: readonly ChildRequest[]): Promise<SpawnOutcome>;
  /** Resolves when every call made so far has its answer. */
  settled(): Promise<void>;
}

export function createSubmits(context: EngineContext, defaultPolicy: DefaultPolicy): Submits {
  const singles = new Batch<CheckedRequest, SubmitResult>({
    ...BATCH,
    run: (entries) => submitUnnamed(context, entries),
  });
  const named = new HeldSubmits({
    together: { ...BATCH, run: (entries) => submitNamed(context, entries) },
    apart: { ...BATCH, run: (entries) => submitApart(context, entries) },
  });
  const spawns = new Batch<Spawn, SpawnOutcome>({
    maxItems: BATCH.maxItems,
    maxFlights: BATCH.maxFlights,
    isItemFault: BATCH.isItemFault,
    keyOf: (item) => item.entries.map((entry) => entry.uuid).join(),
    sizeOf: (item) => item.entries.length * 64,
    run: (items) => spawnAll(context, items),
  });
  return {
    async one(request, options) {
      submitOptions.check(options, 'options');
      const entry = checkOne(request, defaultPolicy);
      const isNamed = !entry.minted || entry.idempotency !== null || entry.own !== null;
      if (options.executor !== undefined) checkInside([entry]);
      if (options.executor === undefined) return (isNamed ? named : singles).add(entry);
      return (await submit(context, [entry], options))[0]!;
    },
    async many(requests, options) {
      submitOptions.check(options, 'options');
      const entries = checkRequests(requests, defaultPolicy, newMint());
      checkOwnKeys(entries);
      if (options.executor !== undefined) checkInside(entries);
      return entries.length === 0 ? [] : submit(context, entries, options);
    },
    async spawn(lease, requests) {
      const parent = leaseKey(lease, 'lease');
      const entries = checkChildRequests(requests, defaultPolicy, mintFor(parent.partition));
      checkChildren(entries, parent.partition);
      return entries.length === 0 ? { outcome: 'spawned', children: [] } : spawns.add({ parent, entries });
    },
    async settled() {
      await Promise.all([singles.settled(), named.settled(), spawns.settled()]);
    },
  };
}

/** A child is identified by its id, and lives where its parent does: its end and the parent's timer are one commit. */
function checkChildren(entries: readonly CheckedRequest[], partition: number): void {
  entries.forEach((entry, index) => {
    if (entry.idempotency !== null) refuse('requests', 'cannot have idempotency keys');
    if (entry.own !== null) refuse(`requests[${index}].key`, 'cannot be given to a child', 'key_not_here');
    if (entry.partition === partition) return;
    const what = `is not in partition ${partition}, where its parent is`;
    refuse(`requests[${index}].executionId`, what, 'invalid_id');
  });
}

/** A caller's transaction may last: meanwhile nobody could end or renew an execution that it has replaced. */
function checkInside(entries: readonly CheckedRequest[]): void {
  entries.forEach(({ own }, index) => {
    if (own?.ifExists !== 'replace') return;
    const request = entries.length === 1 ? 'request' : `requests[${index}]`;
    refuse(`${request}.ifExists`, "cannot be replace inside the caller's transaction");
  });
}

/** One call decides on a key once. */
function checkOwnKeys(entries: readonly CheckedRequest[]): void {
  const seen = new Set<string>();
  for (const entry of entries) {
    if (entry.own === null) continue;
    if (seen.has(lineOf(entry))) refuse('requests', 'contain one key twice; submit them one after the other');
    seen.add(lineOf(entry));
  }
}

/** Children to be submitted for one parent. */
interface Spawn {
  parent: LeaseKey;
  entries: CheckedRequest[];
}

/** Children of one parent share a statement; parents take turns. */
async function spawnAll(context: EngineContext, items: readonly Spawn[]): Promise<SpawnOutcome[]> {
  const families = new Map<string, Spawn[]>();
  for (const item of items) {
    const { uuid, attemptIndex, leaseEpoch } = item.parent;
    const name = `${uuid}/${attemptIndex}/${leaseEpoch}`;
    const family = families.get(name);
    if (family === undefined) families.set(name, [item]);
    else family.push(item);
  }
  const outcomes = new Map<Spawn, SpawnOutcome>();
  for (const family of families.values()) {
    const entries = family.flatMap((item) => item.entries);
    const outcome = await spawn(context, family[0]!.parent, entries);
    let from = 0;
    for (const item of family) {
      outcomes.set(item, partOf(outcome, from, item.entries.length));
      from += item.entries.length;
    }
  }
  return items.map((item) => outcomes.get(item)!);
}

function partOf(outcome: SpawnOutcome, from: number, count: number): SpawnOutcome {
  if (outcome.outcome !== 'spawned') return outcome;
  return { outcome: 'spawned', children: outcome.children.slice(from, from + count) };
}

async function spawn(
  context: EngineContext,
  parent: LeaseKey,
  entries: readonly CheckedRequest[],
): Promise<SpawnOutcome> {
  const first = firstOfEach(entries);
  const sent = first === undefined ? entries : [...first.values()];
  const answers = await knowingRoutes(context, toCall(sent), (call) => spawnMarked(context, parent, call));
  const refused = answers.find((answer) => !['submitted', 'duplicate'].includes(answer.outcome));
  if (refused !== undefined) return toRefusal(refused);
  announce(context, toAnswers(answers, sent));
  const ended = answers.filter((answer) => answer.endedWithParent).map(({ uuid }) => uuid);
  if (ended.length > 0) await context.families.revive(parent, ended);
  return { outcome: 'spawned', children: toResults(entries, first, answers) as SubmitResult[] };
}

/** The first spawn of an execution's life marks it as a parent, and does nothing else. */
async function spawnMarked(
  { database }: EngineContext,
  parent: LeaseKey,
  call: SubmitCall,
): Promise<SpawnAnswer[]> {
  const answers = await spawnExecutions(database, parent, call);
  return answers[0]?.outcome === 'marked' ? spawnExecutions(database, parent, call) : answers;
}

async function submit(
  context: EngineContext,
  entries: readonly CheckedRequest[],
  { executor, hint = 'on' }: SubmitOptions,
): Promise<SubmitResult[]> {
  const { database } = context;
  if (executor === undefined)
    return (await send(context, entries, (call) => submitExecutions(database, call))) as SubmitResult[];
  const own = await insideOf(executor);
  const inside = (call: SubmitCall) => submitExecutionsInside(database, own, call, hint);
  return (await send(context, entries, inside, 'inside')) as SubmitResult[];
}

/** Under new ids. If the answer of an earlier try was lost, one may exist; the statement for several then says so. */
async function submitUnnamed(
  context: EngineContext,
  entries: readonly CheckedRequest[],
): Promise<SubmitResult[]> {
  if (entries.length > 1) return submit(context, entries, {});
  const alone = (call: SubmitCall) =>
    submitOne(context.database, call).catch((error: unknown) => {
      if (!isUniqueViolation(error)) throw error;
      return submitExecutions(context.database, call);
    });
  return (await send(context, entries, alone)) as SubmitResult[];
}

/** A long transaction may be using a key or an id; which of them is held only shows when each is tried on its own. */
async function submitNamed(
  context: EngineContext,
  entries: readonly CheckedRequest[],
): Promise<(SubmitResult | Held)[]> {
  return send(context, entries, (call) =>
    submitExecutions(context.database, call, HELD_PATIENCE_MS.together).catch((error: unknown) => {
      if (!isLockTimeout(error)) throw error;
      return allHeld(call);
    }),
  );
}

function submitApart(
  context: EngineContext,
  entries: readonly CheckedRequest[],
): Promise<(SubmitResult | Held)[]> {
  return send(context, entries, (call) => submitEach(context.database, call, HELD_PATIENCE_MS.apart));
}

async function send(
  context: EngineContext,
  entries: readonly CheckedRequest[],
  statement: (call: SubmitCall) => Promise<SubmitAnswer[]>,
  where: 'inside' | 'alone' = 'alone',
): Promise<(SubmitResult | Held)[]> {
  const first = firstOfEach(entries);
  const sent = first === undefined ? entries : [...first.values()];
  try {
    const answers = await knowingRoutes(context, toCall(sent), statement, where);
    // Inside a caller's transaction the statement itself sends the hint, which goes out with the commit.
    if (where === 'alone') announce(context, toAnswers(answers, sent));
    return toResults(entries, first, answers);
  } catch (error) {
    throw withField(error, entries, sent);
  }
}

/** What identifies a request: its idempotency key if it has one, otherwise its id. */
function identityOf({ idempotency, namespace, uuid }: CheckedRequest): string {
  return idempotency === null ? uuid : JSON.stringify([namespace, idempotency.key]);
}

/** Two requests with one key are decided one after the other. */
function lineOf(entry: CheckedRequest): string {
  return entry.own === null ? identityOf(entry) : JSON.stringify(['key', entry.namespace, entry.own.key]);
}

/**
 * Within one call the first request with an id or a key wins, as it would across two calls. Undefined when no two can be
 * the same, because all ids were minted for this call.
 */
function firstOfEach(entries: readonly CheckedRequest[]): Map<string, CheckedRequest> | undefined {
  if (entries.every((entry) => entry.minted && entry.idempotency === null)) return undefined;
  const first = new Map<string, CheckedRequest>();
  entries.forEach((entry, index) => {
    const known = first.get(identityOf(entry));
    if (known === undefined) {
      first.set(identityOf(entry), entry);
      return;
    }
    if (known.idempotency?.bodyHash !== entry.idempotency?.bodyHash) throw keyReused(`requests[${index}]`);
    if (known.partition !== entry.partition) {
      refuse('requests', 'contain one uuid in two partitions', 'invalid_id');
    }
  });
  return first;
}

function keyReused(request: string, cause?: unknown): EngineError {
  const field = `${request}.idempotencyKey`;
  const what = 'was already used for a request with another kind, payload or tags';
  return new EngineError('idempotency_key_reused', `${field} ${what}.`, { field, cause });
}

function keyOfAnother(request: string, cause?: unknown): EngineError {
  const field = `${request}.key`;
  return new EngineError('key_of_another_task', `${field} names an execution of another task.`, {
    field,
    cause,
  });
}

/** The database reports the index of the request in the statement. */
function withField(
  error: unknown,
  entries: readonly CheckedRequest[],
  sent: readonly CheckedRequest[],
): unknown {
  if (!isEngineError(error)) return error;
  if (error.code === 'contention' && isLockTimeout(error)) return heldError('requests', error);
  if (error.code !== 'idempotency_key_reused' && error.code !== 'key_of_another_task') return error;
  const { detail } = (error.cause ?? {}) as { detail?: unknown };
  const index = entries.indexOf(sent[Number(detail) - 1]!);
  const request = entries.length === 1 ? 'request' : `requests[${Math.max(index, 0)}]`;
  return error.code === 'idempotency_key_reused' ? keyReused(request, error) : keyOfAnother(request, error);
}

/** The database sets a timer for each deadline, but does not return it. */
export function toAnswers(answers: readonly Submitted[], sent: readonly CheckedRequest[]): readonly Answer[] {
  const cancelled = sent.some(({ own }) => own !== null) ? answers.flatMap(cancelledBy) : [];
  if (sent.every(({ deadlineMs }) => deadlineMs === undefined)) return [...answers, ...cancelled];
  const deadlines = sent.flatMap(({ deadlineMs }) => deadlineMs ?? []);
  const due = deadlines.map((ms) => ({ outcome: 'submitted' as const, deadlineInMs: ms }));
  return [...answers, ...cancelled, ...due];
}

function cancelledBy({ outcome, existingId, workerInstanceId }: Submitted): Answer[] {
  if (outcome !== 'replaced') return [];
  return [{ outcome: 'cancelled', uuid: existingId!, workerInstanceId: workerInstanceId ?? null }];
}

/** What the key decided, when it named an open execution. */
function toKeyedResult(
  { partition, uuid }: CheckedRequest,
  outcome: string,
  existing: string | null,
): SubmitResult | undefined {
  if (existing === null) return undefined;
  const other = formatExecutionId(partition, existing);
  if (outcome === 'attached' || outcome === 'refused') return { executionId: other, outcome };
  if (outcome !== 'replaced') return undefined;
  return { executionId: formatExecutionId(partition, uuid), outcome, replacedId: other };
}

type Submitted = Pick<SpawnAnswer, 'uuid' | 'outcome'> &
  Partial<Pick<SubmitAnswer, 'existingId' | 'workerInstanceId'>>;

function toResults(
  entries: readonly CheckedRequest[],
  first: ReadonlyMap<string, CheckedRequest> | undefined,
  answers: readonly Submitted[],
): (SubmitResult | Held)[] {
  let byId: Map<string, Submitted> | undefined;
  return entries.map((entry, index) => {
    const leader = first === undefined ? entry : first.get(identityOf(entry))!;
    // They mostly come back as they were sent.
    const beside = answers[index];
    if (beside?.uuid === leader.uuid) return toResult(entry, leader, beside);
    byId ??= new Map(answers.map((answer) => [answer.uuid, answer]));
    return toResult(entry, leader, byId.get(leader.uuid));
  });
}

function toResult(
  entry: CheckedRequest,
  leader: CheckedRequest,
  answer: Submitted | undefined,
): SubmitResult | Held {
  if (answer?.outcome === 'held') return 'held';
  const existing = answer?.existingId ?? null;
  const byKey = answer === undefined ? undefined : toKeyedResult(leader, answer.outcome, existing);
  if (byKey !== undefined) return byKey;
  const repeated = leader !== entry || answer?.outcome !== 'submitted';
  // A minted id cannot have existed before: an unanswered try of this very call had succeeded.
  const unanswered = entry.minted && leader === entry && existing === null;
  return {
    executionId: formatExecutionId(leader.partition, existing ?? leader.uuid),
    outcome: repeated && !unanswered ? 'duplicate' : 'submitted',
  };
}
