/**
 * Submits flows by their definition and reads their result with its type.
 */
import type { Engine, WaitOptions } from '../contract/engine.ts';
import { ExecutionFailed } from '../contract/errors.ts';
import type { FlowDefinition } from '../define/flow-plan.ts';
import type { CancelFlowOutcome, CancelFlowRequest, FlowSnapshot, SubmittedFlow } from '../contract/flows.ts';
import { withTrace, type SpanName } from '../contract/trace-context.ts';
import { refuse } from '../engine/kit/checks.ts';
import { checkMembers } from '../engine/kit/settings.ts';

export interface FlowSubmitOptions {
  /** A given id makes the submit repeatable: the second one answers `duplicate`. */
  flowId?: string;
  namespace?: string;
  /** Of the flow; members have their own. */
  tags?: Record<string, string>;
}

/** A flow that was submitted. */
export interface FlowRun<Out> extends SubmittedFlow {
  /** Waits for the member the definition returned. Throws ExecutionFailed when it has no result. Others may still run. */
  result(options?: WaitOptions): Promise<Out>;
  /** Waits for the end of the whole flow, whatever it is. */
  end(options?: WaitOptions): Promise<'completed' | 'failed' | 'cancelled'>;
  /** Null once it is forgotten. */
  describe(): Promise<FlowSnapshot | null>;
  cancel(request: CancelFlowRequest): Promise<CancelFlowOutcome>;
}

/** A flow that takes nothing needs no input. */
type FlowArguments<In> = [In] extends [void]
  ? [input?: undefined, options?: FlowSubmitOptions]
  : [input: In, options?: FlowSubmitOptions];

export interface FlowClient {
  /** All members at once, or none. */
  submitFlow<In, Out>(flow: FlowDefinition<In, Out>, ...args: FlowArguments<In>): Promise<FlowRun<Out>>;
}

export function isDefinition(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'layOut' in value;
}

/** What is submitted while a span is active carries it along, in every member. */
export function createFlowClient(engine: Engine, activeSpan: () => SpanName | undefined): FlowClient {
  return {
    async submitFlow(flow, ...[input, options = {}]) {
      if (typeof options !== 'object' || options === null) refuse('options', 'must be an object');
      checkMembers(options, 'options', ['flowId', 'namespace', 'tags']);
      const members = (await flow.layOut(input as never)).map((member) => {
        const tags = withTrace(member.tags, activeSpan());
        return tags === undefined ? member : { ...member, tags };
      });
      const submitted = await engine.submitFlow({ ...options, name: flow.name, members });
      return runOf(engine, submitted, flow.resultOf) as never;
    },
  };
}

function runOf(engine: Engine, submitted: SubmittedFlow, resultOf: string): FlowRun<unknown> {
  const { flowId } = submitted;
  return {
    ...submitted,
    async result(options = {}) {
      const executionId = submitted.members[resultOf];
      if (executionId === undefined)
        refuse('flowId', `is of another flow: it has no ${resultOf}`, 'not_a_member');
      const ended = await engine.waitForEnd(executionId, options);
      if (ended.outcome === 'success') return ended.result;
      throw new ExecutionFailed(executionId, ended);
    },
    end: (options) => engine.waitForFlow(flowId, options),
    describe: () => engine.describeFlow(flowId),
    cancel: (request) => engine.cancelFlow(flowId, request),
  };
}
