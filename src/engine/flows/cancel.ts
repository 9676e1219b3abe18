/**
 * Cancels flows. The request is stored first; members are then cancelled in chunks, by this process or any other.
 */
import {
  CANCEL_FLOW_POLICIES,
  type CancelFlowOutcome,
  type CancelFlowRequest,
} from '../../contract/flows.ts';
import { parseExecutionId, type ExecutionId, type ParsedExecutionId } from '../../contract/ids.ts';
import { abortSignal, choice } from '../../contract/shape/kinds.ts';
import { shape } from '../../contract/shape/shape.ts';
import { cancelFlow as writeCancel } from './work.sql.ts';
import { announce } from '../kit/announce.ts';
import type { EngineContext } from '../kit/context.ts';
import { waitForFlow } from './reads.ts';
import { cancelInChunks } from './work.ts';
import { actorName, reasonText } from '../kit/kinds.ts';

const cancelRequest = shape<CancelFlowRequest>({
  reason: reasonText,
  by: actorName.optional(),
  policy: choice(CANCEL_FLOW_POLICIES).optional(),
  wait: choice(['nothing', 'members', 'end']).optional(),
  signal: abortSignal.optional(),
});

export async function cancelFlow(
  context: EngineContext,
  flowId: string,
  request: CancelFlowRequest,
): Promise<CancelFlowOutcome> {
  const flow = parseExecutionId(flowId, 'flowId');
  const {
    reason,
    by = 'operator',
    policy = 'cancel_all',
    wait = 'nothing',
    signal,
  } = cancelRequest.check(request, 'request');
  signal?.throwIfAborted();
  const answer = await writeCancel(context.database, flow, { policy, reason, by });
  if (answer.outcome === 'not_found') return { outcome: 'not_found' };
  if (answer.outcome === 'already_ended') return { outcome: 'already_ended', state: answer.flowOutcome! };
  // At once, because what follows may be aborted or fail: members that waited for the seal may run now.
  if (answer.wasOpen) announce(context, [{ outcome: 'opened', routes: 'all', count: 0 }]);
  const cancelled = await cancelOwn(context, flow, wait, signal);
  if (wait === 'end') await waitForFlow(context, flowId, signal === undefined ? {} : { signal });
  if (answer.outcome === 'already_cancelled') return { outcome: 'already_cancelled', policy: answer.policy! };
  return { outcome: 'cancelled', policy: answer.policy!, cancelled };
}

/**
 * Cancels members in this call if it is to wait for them, so that it returns their ids; in any case this process then
 * does the work that is left.
 */
async function cancelOwn(
  context: EngineContext,
  flow: ParsedExecutionId,
  wait: CancelFlowRequest['wait'],
  signal: AbortSignal | undefined,
): Promise<ExecutionId[]> {
  try {
    return wait === 'nothing' ? [] : await cancelInChunks(context, flow, { others: 'await', signal });
  } finally {
    announce(context, [{ outcome: 'flow_cancelled' }]);
  }
}
