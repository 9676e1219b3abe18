/**
 * What a running handler does with one of its children besides waiting for it. Under the lease of the parent, and with
 * its own children only: a worker intervenes in no other execution.
 */
import type { DescribedExecution, DescribeOptions, DescribePart } from '../contract/described.ts';
import type { CancelOutcome, OperatorNote } from '../contract/executions.ts';
import { EngineError } from '../contract/errors.ts';
import type { LeaseRef } from '../contract/protocol.ts';
import type { ApproveRequest, DeliverOutcome } from '../contract/signals.ts';
import { describe } from './describe.ts';
import { cancel } from './executions/cancel.ts';
import { readSnapshotOf } from './executions/reads.ts';
import { leaseKey } from './kit/answers.ts';
import { send } from './messages/messages.ts';
import type { Sending } from './messages/sending.ts';
import type { OutgoingMessage, SendOutcome } from '../contract/messages.ts';
import { parsed } from '../contract/shape/kinds.ts';
import { shape } from '../contract/shape/shape.ts';
import type { EngineContext } from './kit/context.ts';
import { approve, type Delivering } from './signals/signals.ts';

async function checkChild(context: EngineContext, lease: LeaseRef, childId: string): Promise<void> {
  leaseKey(lease, 'lease');
  const found = await readSnapshotOf(context, childId);
  if (found?.snapshot.parentId === lease.executionId) return;
  throw new EngineError('not_found', `${childId} is no child of ${lease.executionId}.`, { field: 'childId' });
}

export async function cancelChild(
  context: EngineContext,
  lease: LeaseRef,
  childId: string,
  note: OperatorNote,
): Promise<CancelOutcome> {
  await checkChild(context, lease, childId);
  return (await cancel(context, [childId], note))[0]!;
}

export async function describeChild<Part extends DescribePart>(
  context: EngineContext,
  lease: LeaseRef,
  childId: string,
  options: DescribeOptions<Part> = {},
): Promise<DescribedExecution<Part>> {
  await checkChild(context, lease, childId);
  return describe(context, childId, options);
}

export async function signalChild(
  delivering: Delivering,
  lease: LeaseRef,
  childId: string,
  waitpoint: string,
  request: ApproveRequest,
): Promise<DeliverOutcome> {
  await checkChild(delivering.context, lease, childId);
  return approve(delivering, childId, waitpoint, request);
}

const outgoing = shape<OutgoingMessage>({
  mailbox: parsed,
  payload: parsed.optional(),
  id: parsed.optional(),
});

export async function sendToChild(
  sending: Sending,
  lease: LeaseRef,
  childId: string,
  message: OutgoingMessage,
): Promise<SendOutcome> {
  const { mailbox, payload, ...options } = outgoing.check(message, 'message');
  await checkChild(sending.context, lease, childId);
  return send(sending, childId, mailbox, payload, options);
}
