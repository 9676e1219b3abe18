/**
 * The values that payloads, results and steps are made of, and what becomes of other types when they are stored as JSON.
 * What JSON cannot represent is refused, by the compiler where it can tell.
 */

/** Anything JSON can represent. */
export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/** In place of a type that JSON cannot represent: a sentence that says so. No value has this type. */
export interface NotJson<Sentence extends string = string> {
  readonly 'not JSON': Sentence;
  readonly never: never;
}

/**
 * What a value of this type is after it was stored as JSON: a Date is a string, `toJSON` is respected, undefined is
 * null, members that are undefined or functions are left out. A member that may also be something JSON cannot represent
 * loses that part of its type: such a value is refused when it is stored.
 */
export type Jsonified<Value> =
  IsOpen<Value> extends true ? Value : [Value] extends [Json] ? Value : JsonifiedEach<Value>;

/**
 * The same type if JSON can represent it, otherwise one that says what cannot be stored. A generic function that stores
 * its type parameter declares it as `<Value extends Storable<Value>>`.
 */
export type Storable<Value> = [Value] extends [Checked<Value>] ? Value : Checked<Value>;
type Checked<Value> =
  IsOpen<Value> extends true ? unknown : [Value] extends [Json] ? unknown : StorableEach<Value>;

type JsonifiedEach<Value> = Value extends string | number | boolean | null
  ? Value
  : Value extends Nothing
    ? null
    : Value extends OwnJson<infer Own>
      ? Jsonified<Own>
      : Value extends Unstorable | AnyFunction
        ? Refusal<Value>
        : Value extends readonly unknown[]
          ? { [Index in keyof Value]: JsonifiedItem<Value[Index]> }
          : JsonifiedMembers<Value>;

type JsonifiedItem<Item> =
  IsOpen<Item> extends true ? Item : Jsonified<Kept<Item>> | ([LeftOut<Item>] extends [never] ? never : null);

type JsonifiedMembers<Members> = Flat<
  {
    [Key in keyof Members as Presence<Key, Members[Key]> extends 'always' ? Key : never]: Jsonified<
      Kept<Members[Key]>
    >;
  } & {
    [Key in keyof Members as Presence<Key, Members[Key]> extends 'sometimes' ? Key : never]?: Jsonified<
      Kept<Members[Key]>
    >;
  }
>;

type StorableEach<Value> = Value extends string | number | boolean | null | Nothing | OwnJson<unknown>
  ? Value
  : Value extends Unstorable | AnyFunction
    ? Refusal<Value>
    : { [Key in keyof Value]: StorableMember<Value[Key]> };

/** A member may be left out. Of a union, one part that can be stored is enough. */
type StorableMember<Member> =
  IsOpen<Member> extends true ? Member : LeftOut<Member> | Unfit<Member> | Checked<Kept<Member>>;

/** Whether JSON keeps a member: always, for some of its values, or never. */
type Presence<Key, Member> = Key extends symbol
  ? 'never'
  : IsOpen<Member> extends true
    ? 'always'
    : [LeftOut<Member>] extends [never]
      ? 'always'
      : [Member] extends [LeftOut<Member>]
        ? 'never'
        : 'sometimes';

type Nothing = undefined | void;
type AnyFunction = (...args: never[]) => unknown;
type OwnJson<Own> = { toJSON: (...args: never[]) => Own };

/** What JSON would lose. Without Error, which any object with a name and a message looks like. */
type Unstorable =
  | bigint
  | symbol
  | ReadonlyMap<unknown, unknown>
  | ReadonlySet<unknown>
  | PromiseLike<unknown>
  | RegExp
  | ArrayBuffer
  | ArrayBufferView;

type Refusal<Value> = NotJson<
  Value extends bigint
    ? 'A bigint cannot be stored: use a number or a string.'
    : Value extends ReadonlyMap<unknown, unknown>
      ? 'A Map cannot be stored: use Object.fromEntries(map) or [...map].'
      : Value extends ReadonlySet<unknown>
        ? 'A Set cannot be stored: use [...set].'
        : Value extends PromiseLike<unknown>
          ? 'A promise cannot be stored: await it.'
          : Value extends AnyFunction
            ? 'A function cannot be stored.'
            : 'JSON cannot represent this.'
>;

/** The parts of a member's type: left out by JSON, refused by it, and kept. What is only refused is kept, to be named. */
type LeftOut<Member> = Member extends Nothing ? Member : Member extends AnyFunction ? Member : never;
type Unfit<Member> = [Fit<Member>] extends [never] ? never : Exclude<Member, Fit<Member> | LeftOut<Member>>;
type Fit<Member> = Member extends Nothing | AnyFunction
  ? never
  : Member extends OwnJson<unknown>
    ? Member
    : Member extends Unstorable
      ? never
      : Member;
type Kept<Member> = [Fit<Member>] extends [never] ? Exclude<Member, LeftOut<Member>> : Fit<Member>;

/** `any` and `unknown`, about which nothing is known. */
type IsOpen<Value> = unknown extends Value ? true : false;

type Flat<Members> = { [Key in keyof Members]: Members[Key] };
