/**
 * Cancels flows. What is asked for is stored first; the members follow in chunks, by this process or any other.
 */
import {
  CANCEL_FLOW_POLICIES,
  type CancelFlowOutcome,
  type CancelFlowRequest,
} from '../../contract/flows.ts';
import { parseExecutionId } from '../../contract/ids.ts';
import { LIMITS } from '../../contract/limits.ts';
import { cancelFlow as writeCancel } from './work.sql.ts';
import { announce, type Opened } from '../kit/announce.ts';
import { checkSignal, checkText } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { waitForFlow } from './reads.ts';
import { cancelInChunks } from './work.ts';
import { checkChoice, checkMembers } from '../kit/settings.ts';

export async function cancelFlow(
  context: EngineContext,
  flowId: string,
  request: CancelFlowRequest,
): Promise<CancelFlowOutcome> {
  const flow = parseExecutionId(flowId, 'flowId');
  checkMembers(request, 'request', ['reason', 'by', 'policy', 'wait', 'signal']);
  checkChoice(request.policy, 'request.policy', CANCEL_FLOW_POLICIES);
  checkChoice(request.wait, 'request.wait', ['nothing', 'members', 'end']);
  const signal = checkSignal(request.signal, 'request.signal');
  signal?.throwIfAborted();
  const answer = await writeCancel(context.database, flow, {
    policy: request.policy ?? 'cancel_all',
    reason: checkText(request.reason, 'request.reason', LIMITS.reasonBytes),
    by: checkText(request.by ?? 'operator', 'request.by', LIMITS.reasonBytes),
  });
  if (answer.outcome === 'not_found') return { outcome: 'not_found' };
  if (answer.outcome === 'already_ended') return { outcome: 'already_ended', state: answer.flowOutcome! };
  const wait = request.wait ?? 'nothing';
  const cancelled =
    wait === 'nothing' ? [] : await cancelInChunks(context, flow, { others: 'await', signal });
  // Members that were held until it was sealed may run now.
  const opened: Opened[] = answer.wasOpen ? [{ outcome: 'opened', routes: 'all', count: 0 }] : [];
  announce(context, [{ outcome: 'flow_cancelled' }, ...opened]);
  if (wait === 'end') await waitForFlow(context, flowId, signal === undefined ? {} : { signal });
  if (answer.outcome === 'already_cancelled') return { outcome: 'already_cancelled', policy: answer.policy! };
  return { outcome: 'cancelled', policy: answer.policy!, cancelled };
}
