/**
 * A task's contract: its name, the shapes of its input and output, and how it wants to be run. It holds no code of the
 * handler, so that whoever only submits can import it. Schemas may come from any library that speaks Standard Schema.
 */
import { schemaKind, parseWith, type Schema } from '../contract/schema.ts';
import { streamKinds, type NoStreams, type StreamKinds } from './streams.ts';
import type { SubmitRequest } from '../contract/executions.ts';
import type { Backoff, ExecutionPolicy } from '../contract/policy.ts';
import { durationMs, type Duration } from '../contract/duration.ts';
import { EngineError } from '../contract/errors.ts';
import { DEFINITION_LIMITS as LIMITS } from '../contract/definition-limits.ts';
import { asciiName, parsed, whole } from '../contract/kinds.ts';
import { shape } from '../contract/shape.ts';

/** How often, and how soon, a failed attempt is tried again. */
export interface TaskRetry {
  /** Tries after the first one. */
  maxRetries: number;
  backoff?: Backoff;
  retryableCategories?: string[];
}

/** `In` is what is submitted, `Parsed` what the handler gets, `Made` what it returns, `Out` what is stored and read. */
export interface TaskOptions<In, Parsed, Made, Out, Streams extends StreamKinds = NoStreams> {
  input?: Schema<In, Parsed>;
  output?: Schema<Made, Out>;
  /** What the handler writes besides its result, by name: `{ tokens: stream.durable<string>() }`. Also by stream.live() and stream.summary(). */
  streams?: Streams;
  /** Default: as the connection's default policy says. */
  retry?: TaskRetry;
  /** How long the handler may run, from the start of the attempt or its last pause. Default: as long as it likes. */
  timeout?: Duration;
  /** How long the execution may take in all, waiting included; then it ends as expired. Default: as long as it takes. */
  deadline?: Duration;
  /** How long it is kept after its end. Default: as long as the connection's `retention` says. */
  retention?: Duration;
  lane?: string;
  priority?: number;
  capabilities?: string[];
}

/** A task as its submitters and its handler know it. Made by `task`. */
export interface Task<
  In = unknown,
  Parsed = In,
  Made = unknown,
  Out = Made,
  Streams extends StreamKinds = NoStreams,
> {
  readonly name: string;
  readonly input: Schema<In, Parsed> | undefined;
  readonly output: Schema<Made, Out> | undefined;
  readonly streams: Streams;
  readonly timeoutMs: number | undefined;
  /** What every submit of this task has in common. */
  readonly defaults: Pick<SubmitRequest, 'kind' | 'lane' | 'priority' | 'capabilities' | 'policy'>;
}

/** A task of whatever shapes. */
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
  lane: checkedLater,
  priority: checkedLater,
  capabilities: checkedLater,
});

/** The options of a task whose shapes are given as types. */
export type UncheckedTaskOptions = Omit<
  TaskOptions<never, never, never, never>,
  'input' | 'output' | 'streams'
> & {
  input?: never;
  output?: never;
  streams?: never;
};

/**
 * Describes a task. Without a schema the shapes are unchecked: `task<In, Out>(name)`; with streams beside them
 * `task<In, Out, typeof streams>(name, { streams })`.
 */
export function task<In = unknown, Out = unknown>(
  name: string,
  options?: UncheckedTaskOptions,
): Task<In, In, Out, Out>;
export function task<In, Out, Streams extends StreamKinds>(
  name: string,
  options: Omit<UncheckedTaskOptions, 'streams'> & { streams: Streams },
): Task<In, In, Out, Out, Streams>;
export function task<In, Parsed = In, Made = unknown, Out = Made, Streams extends StreamKinds = NoStreams>(
  name: string,
  // Where the types are given and those of the streams are not, streams would be there without a type.
  options: TaskOptions<In, Parsed, Made, Out, Streams> &
    (NoStreams extends Streams ? { streams?: { readonly [name: string]: never } } : unknown),
): Task<In, Parsed, Made, Out, Streams>;
export function task<In, Parsed, Made, Out, Streams extends StreamKinds>(
  name: string,
  options: TaskOptions<In, Parsed, Made, Out, Streams> = {},
): Task<In, Parsed, Made, Out, Streams> {
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
}: Pick<TaskOptions<never, never, never, never>, 'retry' | 'deadline' | 'retention'>):
  ExecutionPolicy | undefined {
  const deadlineMs = optionalMs(deadline, 'options.deadline');
  return unlessEmpty(given({ retry, deadlineMs, retentionMs: optionalMs(retention, 'options.retention') }));
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

/** What one execution of a task may say differently from its contract. */
export interface TaskTerms {
  lane?: string;
  priority?: number;
  tags?: Record<string, string>;
  /** What is not said here is as the task says, and then as the connection's default policy does. */
  policy?: ExecutionPolicy;
  /** How long it may take in all, waiting included; then it ends as expired. */
  deadline?: Duration;
}

/** A request for one execution of a task. */
export function requestOf(
  contract: AnyTask,
  payload: unknown,
  { deadline, policy, ...rest }: TaskTerms,
  field: string,
): SubmitRequest {
  const deadlineMs = optionalMs(deadline, `${field}.deadline`);
  const own = { ...contract.defaults.policy, ...given({ ...policy }), ...given({ deadlineMs }) };
  return { ...contract.defaults, payload, ...rest, ...given({ policy: unlessEmpty(own) }) };
}

/**
 * Checks an input as the handler will get it: as JSON gives it back. So what only looks right in memory, such as a Date,
 * is refused where the mistake was made.
 */
export async function checkInput(contract: AnyTask, input: unknown): Promise<void> {
  if (contract.input === undefined) return;
  const what = { field: 'input', of: `Task ${contract.name}` };
  await parseWith(contract.input, input === undefined ? undefined : asStored(input, what.of), what);
}

/** What the handler gets. Nothing submitted is stored as null; a schema that wants it absent gets it so. */
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
