/**
 * The plan of a flow or of an extension: members and the edges between them. It is made once and laid out for every
 * submit, with that submit's input. Types reject what does not match; the rest is checked here or by the engine.
 */
import type { EdgeCondition, EdgeRequest, JoinPolicy, MemberRequest } from '../contract/flows.ts';
import { isObject, refuse } from '../contract/shape/shape.ts';
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

/** Options of a member besides its sources. */
export interface MemberTerms<Join> extends TaskTerms {
  /** More edges into the member, without passing on results. */
  alsoAfter?: readonly (Edge | EdgeRow)[];
  /** How many of the edges must be satisfied: `join.all()`, `join.any()`, `join.quorum(2)`. Default: all. */
  join?: Join;
  /** A member that runs when this one never can. */
  fallback?: FlowNode;
  /** Members that wait for this one, without its result; including existing members whose joins are not decided yet. */
  before?: readonly FlowNode[];
}

/** Options of adding a member. */
export interface AddOptions<In, After, Join> extends MemberTerms<Join> {
  /** Edges whose results become keys of the input: `{ pages: fetch, answers: [one, two] }`. */
  after?: After & SourcesFor<NoInfer<In>, NoInfer<After>, NoInfer<Join>>;
}

/** A value, or a function that derives it from the flow's input. */
export type From<FlowIn, Value> = Value | ((input: FlowIn) => Value);

/** Adds members to a plan. */
export interface MemberBuilder<FlowIn> {
  /** Adds one member. `input` leaves out the keys that edges supply. */
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
  /** Adds a member for every input, named `name[0]`, `name[1]` and so on. Their results are passed on as one list. */
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

/** Adds members to a running flow. */
export interface FlowExtension extends MemberBuilder<void> {
  /** Refers to an existing member. */
  member<In, Parsed, Made, Out, Streams extends StreamKinds>(
    name: string,
    task: Task<In, Parsed, Made, Out, Streams>,
  ): FlowNode<Out>;
}

/** A flow that can be submitted. */
export interface FlowDefinition<In = unknown, Out = unknown> {
  readonly name: string;
  /** The member whose result is the flow's. */
  readonly resultOf: string;
  /**
   * Returns the requests of all members for one input. Throws `invalid_input` when an input does not match its task.
   */
  layOut(input: In): Promise<MemberRequest[]>;
  /** Only for the compiler. */
  readonly types?: { readonly output: Out } | undefined;
}

type LooseOptions = MemberTerms<JoinPolicy> & { after?: Readonly<Record<string, Source>> };

interface Planned extends Place {
  /** `there`: an existing member of the flow. */
  readonly what: 'one' | 'row' | 'there';
  readonly task: AnyTask;
  readonly input: unknown;
  readonly options: LooseOptions;
}

/** Collects the members of a flow, and lays them out for a submit. */
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

  /** Whether a node is a single member of this plan. */
  has(node: FlowNode): boolean {
    return this.#places.has(node.place) && (node.place as Planned).what === 'one' && node.on === 'success';
  }

  /** Refuses further members: they would not be part of what was laid out. */
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

  /** Returns the requests of all members, with the inputs of one submit. */
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

/** Adds an empty list for every key that collects results, so that the key exists even when no result arrives. */
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
