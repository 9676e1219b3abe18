/**
 * The part of the walk about signals: waitpoints, suspensions, delivery, timeouts, and the keys of tokens.
 */
import { randomUUID } from 'node:crypto';
import type { SignalCondition } from '../../src/contract/signals.ts';
import type { Database } from '../../src/engine/database/database.ts';
import type { LeaseKey } from '../../src/engine/executions/executions.sql.ts';
import { readForExplain } from '../../src/engine/operator/explain.sql.ts';
import { listDueTimers } from '../../src/engine/executions/due.sql.ts';
import {
  createWaitpoint,
  listWaitpointsOf,
  deliverSignal,
  deliverSignals,
  revokeTokens,
  suspendExecution,
  type SignalAnswer,
  type SignalCall,
  type SuspendAnswer,
  type SuspendCall,
  type WaitRow,
  type WaitpointAnswer,
} from '../../src/engine/signals/signals.sql.ts';
import { currentKey, keyVerifies, revokeKey, rotateKey } from '../../src/engine/signals/signing-keys.sql.ts';
import { spawnExecutions } from '../../src/engine/executions/submitting/submits.sql.ts';
import type { Recorder } from './plan-recorder.ts';
import { callsOn, claimBatch, makeKnown, submitBatch, submitCall, unknownLeases } from './workload.ts';

const MANY = 1_000_000;
const HOUR_MS = 3_600_000;
const SCENES = 9;
const HERE = 'here';
const KID = 'walk';
const PRINT = 'p';

/** Nested, with both ways of counting that read more than signals. */
const NESTED: SignalCondition = {
  kind: 'any',
  of: [
    { kind: 'all', of: [{ kind: 'count', n: 2, by: 'sources', waitpoints: [HERE] }] },
    { kind: 'count', n: 2, by: 'signals', waitpoints: [HERE, 'there'], match: 'go' },
  ],
};
const ONE: SignalCondition = { kind: 'count', n: 1, by: 'signals', waitpoints: [HERE] };

type Terms = Partial<WaitRow> &
  Partial<Pick<SuspendCall, 'transition' | 'mode' | 'children' | 'needed' | 'delayMs'>>;

interface ToldCalls {
  open(lease: LeaseKey, expiresInMs?: number): Promise<WaitpointAnswer>;
  suspend(lease: LeaseKey, terms?: Terms): Promise<SuspendAnswer>;
  tell(lease: LeaseKey, waitpoint?: { uuid: string }): Promise<SignalAnswer>;
}

function toldCallsOn(database: Database): ToldCalls {
  return {
    open: (lease, expires_in_ms = HOUR_MS) =>
      createWaitpoint(database, lease, { id: randomUUID(), name: HERE, expires_in_ms, kid: KID }, MANY),
    suspend: (
      lease,
      {
        transition = 'suspend',
        mode = 'suspend',
        children = null,
        needed = null,
        delayMs = null,
        ...wait
      } = {},
    ) =>
      suspendExecution(database, {
        lease,
        transition,
        mode,
        waits: [waitRow(wait)],
        waitpoints: [
          {
            id: randomUUID(),
            name: HERE,
            expires_in_ms: wait.timeout_ms ?? null,
            step_name: 'w',
            step_key: '',
          },
        ],
        maxWaitpoints: MANY,
        children,
        needed,
        delayMs,
      }),
    async tell({ uuid, partition }, waitpoint) {
      const call: SignalCall = {
        uuid,
        partition,
        waitpoint:
          waitpoint === undefined
            ? { name: HERE }
            : { ...waitpoint, kid: KID, print: PRINT, tokenExpiresAtMs: 9e15 },
        signalId: randomUUID(),
        name: 'go',
        sourceType: 'user',
        sourceIdentity: randomUUID(),
        payload: '{}',
        idempotencyKey: randomUUID(),
        payloadIs: 'checked',
        maxSignals: MANY,
        maxBytes: MANY,
      };
      const toNobody = { ...call, uuid: randomUUID() };
      const [told] = await deliverSignals(database, [call, toNobody]);
      return told ?? deliverSignal(database, call);
    },
  };
}

function waitRow(wait: Partial<WaitRow>): WaitRow {
  return {
    name: 'w',
    key: '',
    condition: ONE,
    timeout_ms: null,
    on_timeout: 'fail',
    resume_delay_ms: 0,
    reason: 'signal',
    ...wait,
  };
}

async function fireDue(database: Database): Promise<void> {
  const due = await listDueTimers(database, 1_000);
  await callsOn(database).fire(due.map((timer) => timer.timerId));
}

/** Opened early, signalled early, begun without suspending, suspended, satisfied. */
async function walkSignals(database: Database, take: () => Promise<LeaseKey>): Promise<void> {
  const calls = toldCallsOn(database);
  const early = await take();
  const { waitpointUuid: uuid } = await calls.open(early);
  await calls.suspend(early, { mode: 'poll', condition: NESTED });
  await calls.tell(early, { uuid });
  await calls.suspend(early, { condition: NESTED, resume_delay_ms: HOUR_MS });
  const answers = [await calls.tell(early), await calls.tell(early)];
  if (answers.map(({ effect }) => effect).join() !== 'resumed,')
    throw new Error('the walk was not told enough');
  const satisfied = await take();
  await calls.open(satisfied);
  await calls.tell(satisfied);
  await calls.suspend(satisfied);
  await revokeTokens(database, satisfied, HERE, randomUUID());
}

/** Waits that time out. */
async function walkLate(database: Database, take: () => Promise<LeaseKey>): Promise<void> {
  const calls = toldCallsOn(database);
  for (const on_timeout of ['escalate', 'fail', 'expire']) {
    await calls.suspend(await take(), { timeout_ms: 0, on_timeout });
  }
  // A wait that is overdue when it begins resumes at once: this one is not overdue yet.
  const later = await take();
  await calls.suspend(later, { timeout_ms: 50, on_timeout: 'resume' });
  await readForExplain(database, later, 30_000);
  const parent = await take();
  const call = await makeKnown(database, submitCall({ kinds: ['told-child'], count: 1 }));
  await spawnExecutions(database, parent, call);
  const [child] = await spawnExecutions(database, parent, call);
  await calls.suspend(parent, { delayMs: 0, children: [child!.uuid], needed: 1 });
  await calls.open(await take(), 0);
  // Until it is, and no timer is left that later parts would meet.
  do await fireDue(database);
  while ((await listWaitpointsOf(database, later)).length + (await listDueTimers(database, 1)).length > 0);
}

async function walkKeys(database: Database): Promise<void> {
  const made = () => ({ kid: randomUUID().slice(0, 8), print: 'p' });
  const { kid } = await currentKey(database, made(), HOUR_MS);
  await revokeKey(database, kid);
  await rotateKey(database, made(), HOUR_MS, HOUR_MS);
  await currentKey(database, made(), HOUR_MS);
  await revokeKey(database, kid);
  await revokeKey(database, kid);
  await revokeKey(database, 'nobody');
  await rotateKey(database, made(), null, HOUR_MS);
  await keyVerifies(database, kid, 'p');
}

export async function walkTold(database: Database, client: Recorder['client']): Promise<void> {
  const calls = toldCallsOn(database);
  const [stranger] = unknownLeases(1);
  await calls.open(stranger!);
  await calls.suspend(stranger!);
  await calls.tell(stranger!);
  // There is none yet: the one offered becomes it.
  await client.query('DELETE FROM ff_signing_key');
  await currentKey(database, { kid: KID, print: PRINT }, HOUR_MS);
  const { routes } = await submitBatch(database, { kinds: [`told-${randomUUID()}`], count: SCENES });
  const take = async (): Promise<LeaseKey> => (await claimBatch(database, routes, 1))[0]!;
  await walkSignals(database, take);
  await walkLate(database, take);
  const ended = await take();
  await calls.suspend(ended);
  await callsOn(database).cancel([ended]);
  await walkKeys(database);
}
