/**
 * The flow of a run: a running member may add others. Added members are identified by name, so that a run after a crash
 * adds nothing twice; and they are added under the lease, so that a run that lost it adds nothing at all.
 */
import type { WorkerPort } from '../../contract/protocol.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { FlowPlan, type FlowExtension } from '../../define/flow-plan.ts';
import type { SubmittedFlow } from '../../contract/flows.ts';
import type { FlowScope } from '../../define/task-context.ts';
import { insist } from './insist.ts';
import { abortCodeFor, type HeldLease } from '../loop/lease-watch.ts';
import { subjectOf, TaskAborted, type AbortCode } from '../task.ts';
import { forgiven } from './waits.ts';

type During = <Value>(work: () => Promise<Value>) => Promise<Value>;

/** Null outside of flows. `during`: a pause waits for work inside it, and its outcome is delivered in order. */
export function flowScope(port: WorkerPort, lease: HeldLease, during: During): FlowScope | null {
  const { flowId } = lease.claim;
  if (flowId === null) return null;
  return {
    flowId,
    extend: (define) => forgiven(() => during(() => extend(port, lease, define))),
  };
}

async function extend(
  port: WorkerPort,
  lease: HeldLease,
  define: (f: FlowExtension) => void,
): Promise<SubmittedFlow> {
  lease.throwIfStopped();
  if (typeof define !== 'function')
    throw new EngineError('invalid_step', `${subjectOf(lease.claim)}: ctx.flow.extend needs a function.`);
  const plan = new FlowPlan<void>();
  const returned: unknown = define(plan as FlowExtension);
  if (typeof (returned as { then?: unknown } | undefined)?.then === 'function')
    throw new EngineError(
      'invalid_step',
      `${subjectOf(lease.claim)}: ctx.flow.extend needs a synchronous function; await before it.`,
    );
  const members = await plan.close().layOut();
  try {
    return await insist(lease, () => port.extendFlow(lease.claim, members));
  } catch (error) {
    const code = isEngineError(error) ? error.code : undefined;
    const isOver = code === 'lease_lost' || code === 'flow_ended';
    const lost = isOver ? await whyLost(port, lease) : undefined;
    // The flow may also have finished, or be about to, without this run having lost its lease.
    if (lost === undefined && code !== 'lease_lost') throw error;
    lease.lose(lost ?? 'lease_lost');
    throw new TaskAborted(lease.lostBy ?? 'lease_lost');
  }
}

/** The flow does not know why a lease was lost. Undefined when it was not, or when the engine does not respond. */
async function whyLost(port: WorkerPort, { claim }: HeldLease): Promise<AbortCode | undefined> {
  const [answer] = await port.renew([claim], claim.leaseMs).catch(() => []);
  if (answer === undefined || answer.outcome === 'renewed' || answer.outcome === 'held') return undefined;
  return abortCodeFor(answer);
}
