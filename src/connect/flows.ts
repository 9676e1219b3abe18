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
import { parsed } from '../contract/kinds.ts';
import { refuse, shape } from '../contract/shape.ts';
import { withTrace, type SpanName } from '../contract/trace-context.ts';
import type { FlowDefinition } from '../define/flow-plan.ts';

/** What one submit of a flow may say besides its input. */
export interface FlowSubmitOptions {
  /** A given id makes the submit repeatable: the second one answers `duplicate`. */
  flowId?: string;
  namespace?: string;
  /** Of the flow; members have their own. */
  tags?: Record<string, string>;
}

/** Checked as the request that it becomes. */
const flowSubmitOptions = shape<FlowSubmitOptions>({
  flowId: parsed.optional(),
  namespace: parsed.optional(),
  tags: parsed.optional(),
});

/** A flow by its id, submitted here or elsewhere. */
export interface FlowHandle {
  readonly flowId: FlowId;
  /** Null once it is forgotten. */
  describe(): Promise<FlowSnapshot | null>;
  /** Waits for the whole flow to end, however that is. Throws `not_found`. */
  wait(options?: WaitOptions): Promise<'completed' | 'failed' | 'cancelled'>;
  /** Ends it, and its members as the policy says. */
  cancel(request: CancelFlowRequest): Promise<CancelFlowOutcome>;
}

/** A flow from the submit that made it, with the type of its result. */
export interface FlowRun<Out> extends FlowHandle, SubmittedFlow {
  readonly flowId: FlowId;
  /** Waits for the member the definition returned. Throws ExecutionFailed when it has no result. Others may still run. */
  result(options?: WaitOptions): Promise<Out>;
}

/** A flow that takes nothing needs no input. */
type FlowArguments<In> = [In] extends [void]
  ? [input?: undefined, options?: FlowSubmitOptions]
  : [input: In, options?: FlowSubmitOptions];

/** What a flow's submitter does, typed by the flow's definition. */
export interface FlowClient {
  /** Submits a flow by its definition: all members at once, or none. */
  submitFlow<In, Out>(flow: FlowDefinition<In, Out>, ...args: FlowArguments<In>): Promise<FlowRun<Out>>;
  /** A flow that was submitted before, here or elsewhere. */
  flow(flowId: string): FlowHandle;
}

/** The groups that are used here. */
type FlowGroups = { executions: Executions; flows: Flows };

/** What is submitted while a span is active carries it along, in every member. */
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
  if (typeof name !== 'string' || typeof layOut !== 'function')
    refuse('flow', 'must be a flow, as flow() makes one');
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
        refuse('flowId', `is of another flow: it has no ${resultOf}`, 'not_a_member');
      const ended = await groups.executions.wait(executionId, options);
      if (ended.outcome === 'success') return ended.result;
      throw new ExecutionFailed(executionId, ended);
    },
  };
}
