/**
 * The part of the walk about executions that ask for all events: by their policy, and by their lane.
 */
import { randomUUID } from 'node:crypto';
import type { Database } from '../../src/engine/database/database.ts';
import { sendMessage } from '../../src/engine/messages/messages.sql.ts';
import { setLaneEvents } from '../../src/engine/operator/lanes.sql.ts';
import { callsOn, claimBatch, submitBatch } from './workload.ts';

export async function walkAskedEvents(database: Database, each: number): Promise<void> {
  const calls = callsOn(database);
  const kind = `asked-${randomUUID().slice(0, 8)}`;
  await setLaneEvents(database, kind, false);
  await setLaneEvents(database, kind, true);
  const { routes } = await submitBatch(database, { kinds: [kind], count: each, policy: { events: 'all' } });
  const held = await claimBatch(database, routes, each);
  await calls.record(held);
  await calls.report(held);
  // One with a message that it has not received.
  const { uuid, partition } = held[0]!;
  const message = { uuid, partition, mailbox: 'in', messageId: kind, payload: '1', isRequest: false };
  await sendMessage(database, message, { maxMessages: 10, maxBytes: 1_000 });
  await calls.complete(held);
  await setLaneEvents(database, kind, false);
}
