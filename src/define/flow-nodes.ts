/**
 * The members of a flow as a builder returns them, and their types: what an edge passes on, which part of the input is
 * left for the caller, and what does not match. Nothing here is stored; src/contract/flows.ts has the stored form.
 */
import type { EdgeCondition, JoinPolicy, OnSatisfied } from '../contract/flows.ts';

/** A member, or a row of members, in its plan. */
export interface Place {
  readonly name: string;
}

/** An edge from one member, which passes on `Value`. */
export interface Edge<Value = unknown> {
  readonly place: Place;
  readonly on: EdgeCondition;
  /** Only for the compiler. */
  readonly types?: { readonly value: Value } | undefined;
}

/** Edges from every member of a row; together they pass on a list. */
export interface EdgeRow<Value = unknown> {
  readonly place: Place;
  readonly on: EdgeCondition;
  /** Only for the compiler. */
  readonly types?: { readonly each: Value } | undefined;
}

/** The outcome of a member that failed, was cancelled or expired. */
export interface FailedEnd {
  outcome: 'failed' | 'cancelled' | 'expired';
  result: null;
  message: string | null;
  category: string | null;
}

/** The outcome of a member that never ran. */
export interface SkippedEnd {
  outcome: 'skipped';
  result: null;
  message: string | null;
  category: string | null;
}

/** Any outcome of a member. */
export type MemberEnd<Out> =
  { outcome: 'success'; result: Out; message: null; category: null } | FailedEnd | SkippedEnd;

/** A member. Used as an edge it is satisfied by success, and passes on the result. */
export interface FlowNode<Out = unknown> extends Edge<Out> {
  readonly name: string;
  /** An edge satisfied when the member failed, was cancelled or expired. */
  failed(): Edge<FailedEnd>;
  /** An edge satisfied when the member has finished, whatever its outcome. */
  ended(): Edge<MemberEnd<Out>>;
  /** An edge satisfied when the member was skipped because its join was impossible. */
  skipped(): Edge<SkippedEnd>;
}

/** A row of members of one task, one for each input. */
export interface FlowRow<Out = unknown> extends EdgeRow<Out> {
  readonly name: string;
  /** Edges satisfied by members that failed, were cancelled or expired. */
  failed(): EdgeRow<FailedEnd>;
  /** Edges satisfied by members that have finished, whatever their outcome. */
  ended(): EdgeRow<MemberEnd<Out>>;
  /** Edges satisfied by members that were skipped. */
  skipped(): EdgeRow<SkippedEnd>;
}

/** A join that needs every edge. */
export type AllJoin = { kind: 'all' };
/** A join that needs some of its edges. */
export type SomeJoin = Exclude<JoinPolicy, AllJoin>;

/** Options of a join. */
export interface JoinOptions {
  /** What happens to members the join no longer needs: they are cancelled (`stop`, the default) or left to run. */
  losers?: 'stop' | 'let_run';
}

function onSatisfied({ losers }: JoinOptions): { onSatisfied?: OnSatisfied } {
  return losers === 'let_run' ? { onSatisfied: 'let_run' } : {};
}

/** Runs the member when every edge is satisfied. The default. */
function all(): AllJoin {
  return { kind: 'all' };
}

/** Runs the member when the first edge is satisfied. */
function any(options: JoinOptions = {}): SomeJoin {
  return { kind: 'any', ...onSatisfied(options) };
}

/** Runs the member when `k` edges are satisfied. */
function quorum(k: number, options: JoinOptions = {}): SomeJoin {
  return { kind: 'quorum', k, ...onSatisfied(options) };
}

/** When a member with several edges runs: `join.all()`, `join.any()`, `join.quorum(2)`. */
export const join = { all, any, quorum } as const;

/** Where a part of an input comes from: an edge, a row of edges, or a list of edges. */
export type Source = Edge | EdgeRow | readonly Edge[];
/** Sources by their keys in the input. */
export type Sources = Readonly<Record<string, Source>>;

/** What a source passes on: a result; for a list or a row, the results that exist, in order. */
export type HandedBy<From> =
  From extends Edge<infer Value>
    ? Value
    : From extends EdgeRow<infer Value>
      ? Value[]
      : From extends readonly Edge<infer Value>[]
        ? Value[]
        : never;

type Flat<Shape> = { [Name in keyof Shape]: Shape[Name] };

/** The part of an input that edges supply. A join that does not need all of them may leave single ones out. */
export type Handed<After, Join> = Join extends AllJoin
  ? { [Name in keyof After]: HandedBy<After[Name]> }
  : Flat<
      { [Name in keyof After as After[Name] extends Edge ? never : Name]: HandedBy<After[Name]> } & {
        [Name in keyof After as After[Name] extends Edge ? Name : never]?: HandedBy<After[Name]>;
      }
    >;

/** A whole input: the caller's part and what edges supply. */
export type Joined<Own, After, Join> = Flat<Own & Handed<After, Join>>;

type Without<Shape, Names extends PropertyKey> = Shape extends unknown ? Omit<Shape, Names> : never;
/** Keys the caller must not set. */
export type NotGiven<Names extends PropertyKey> = { [Name in Names]?: never };

/** The part of an input that is left for the caller. */
export type Given<In, After> = [keyof After] extends [never]
  ? In
  : unknown extends In
    ? object
    : Without<In, keyof After> & NotGiven<keyof After>;

type MayLack<In, Name extends keyof In> = object extends Pick<In, Name> ? true : false;

type ElementOf<List> = List extends readonly (infer Item)[] ? Item : never;

/** The expected type, for compiler messages. */
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
          : 'this join may leave it out: pass a list, or make the key optional in the input of the task'
        : From
    : Wanted<From, In[Name]>;

/** Sources that match the input of a task; one that does not gets a type that explains why. */
export type SourcesFor<In, After, Join> = unknown extends In
  ? unknown
  : {
      [Name in keyof After]: Name extends keyof In
        ? Fitting<In, Name, After[Name], Join>
        : 'the input of the task has no such key';
    };
