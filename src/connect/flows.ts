/**
 * Submits flows by their definition and reads their result with its type.
 */
import type { Executions, Flows } from '../contract/connection.ts';
import { ExecutionFailed } from '../contract/errors.ts';
import type { WaitOptions } from '../contract/executions.ts';
import type {
  CancelFlowOutcome,
  CancelFlowRequest,
  FlowId,
  FlowSnapshot,
  SubmittedFlow,
} from '../contract/flows.ts';
import { parseExecutionId } from '../contract/ids.ts';
import { parsed } from '../contract/shape/kinds.ts';
import { refuse, shape } from '../contract/shape/shape.ts';
import { withTrace, type SpanName } from '../contract/trace-context.ts';
import type { FlowDefinition } from '../define/flow-plan.ts';
import { revealedWait } from './revealed-wait.ts';

/** Options of submitting a flow. */
export interface FlowSubmitOptions {
  /** Makes the submit repeatable: a second one with the same id returns `duplicate`. Default: a new id. */
  flowId?: string;
  /** Default `default`. */
  namespace?: string;
  /** Tags of the flow; members have their own. */
  tags?: Record<string, string>;
}

/** The values are checked with the request. */
const flowSubmitOptions = shape<FlowSubmitOptions>({
  flowId: parsed.optional(),
  namespace: parsed.optional(),
  tags: parsed.optional(),
});

/** A flow by its id, submitted here or elsewhere. */
export interface FlowHandle {
  readonly flowId: FlowId;
  /** Reads the flow with its members and edges; null when it does not exist. */
  describe(): Promise<FlowSnapshot | null>;
  /** Waits until the whole flow has finished and returns its outcome. Throws `not_found`. */
  wait(options?: WaitOptions): Promise<'completed' | 'failed' | 'cancelled'>;
  /** Cancels the flow, and those of its members that the policy covers. */
  cancel(request: CancelFlowRequest): Promise<CancelFlowOutcome>;
}

/** A flow as its submit returns it, with the type of its result. */
export interface FlowRun<Out> extends FlowHandle, SubmittedFlow {
  readonly flowId: FlowId;
  /**
   * Waits for the result of the member that the definition returns; other members may still run. Throws ExecutionFailed
   * when that member did not succeed.
   */
  result(options?: WaitOptions): Promise<Out>;
}

/** The input may be left out of a flow that takes none. */
type FlowArguments<In> = [In] extends [void]
  ? [input?: undefined, options?: FlowSubmitOptions]
  : [input: In, options?: FlowSubmitOptions];

/** Submitting flows, typed by their definitions. */
export interface FlowClient {
  /** Submits a flow by its definition: all members or none. */
  submitFlow<In, Out>(flow: FlowDefinition<In, Out>, ...args: FlowArguments<In>): Promise<FlowRun<Out>>;
  /** Returns a handle on a flow that was submitted before, here or elsewhere. */
  flow(flowId: string): FlowHandle;
}

/** The groups that are used here. */
type FlowGroups = { executions: Executions; flows: Flows };

/** Submits carry the active span in the tags of every member. */
export function createFlowClient(groups: FlowGroups, activeSpan: () => SpanName | undefined): FlowClient {
  return {
    async submitFlow(flow, ...[input, options = {}]) {
      checkDefinition(flow);
      flowSubmitOptions.check(options, 'options');
      const members = (await flow.layOut(input as never)).map((member) => {
        const tags = withTrace(member.tags, activeSpan());
        return tags === undefined ? member : { ...member, tags };
      });
      const submitted = await groups.flows.submit({ ...options, name: flow.name, members });
      return runOf(groups, submitted, flow.resultOf) as never;
    },
    flow(flowId) {
      parseExecutionId(flowId, 'flowId');
      return handleOf(groups.flows, flowId as FlowId);
    },
  };
}

function checkDefinition(flow: unknown): void {
  const { name, layOut } = (flow ?? {}) as Partial<FlowDefinition>;
  if (typeof name !== 'string' || typeof layOut !== 'function') refuse('flow', 'must come from flow()');
}

function handleOf(flows: Flows, flowId: FlowId): FlowHandle {
  return {
    flowId,
    describe: () => flows.describe(flowId),
    wait: (options) => flows.wait(flowId, options),
    cancel: (request) => flows.cancel(flowId, request),
  };
}

function runOf(groups: FlowGroups, submitted: SubmittedFlow, resultOf: string): FlowRun<unknown> {
  return {
    ...handleOf(groups.flows, submitted.flowId),
    ...submitted,
    async result(options = {}) {
      const executionId = submitted.members[resultOf];
      if (executionId === undefined)
        refuse('flowId', `belongs to another flow: it has no member ${resultOf}`, 'not_a_member');
      const ended = await revealedWait(groups.executions, executionId)(options);
      if (ended.outcome === 'success') return ended.result;
      throw new ExecutionFailed(executionId, ended);
    },
  };
}
