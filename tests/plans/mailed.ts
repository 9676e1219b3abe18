/**
 * The part of the walk about messages: sending, receiving, waiting, running out of time and of messages, replying.
 */
import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/engine/database/database.ts';
import type { LeaseKey } from '../../src/engine/executions/executions.sql.ts';
import { listDueTimers } from '../../src/engine/executions/due.sql.ts';
import {
  readMessages,
  continueExecution,
  readReplies,
  readRuns,
  replyToMessage,
  sendMessage,
  sendMessages,
  startAndSend,
  type MessageCall,
} from '../../src/engine/messages/messages.sql.ts';
import { readForExplain } from '../../src/engine/operator/explain.sql.ts';
import { suspendExecution, type SuspendAnswer } from '../../src/engine/signals/signals.sql.ts';
import { operatorCallsOn } from './operated.ts';
import type { Recorder } from './plan-recorder.ts';
import {
  callsOn,
  claimBatch,
  LARGE_PAYLOAD,
  makeKnown,
  submitBatch,
  submitCall,
  unknownLeases,
} from './workload.ts';

const SCENES = 4;
const CONTINUED = 3;
const MAILBOX = { maxMessages: 1_000, maxBytes: 1_000_000 };
const NAME = 'inbox:in';

function messageTo({ uuid, partition }: LeaseKey, messageId: string = randomUUID()): MessageCall {
  return { uuid, partition, mailbox: 'in', messageId, payload: '{}', isRequest: true };
}

/** `limit`: messages that a run may take. */
function receive(
  database: Database,
  lease: LeaseKey,
  key: string,
  { limit = 1_000, timeoutMs = null }: { limit?: number; timeoutMs?: number | null } = {},
): Promise<SuspendAnswer> {
  return suspendExecution(database, {
    lease,
    transition: 'suspend',
    mode: 'suspend',
    waits: [
      {
        name: NAME,
        key,
        condition: { kind: 'message', mailbox: 'in', limit },
        timeout_ms: timeoutMs,
        on_timeout: timeoutMs === null ? 'fail' : 'resume',
        resume_delay_ms: 0,
        reason: 'signal',
      },
    ],
    waitpoints: [],
    maxWaitpoints: 0,
    children: null,
    needed: null,
    delayMs: null,
  });
}

async function fireUntilNone(database: Database): Promise<void> {
  for (;;) {
    const due = await listDueTimers(database, 1_000);
    if (due.length === 0) return;
    await callsOn(database).fire(due.map((timer) => timer.timerId));
  }
}

/** Sent before, received, replied, waited for, resumed. */
async function walkReceived(database: Database, lease: LeaseKey): Promise<void> {
  const early = messageTo(lease);
  await sendMessages(database, [early, early, messageTo(lease), messageTo(unknownLeases(1)[0]!)], MAILBOX);
  await sendMessage(database, early, { maxMessages: 0, maxBytes: 0 });
  await sendMessage(database, messageTo(lease), { maxMessages: 0, maxBytes: 0 });
  for (const key of ['1', '2']) await receive(database, lease, key);
  await replyToMessage(database, { ...lease, messageId: early.messageId, name: NAME, key: '1', value: '1' });
  await readReplies(database, [early, messageTo(lease)]);
  const { outcome } = await receive(database, lease, '3');
  if (outcome !== 'suspended') throw new Error(`the walk was not suspended: ${outcome}`);
  await sendMessages(database, [messageTo(lease)], MAILBOX);
  await readMessages(database, lease, { pending: 10, handed: 10 });
}

/** With messages, with more steps than are deleted at once, and cancelled before the next run. */
async function walkContinued(
  database: Database,
  client: Recorder['client'],
  take: () => Promise<LeaseKey>,
): Promise<void> {
  const terms = { input: '1', keptRuns: 1, idMs: -1, part: 1_000 };
  const [first, parts, cancelled] = [await take(), await take(), await take()];
  await sendMessages(database, [messageTo(first)], MAILBOX);
  await receive(database, first, '1');
  for (let runs = 0; runs < 2; runs += 1) await continueExecution(database, { ...first, ...terms });
  await continueExecution(database, { ...(await take()), ...terms });
  await readRuns(database, first);
  for (const lease of [parts, cancelled]) {
    await client.query(
      `INSERT INTO ff_step (execution_id, partition_key, attempt_index, lease_epoch, recorded_at_ms, kind, name, key)
       SELECT $1, $2, 0, 1, 1, 'step', 's', n::text FROM generate_series(1, 2500) n`,
      [lease.uuid, lease.partition],
    );
    await continueExecution(database, { ...lease, ...terms });
  }
  await callsOn(database).cancel([cancelled]);
  await operatorCallsOn(database).replay([cancelled], 'failed_step');
  await fireUntilNone(database);
}

/** Sent to a key that names nothing, with a route nobody knows and then with a known one, and again when it names one. */
async function walkStarted(database: Database): Promise<void> {
  const key = randomUUID();
  const call = submitCall({ kinds: [`started-${key}`], count: 1, payload: LARGE_PAYLOAD });
  const message = () => ({ mailbox: 'in', messageId: randomUUID(), payload: '{}', isRequest: false, key });
  await startAndSend(database, call, message(), MAILBOX);
  await startAndSend(database, await makeKnown(database, call), message(), MAILBOX);
  const next = submitCall({ kinds: [`started-${key}`], count: 1 });
  await startAndSend(database, next, message(), MAILBOX);
}

export async function walkMailed(database: Database, client: Recorder['client']): Promise<void> {
  await walkStarted(database);
  const runs = await submitBatch(database, { kinds: [`continued-${randomUUID()}`], count: CONTINUED });
  await walkContinued(database, client, async () => (await claimBatch(database, runs.routes, 1))[0]!);
  const [stranger] = unknownLeases(1);
  await replyToMessage(database, { ...stranger!, messageId: 'm', name: NAME, key: '1', value: '1' });
  const { routes } = await submitBatch(database, { kinds: [`mailed-${randomUUID()}`], count: SCENES });
  const leases = await claimBatch(database, routes, SCENES);
  const [received, full, unread, late] = leases as [LeaseKey, LeaseKey, LeaseKey, LeaseKey];
  await walkReceived(database, received);
  // Times out although something came, which its run may not take any more.
  await receive(database, full, '1', { limit: 0, timeoutMs: 50 });
  await sendMessages(database, [messageTo(full)], MAILBOX);
  await readForExplain(database, full, 30_000);
  // Ends with unread messages.
  await sendMessages(database, [messageTo(unread)], MAILBOX);
  await callsOn(database).complete([unread]);
  await sendMessages(database, [messageTo(unread)], MAILBOX);
  // The message that it waits for comes when its time is over.
  await receive(database, late, '1', { timeoutMs: 50 });
  do await fireUntilNone(database);
  while ((await readForExplain(database, late, 30_000))?.state.lifecyclePhase === 'suspended');
}
