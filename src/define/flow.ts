/**
 * Defines flows: the plan, and handlers written inline with their member. A definition is made once, by the submitter
 * and by the workers that run its inline handlers.
 */
import { asciiName, func } from '../contract/shape/kinds.ts';
import { refuse } from '../contract/shape/shape.ts';
import type { JoinPolicy } from '../contract/flows.ts';
import { DEFINITION_LIMITS as LIMITS } from '../contract/definition-limits.ts';
import type { AllJoin, FlowNode, Joined, NotGiven, Sources } from './flow-nodes.ts';
import {
  FlowPlan,
  type FlowDefinition,
  type From,
  type MemberBuilder,
  type MemberTerms,
} from './flow-plan.ts';
import type { HandlerFunction, HandlerOptions, TaskHandler } from './handlers.ts';
import { given, task, type UncheckedTaskOptions } from './task.ts';

/** Options of the task of an inline handler. */
type TaskPart = Pick<UncheckedTaskOptions, 'retry' | 'timeout' | 'retention' | 'capabilities'>;

/** Options of a member with an inline handler. */
export interface HandledOptions<FlowIn, After, Own, Join>
  extends MemberTerms<Join>, TaskPart, HandlerOptions {
  /** Edges whose results become keys of the input. */
  after?: After;
  /** The rest of the handler's input. Default: nothing. */
  input?: From<FlowIn, Own & NotGiven<NoInfer<keyof After>>>;
}

/** Adds members to a flow definition. */
export interface FlowBuilder<FlowIn = void> extends MemberBuilder<FlowIn> {
  /**
   * Adds a member together with its handler, which receives the results of its sources. Its task is named
   * `flow.member`. It runs on workers started with the `handlers` of the flow, so it must depend on nothing but its
   * input.
   */
  handle<
    Made,
    // oxlint-disable-next-line no-empty-object-type -- no names at all
    After extends Sources = {},
    // oxlint-disable-next-line no-empty-object-type -- nothing by hand
    Own extends object = {},
    Join extends JoinPolicy = AllJoin,
  >(
    name: string,
    options: HandledOptions<FlowIn, After, Own, Join>,
    run: HandlerFunction<Joined<Own, After, Join>, Made>,
  ): FlowNode<Made>;
}

/** A flow that can be submitted, and its inline handlers. */
export interface Flow<In, Out> extends FlowDefinition<In, Out> {
  /** The inline handlers, for `startWorker`. */
  readonly handlers: readonly TaskHandler[];
}

class DefiningPlan<FlowIn> extends FlowPlan<FlowIn> {
  readonly handlers: TaskHandler[] = [];
  readonly #flowName: string;

  constructor(flowName: string) {
    super();
    this.#flowName = flowName;
  }

  handle(
    name: string,
    options: HandledOptions<unknown, Sources, object, JoinPolicy>,
    run: HandlerFunction<unknown, unknown>,
  ): FlowNode<never> {
    if (typeof run !== 'function') refuse('run', `of task ${this.#flowName}.${name} must be a function`);
    const { input = {}, retry, timeout, retention, capabilities, concurrency, ...terms } = options;
    const own = task(`${this.#flowName}.${name}`, given({ retry, timeout, retention, capabilities }));
    const node = this.add(name, own, input, terms);
    this.handlers.push({ task: own, run, concurrency });
    return node;
  }
}

const flowName = asciiName(LIMITS.flowNameBytes);

/**
 * Defines a flow: `define` adds its members and returns the one whose result is the flow's. It is called once; what
 * differs between submits is the flow's input: `flow('race', (f: FlowBuilder<{ question: string }>) => …)`.
 */
export function flow<Out, In = void>(
  name: string,
  define: (f: FlowBuilder<In>) => FlowNode<Out>,
): Flow<In, Out> {
  flowName.check(name, 'name');
  func.check(define, 'define');
  const plan = new DefiningPlan<In>(name);
  const result = define(plan as unknown as FlowBuilder<In>);
  plan.close();
  if (typeof result?.name !== 'string' || !plan.has(result))
    refuse('define', `of ${name} must return the member whose result is the flow's`);
  return {
    name,
    resultOf: result.name,
    handlers: plan.handlers,
    layOut: (input) => plan.layOut(input),
  };
}
