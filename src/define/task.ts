/**
 * A task's contract: its name, the shapes of its input and output, and its defaults. It contains no handler code, so
 * that submitters can import it. Schemas may come from any library that implements Standard Schema.
 */
import { schemaKind, parseWith, type Schema } from '../contract/shape/schema.ts';
import { streamKinds, type AnyStreams, type NoStreams, type StreamKinds } from './streams.ts';
import type { Jsonified, Storable } from '../contract/json.ts';
import type { SubmitRequest } from '../contract/executions.ts';
import type { Backoff, ExecutionPolicy } from '../contract/policy.ts';
import { durationMs, type Duration } from '../contract/shape/duration.ts';
import { EngineError } from '../contract/errors.ts';
import type { Redaction } from '../contract/redaction.ts';
import { redactionKind } from '../model/redaction.ts';
import { DEFINITION_LIMITS as LIMITS } from '../contract/definition-limits.ts';
import { asciiName, parsed, whole } from '../contract/shape/kinds.ts';
import { shape } from '../contract/shape/shape.ts';

/** How often, and how soon, a failed attempt is retried. */
export interface TaskRetry {
  /** Attempts after the first one. */
  maxRetries: number;
  /** Default: exponential from 1 s to 60 s, doubling, without jitter. */
  backoff?: Backoff;
  /** Only failures of these categories are retried. Default: all. */
  retryableCategories?: string[];
}

/**
 * Options of a task. `In` is what is submitted, `Parsed` what the handler receives, `Made` what it returns, `Out` what
 * is stored.
 */
export interface TaskOptions<In, Parsed, Made, Out, Streams extends StreamKinds = NoStreams> {
  /** Checks the input at submit and parses it for the handler. Default: unchecked. */
  input?: Schema<In, Parsed>;
  /** Checks the result before it is stored. Default: unchecked. */
  output?: Schema<Made, Out>;
  /** What the handler writes besides its result, by name: `{ tokens: stream.durable<string>() }`. Default: none. */
  streams?: Streams;
  /** Default: the connection's default policy. */
  retry?: TaskRetry;
  /** How long the handler may run, from the start of the attempt or its last pause. Default: no limit. */
  timeout?: Duration;
  /** How long the execution may take in total, including waits, before it expires. Default: no limit. */
  deadline?: Duration;
  /** How long it is kept after it has finished. Default: the connection's `retention`. */
  retention?: Duration;
  /**
   * `all`: the event feed also tells of its submit, its steps and its progress, and its completion carries the result.
   * Default: as its lane says, usually not.
   */
  events?: 'all';
  /**
   * Hides its values from everybody but its handler and code that has this contract: `true` hides all of them, a list of
   * JSON pointers (`['/card/number']`) what they point to. Default: nothing is hidden.
   */
  redact?: Redaction;
  /** The queue. Default `default`. */
  lane?: string;
  /** 0 to 9,000; higher runs first. Default 0. */
  priority?: number;
  /** Only workers that offer all of these run it. Default: none. */
  capabilities?: string[];
}

/** A task's contract, as made by `task`. `Out` is its result as readers get it, after a round trip through JSON. */
export interface Task<
  In = unknown,
  Parsed = In,
  Made = unknown,
  Out = Made,
  Streams extends StreamKinds = NoStreams,
> {
  readonly name: string;
  readonly input: Schema<In, Parsed> | undefined;
  readonly output: Schema<Made, unknown> | undefined;
  /** Only for the compiler. */
  readonly types?: { readonly output: Out } | undefined;
  readonly streams: Streams;
  readonly timeoutMs: number | undefined;
  /** What every submit of this task starts from. */
  readonly defaults: Pick<SubmitRequest, 'kind' | 'lane' | 'priority' | 'capabilities' | 'policy'>;
}

/** A task of any shapes. */
// oxlint-disable-next-line no-explicit-any -- stands for a task of whatever shapes
export type AnyTask = Task<any, any, any, any, any>;

/** Checked with the request of each execution. */
const checkedLater = parsed.optional();
const taskName = asciiName(LIMITS.kindBytes);

const taskOptions = shape<TaskOptions<never, never, never, never>>({
  input: schemaKind,
  output: schemaKind,
  streams: streamKinds.optional(),
  retry: shape<TaskRetry>({
    maxRetries: whole(0, LIMITS.maxRetries),
    backoff: checkedLater,
    retryableCategories: checkedLater,
  }).optional(),
  timeout: checkedLater,
  deadline: checkedLater,
  retention: checkedLater,
  events: checkedLater,
  redact: redactionKind.optional(),
  lane: checkedLater,
  priority: checkedLater,
  capabilities: checkedLater,
});

/** The options of a task whose shapes are given as types only. */
export type UncheckedTaskOptions = Omit<
  TaskOptions<never, never, never, never>,
  'input' | 'output' | 'streams'
> & {
  input?: never;
  output?: never;
  streams?: never;
};

/** The task of shapes that are given as types only: both of its values pass through JSON unchecked. */
type UncheckedTask<In, Out, Streams extends StreamKinds = NoStreams> = Task<
  Storable<In>,
  Jsonified<In>,
  Storable<Out>,
  Jsonified<Out>,
  Streams
>;

/**
 * Defines a task. Without schemas the shapes are types only: `task<In, Out>(name)`. TypeScript infers nothing beside
 * explicit types, so the streams of `task<In, Out>(name, { streams })` accept and yield anything; name their type too,
 * `task<In, Out, typeof streams>(name, { streams })`, and they are checked.
 */
export function task<In = unknown, Out = unknown>(
  name: string,
  options?: UncheckedTaskOptions,
): UncheckedTask<In, Out>;
export function task<In, Out, Streams extends StreamKinds>(
  name: string,
  options: Omit<UncheckedTaskOptions, 'streams'> & { streams: Streams },
): UncheckedTask<In, Out, Streams>;
export function task<In, Out>(
  name: string,
  options: Omit<UncheckedTaskOptions, 'streams'> & { streams: StreamKinds },
): UncheckedTask<In, Out, AnyStreams>;
export function task<In, Parsed = In, Made = unknown, Out = Made, Streams extends StreamKinds = NoStreams>(
  name: string,
  options: TaskOptions<In, Parsed, Made, Out, Streams>,
): Task<In, Parsed, Made, Jsonified<Out>, Streams>;
export function task<In, Parsed, Made, Out, Streams extends StreamKinds>(
  name: string,
  options: TaskOptions<In, Parsed, Made, Out, Streams> = {},
): Task<In, Parsed, Made, Jsonified<Out>, Streams> {
  taskName.check(name, 'name');
  taskOptions.check(options, 'options');
  const { input, output, streams = {} as Streams, timeout, lane, priority, capabilities } = options;
  return {
    name,
    input,
    output,
    streams: { ...streams },
    timeoutMs: optionalMs(timeout, 'options.timeout'),
    defaults: { kind: name, ...given({ lane, priority, capabilities, policy: policyOf(options) }) },
  };
}

function policyOf({
  retry,
  deadline,
  retention,
  events,
  redact,
}: Pick<TaskOptions<never, never, never, never>, 'retry' | 'deadline' | 'retention' | 'events' | 'redact'>):
  ExecutionPolicy | undefined {
  return unlessEmpty(
    given({
      retry,
      deadline: optionalMs(deadline, 'options.deadline'),
      retention: optionalMs(retention, 'options.retention'),
      events,
      redact,
    }),
  );
}

function optionalMs(duration: Duration | undefined, field: string): number | undefined {
  return duration === undefined ? undefined : durationMs(duration, field, LIMITS.delayMs);
}

/** An object without the keys whose value is undefined. */
export function given<Value extends object>(
  value: Value,
): { [Key in keyof Value]?: Exclude<Value[Key], undefined> } {
  return Object.fromEntries(Object.entries(value).filter(([, each]) => each !== undefined)) as never;
}

function unlessEmpty<Value extends object>(value: Value): Value | undefined {
  return Object.keys(value).length === 0 ? undefined : value;
}

/** What one execution of a task may set differently from its contract. */
export interface TaskTerms {
  /** Default: the task's lane. */
  lane?: string;
  /** 0 to 9,000; higher runs first. Default: the task's priority. */
  priority?: number;
  tags?: Record<string, string>;
  /** Keys left out are taken from the task, then from the connection's default policy. */
  policy?: ExecutionPolicy;
  /** How long it may take in total, including waits, before it expires. Default: the task's deadline. */
  deadline?: Duration;
}

/** Returns the request for one execution of a task. */
export function requestOf(
  contract: AnyTask,
  payload: unknown,
  { deadline, policy, ...rest }: TaskTerms,
  field: string,
): SubmitRequest {
  const own = {
    ...contract.defaults.policy,
    ...given({ ...policy }),
    ...given({ deadline: optionalMs(deadline, `${field}.deadline`) }),
  };
  return { ...contract.defaults, payload, ...rest, ...given({ policy: unlessEmpty(own) }) };
}

/**
 * Checks an input as the handler will receive it, after a round trip through JSON, so that a value JSON changes, such
 * as a Date, is refused at the submit.
 */
export async function checkInput(contract: AnyTask, input: unknown): Promise<void> {
  if (contract.input === undefined) return;
  const what = { field: 'input', of: `Task ${contract.name}` };
  await parseWith(contract.input, input === undefined ? undefined : asStored(input, what.of), what);
}

/**
 * Parses the stored input for the handler. No input is stored as null; a schema that refuses null is tried with
 * undefined.
 */
export async function parseInput(contract: AnyTask, payload: unknown, of: string): Promise<unknown> {
  const what = { field: 'input', of };
  if (payload !== null) return parseWith(contract.input, payload, what);
  return parseWith(contract.input, null, what).catch((refused: unknown) =>
    parseWith(contract.input, undefined, what).catch(() => {
      throw refused;
    }),
  );
}

function asStored(input: unknown, of: string): unknown {
  try {
    return JSON.parse(JSON.stringify(input)) as unknown;
  } catch (cause) {
    throw new EngineError('invalid_input', `${of}: input cannot be written as JSON.`, {
      field: 'input',
      cause,
    });
  }
}
