/**
 * The members of a flow as a builder hands them out, and what the compiler knows of them: what an edge hands over, what is left
 * to be given by hand, what does not fit. Nothing here is stored; what is made of it is in flows.ts.
 */
import type { EdgeCondition, JoinPolicy, OnSatisfied } from '../contract/flows.ts';

/** Where a member, or a row of them, stands in its plan. */
export interface Place {
  readonly name: string;
}

/** From one member; what it hands over is `Value`. */
export interface Edge<Value = unknown> {
  readonly place: Place;
  readonly on: EdgeCondition;
  /** Only for the compiler. */
  readonly types?: { readonly value: Value } | undefined;
}

/** From every member of a row; together they hand over a list. */
export interface EdgeRow<Value = unknown> {
  readonly place: Place;
  readonly on: EdgeCondition;
  /** Only for the compiler. */
  readonly types?: { readonly each: Value } | undefined;
}

/** How a member ended that failed, was cancelled or expired. */
export interface FailedEnd {
  outcome: 'failed' | 'cancelled' | 'expired';
  result: null;
  message: string | null;
  category: string | null;
}

/** How a member ended that never ran. */
export interface SkippedEnd {
  outcome: 'skipped';
  result: null;
  message: string | null;
  category: string | null;
}

/** How a member ended, whatever it was. */
export type MemberEnd<Out> =
  { outcome: 'success'; result: Out; message: null; category: null } | FailedEnd | SkippedEnd;

/** A member. As an edge it asks for success, and hands over the result. */
export interface FlowNode<Out = unknown> extends Edge<Out> {
  readonly name: string;
  /** When it has failed, was cancelled or has expired. */
  failed(): Edge<FailedEnd>;
  /** When it has ended, however. */
  ended(): Edge<MemberEnd<Out>>;
  /** When it never ran, because its own join could not come true. */
  skipped(): Edge<SkippedEnd>;
}

/** As many members of one task as there are inputs. */
export interface FlowRow<Out = unknown> extends EdgeRow<Out> {
  readonly name: string;
  failed(): EdgeRow<FailedEnd>;
  ended(): EdgeRow<MemberEnd<Out>>;
  skipped(): EdgeRow<SkippedEnd>;
}

/** A join that needs every edge. */
export type AllJoin = { kind: 'all' };
/** A join that needs some of its edges. */
export type SomeJoin = Exclude<JoinPolicy, AllJoin>;

/** What a join does besides deciding. */
export interface JoinOptions {
  /** What becomes of those that are needed no more. Default: they are stopped. */
  losers?: 'stop' | 'let_run';
}

function onSatisfied({ losers }: JoinOptions): { onSatisfied?: OnSatisfied } {
  return losers === 'let_run' ? { onSatisfied: 'let_run' } : {};
}

/** Runs when every edge has come true. What a member does without a join. */
function all(): AllJoin {
  return { kind: 'all' };
}

/** Runs with the first edge that comes true. */
function any(options: JoinOptions = {}): SomeJoin {
  return { kind: 'any', ...onSatisfied(options) };
}

/** Runs as soon as so many edges have come true. */
function quorum(k: number, options: JoinOptions = {}): SomeJoin {
  return { kind: 'quorum', k, ...onSatisfied(options) };
}

/** When a member with several edges runs: `join.all()`, `join.any()`, `join.quorum(2)`. */
export const join = { all, any, quorum } as const;

/** What can be handed to a member: an edge, a row of them, or a list. */
export type Source = Edge | EdgeRow | readonly Edge[];
/** By the names they have in the input. */
export type Sources = Readonly<Record<string, Source>>;

/** What is handed over: a result; of a list or a row those that were there, in their order. */
export type HandedBy<From> =
  From extends Edge<infer Value>
    ? Value
    : From extends EdgeRow<infer Value>
      ? Value[]
      : From extends readonly Edge<infer Value>[]
        ? Value[]
        : never;

type Flat<Shape> = { [Name in keyof Shape]: Shape[Name] };

/** The part of an input that edges bring. A join that does not need all of them may leave single ones out. */
export type Handed<After, Join> = Join extends AllJoin
  ? { [Name in keyof After]: HandedBy<After[Name]> }
  : Flat<
      { [Name in keyof After as After[Name] extends Edge ? never : Name]: HandedBy<After[Name]> } & {
        [Name in keyof After as After[Name] extends Edge ? Name : never]?: HandedBy<After[Name]>;
      }
    >;

/** A whole input: what is given by hand and what edges bring. */
export type Joined<Own, After, Join> = Flat<Own & Handed<After, Join>>;

type Without<Shape, Names extends PropertyKey> = Shape extends unknown ? Omit<Shape, Names> : never;
/** Nothing of this name may be given by hand. */
export type NotGiven<Names extends PropertyKey> = { [Name in Names]?: never };

/** What is left of an input to be given by hand. */
export type Given<In, After> = [keyof After] extends [never]
  ? In
  : unknown extends In
    ? object
    : Without<In, keyof After> & NotGiven<keyof After>;

type MayLack<In, Name extends keyof In> = object extends Pick<In, Name> ? true : false;

type ElementOf<List> = List extends readonly (infer Item)[] ? Item : never;

/** What would fit, for the compiler to say. */
type Wanted<From, Value> = From extends Edge
  ? Edge<Value>
  : From extends EdgeRow
    ? EdgeRow<ElementOf<Value>>
    : readonly Edge<ElementOf<Value>>[];

type Fitting<In, Name extends keyof In, From, Join> =
  HandedBy<From> extends In[Name]
    ? Join extends AllJoin
      ? From
      : From extends Edge
        ? MayLack<In, Name> extends true
          ? From
          : 'this join may leave it out: hand over a list, or make it optional in the input of the task'
        : From
    : Wanted<From, In[Name]>;

/** Sources that fit the input of a task; what does not is of a type that says so. */
export type SourcesFor<In, After, Join> = unknown extends In
  ? unknown
  : {
      [Name in keyof After]: Name extends keyof In
        ? Fitting<In, Name, After[Name], Join>
        : 'the input of the task has nothing of this name';
    };
