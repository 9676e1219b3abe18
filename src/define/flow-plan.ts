/**
 * The plan of a flow, or of a part of one: members of tasks, and edges between them. It is made once and laid out for every submit,
 * with the input of that submit. Types refuse what does not fit; what types cannot see is refused here or by the engine.
 */
import type { EdgeCondition, EdgeRequest, JoinPolicy, MemberRequest } from '../contract/flows.ts';
import { isObject, refuse } from '../contract/shape.ts';
import type {
  AllJoin,
  Edge,
  EdgeRow,
  FlowNode,
  FlowRow,
  Given,
  Place,
  Source,
  Sources,
  SourcesFor,
} from './flow-nodes.ts';
import type { StreamKinds } from './streams.ts';
import { checkInput, given, requestOf, type AnyTask, type Task, type TaskTerms } from './task.ts';

/** When a member runs, besides what it is given. */
export interface MemberTerms<Join> extends TaskTerms {
  /** After these too, without their results. */
  alsoAfter?: readonly (Edge | EdgeRow)[];
  /** How many of the edges must come true: `join.all()`, `join.any()`, `join.quorum(2)`. Default: all. */
  join?: Join;
  /** A member that runs instead when this one never can. */
  fallback?: FlowNode;
  /** Members that wait for this one too, without its result; also such that are there already and whose joins are open. */
  before?: readonly FlowNode[];
}

/** How a member is added: what comes before it, and when it runs. */
export interface AddOptions<In, After, Join> extends MemberTerms<Join> {
  /** After these, whose results become members of the input by these names: `{ pages: fetch, answers: [one, two] }`. */
  after?: After & SourcesFor<NoInfer<In>, NoInfer<After>, NoInfer<Join>>;
}

/** A value, or what makes it of the input of the flow. */
export type From<FlowIn, Value> = Value | ((input: FlowIn) => Value);

/** Adds members to a plan. */
export interface MemberBuilder<FlowIn> {
  /** One member. What edges hand over is left out of its input here. */
  add<
    In,
    Parsed,
    Made,
    Out,
    Streams extends StreamKinds,
    // oxlint-disable-next-line no-empty-object-type -- no names at all
    After extends Sources = {},
    Join extends JoinPolicy = AllJoin,
  >(
    name: string,
    task: Task<In, Parsed, Made, Out, Streams>,
    input: From<FlowIn, Given<NoInfer<In>, NoInfer<After>>>,
    options?: AddOptions<In, After, Join>,
  ): FlowNode<Out>;
  /** A member for every input, called `name[0]`, `name[1]` and so on. Their results are handed over as one list. */
  each<
    In,
    Parsed,
    Made,
    Out,
    Streams extends StreamKinds,
    // oxlint-disable-next-line no-empty-object-type -- no names at all
    After extends Sources = {},
    Join extends JoinPolicy = AllJoin,
  >(
    name: string,
    task: Task<In, Parsed, Made, Out, Streams>,
    inputs: From<FlowIn, readonly Given<NoInfer<In>, NoInfer<After>>[]>,
    options?: AddOptions<In, After, Join>,
  ): FlowRow<Out>;
}

/** Adds members to a flow that runs. */
export interface FlowExtension extends MemberBuilder<void> {
  /** A member that is there already. */
  member<In, Parsed, Made, Out, Streams extends StreamKinds>(
    name: string,
    task: Task<In, Parsed, Made, Out, Streams>,
  ): FlowNode<Out>;
}

/** What can be submitted: what it is called, and what is made of an input. */
export interface FlowDefinition<In = unknown, Out = unknown> {
  readonly name: string;
  /** The member whose result is the flow's. */
  readonly resultOf: string;
  layOut(input: In): Promise<MemberRequest[]>;
  /** Only for the compiler. */
  readonly types?: { readonly output: Out } | undefined;
}

type LooseOptions = MemberTerms<JoinPolicy> & { after?: Readonly<Record<string, Source>> };

interface Planned extends Place {
  /** `there`: a member of the flow already. */
  readonly what: 'one' | 'row' | 'there';
  readonly task: AnyTask;
  readonly input: unknown;
  readonly options: LooseOptions;
}

export class FlowPlan<FlowIn> implements MemberBuilder<FlowIn> {
  readonly #places = new Set<Place>();
  readonly #names = new Set<string>();
  #isClosed = false;

  add(name: string, task: AnyTask, input: unknown, options: LooseOptions = {}): FlowNode<never> {
    return this.#take('one', name, task, input, options) as FlowNode<never>;
  }

  each(name: string, task: AnyTask, input: unknown, options: LooseOptions = {}): FlowRow<never> {
    return this.#take('row', name, task, input, options) as unknown as FlowRow<never>;
  }

  member(name: string, task: AnyTask): FlowNode<never> {
    return this.#take('there', name, task, null, {}) as FlowNode<never>;
  }

  /** Whether it is one member of this plan. */
  has(node: FlowNode): boolean {
    return this.#places.has(node.place) && (node.place as Planned).what === 'one' && node.on === 'success';
  }

  /** Nothing is added any more: who laid the plan out has seen all of it. */
  close(): this {
    this.#isClosed = true;
    return this;
  }

  #take(what: Planned['what'], name: string, task: AnyTask, input: unknown, options: LooseOptions): FlowNode {
    if (this.#isClosed) refuse('name', `${name} was added after the flow was defined`);
    if (typeof name !== 'string' || name === '') refuse('name', 'of a member must be a string');
    if (this.#names.has(name)) refuse('name', `${name} is already used in this flow`);
    if (typeof task?.name !== 'string') refuse('task', `of ${name} must come from task()`);
    if (!isObject(options as unknown)) refuse('options', `of ${name} must be an object`);
    const { after = {}, alsoAfter = [], before = [], fallback } = options;
    if (!Array.isArray(alsoAfter) || !Array.isArray(before))
      refuse('options', `of ${name}: alsoAfter and before must be lists`);
    for (const edge of [
      ...Object.values(after).flat(),
      ...alsoAfter,
      ...before,
      ...(fallback ? [fallback] : []),
    ] as Edge[])
      if (!this.#places.has(edge?.place))
        refuse(name, 'refers to something that is not a member of this flow');
    const place: Planned = { what, name, task, input, options };
    this.#names.add(name);
    this.#places.add(place);
    return nodeAt(place);
  }

  /** Requests for all members, with the inputs of one submit. */
  async layOut(flowInput: FlowIn): Promise<MemberRequest[]> {
    const planned = [...this.#places] as Planned[];
    const inputs = new Map<Place, unknown[]>();
    for (const place of planned) inputs.set(place, inputsOf(place, flowInput));
    const namesOf = (place: Place) => inputs.get(place)!.map((_, index) => nameAt(place as Planned, index));
    const requests: MemberRequest[] = [];
    for (const place of planned) {
      if (place.what === 'there') continue;
      for (const [index, input] of inputs.get(place)!.entries())
        requests.push(await requestFor(place, nameAt(place, index), input, namesOf));
    }
    return requests;
  }
}

function nameAt({ what, name }: Planned, index: number): string {
  return what === 'row' ? `${name}[${index}]` : name;
}

function inputsOf({ what, name, input }: Planned, flowInput: unknown): unknown[] {
  const made = typeof input === 'function' ? (input as (given: unknown) => unknown)(flowInput) : input;
  if (what !== 'row') return [made];
  if (!Array.isArray(made)) refuse(name, 'needs a list of inputs');
  return made as unknown[];
}

async function requestFor(
  place: Planned,
  name: string,
  input: unknown,
  namesOf: (place: Place) => string[],
): Promise<MemberRequest> {
  const { after = {}, alsoAfter = [], before = [], join, fallback, ...terms } = place.options;
  const edges = [
    ...Object.entries(after).flatMap(([as, source]) => edgesFrom(source, as, namesOf)),
    ...alsoAfter.flatMap(({ place: from, on }) => namesOf(from).map((each) => ({ from: each, on }))),
  ];
  const handed = Object.keys(after);
  if (handed.length === 0) await checkInput(place.task, input);
  return {
    ...requestOf(place.task, handed.length === 0 ? input : roomFor(after, input, name), terms, name),
    name,
    ...given({
      after: edges.length === 0 ? undefined : edges,
      before: before.length === 0 ? undefined : before.map((node) => node.name),
      join,
      fallback: fallback?.name,
    }),
  };
}

function isList(source: Source): boolean {
  return Array.isArray(source) || ((source as EdgeRow).place as Planned).what === 'row';
}

function edgesFrom(source: Source, as: string, namesOf: (place: Place) => string[]): EdgeRequest[] {
  const edges = (Array.isArray(source) ? source : [source]) as readonly Edge[];
  const list = isList(source) ? { list: true } : {};
  return edges.flatMap(({ place, on }) => namesOf(place).map((from) => ({ from, on, as, ...list })));
}

/** The input with an empty list wherever one is handed over: where nothing comes, nothing is missing. */
function roomFor(after: Readonly<Record<string, Source>>, input: unknown, name: string): object {
  const own = input ?? {};
  if (!isObject(own)) refuse(name, 'needs an object as its input, to put results into');
  const twice = Object.keys(after).find((handed) => Object.hasOwn(own, handed));
  if (twice !== undefined) refuse(name, `gets ${twice} both from its input and from an edge`);
  const lists = Object.entries(after).filter(([, source]) => isList(source));
  return { ...own, ...Object.fromEntries(lists.map(([handed]) => [handed, []])) };
}

function nodeAt(place: Place): FlowNode {
  const edge = (on: EdgeCondition) => () => ({ place, on });
  return {
    name: place.name,
    place,
    on: 'success',
    failed: edge('failure'),
    ended: edge('always'),
    skipped: edge('skipped'),
  };
}
