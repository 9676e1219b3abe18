/**
 * A task's contract: its name, the shapes of its input and output, and how it wants to be run. It holds no code of the
 * handler, so that whoever only submits can import it. Schemas may come from any library that speaks Standard Schema.
 */
import type { Backoff, ExecutionPolicy, SubmitRequest } from './engine.ts';
import { durationMs, type Duration } from './duration.ts';
import { EngineError } from './errors.ts';
import { LIMITS } from './limits.ts';

/** The part of Standard Schema (version 1) that is used here. */
export interface Schema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

export type SchemaResult<Output> =
  { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly SchemaIssue[] };

export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

export interface TaskRetry {
  /** Tries after the first one. */
  maxRetries: number;
  backoff?: Backoff;
  retryableCategories?: string[];
}

/** `In` is what is submitted, `Parsed` what the handler gets, `Made` what it returns, `Out` what is stored and read. */
export interface TaskOptions<In, Parsed, Made, Out> {
  input?: Schema<In, Parsed>;
  output?: Schema<Made, Out>;
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

export interface Task<In = unknown, Parsed = In, Made = unknown, Out = Made> {
  readonly name: string;
  readonly input: Schema<In, Parsed> | undefined;
  readonly output: Schema<Made, Out> | undefined;
  readonly timeoutMs: number | undefined;
  /** What every submit of this task has in common. */
  readonly defaults: Pick<SubmitRequest, 'kind' | 'lane' | 'priority' | 'capabilities' | 'policy'>;
}

// oxlint-disable-next-line no-explicit-any -- stands for a task of whatever shapes
export type AnyTask = Task<any, any, any, any>;

const MEMBERS = [
  'input',
  'output',
  'retry',
  'timeout',
  'deadline',
  'retention',
  'lane',
  'priority',
  'capabilities',
];

/** The options of a task whose shapes are given as types. */
export type UncheckedTaskOptions = Omit<TaskOptions<never, never, never, never>, 'input' | 'output'> & {
  input?: never;
  output?: never;
};

/** Describes a task. Without a schema the shapes are unchecked: `task<In, Out>(name)`. */
export function task<In = unknown, Out = unknown>(
  name: string,
  options?: UncheckedTaskOptions,
): Task<In, In, Out, Out>;
export function task<In, Parsed = In, Made = unknown, Out = Made>(
  name: string,
  options: TaskOptions<In, Parsed, Made, Out>,
): Task<In, Parsed, Made, Out>;
export function task<In, Parsed, Made, Out>(
  name: string,
  options: TaskOptions<In, Parsed, Made, Out> = {},
): Task<In, Parsed, Made, Out> {
  if (typeof name !== 'string' || !/^[\x20-\x7e]+$/.test(name) || name.length > LIMITS.kindBytes) {
    throw fault('name', `of a task must be 1 to ${LIMITS.kindBytes} printable ASCII characters`);
  }
  if (typeof options !== 'object' || options === null) throw fault('options', 'must be an object');
  const unknown = Object.keys(options).find((member) => !MEMBERS.includes(member));
  if (unknown !== undefined)
    throw fault(`options.${unknown}`, `is not known; known are ${MEMBERS.join(', ')}`);
  const { input, output, retry, timeout, lane, priority, capabilities } = options;
  const maxRetries = retry?.maxRetries ?? 0;
  if (!Number.isInteger(maxRetries) || maxRetries < 0 || maxRetries > LIMITS.maxRetries) {
    throw fault('options.retry.maxRetries', `must be a whole number from 0 to ${LIMITS.maxRetries}`);
  }
  checkSchema(input, 'options.input');
  checkSchema(output, 'options.output');
  return {
    name,
    input,
    output,
    timeoutMs: timeout === undefined ? undefined : durationMs(timeout, 'options.timeout', LIMITS.delayMs),
    defaults: {
      kind: name,
      ...(lane === undefined ? {} : { lane }),
      ...(priority === undefined ? {} : { priority }),
      ...(capabilities === undefined ? {} : { capabilities }),
      ...policyOf(options),
    },
  };
}

function policyOf({
  retry,
  deadline,
  retention,
}: Pick<TaskOptions<never, never, never, never>, 'retry' | 'deadline' | 'retention'>): {
  policy?: ExecutionPolicy;
} {
  const policy: ExecutionPolicy = {
    ...(retry === undefined ? {} : { retry }),
    ...(deadline === undefined
      ? {}
      : { deadlineMs: durationMs(deadline, 'options.deadline', LIMITS.delayMs) }),
    ...(retention === undefined
      ? {}
      : { retentionMs: durationMs(retention, 'options.retention', LIMITS.delayMs) }),
  };
  return Object.keys(policy).length === 0 ? {} : { policy };
}

function checkSchema(schema: unknown, field: string): void {
  if (schema === undefined) return;
  const standard = (schema as Partial<Schema> | null)?.['~standard'];
  if (standard?.version === 1 && typeof standard.validate === 'function') return;
  throw fault(field, 'must be a Standard Schema, such as one of zod, valibot or arktype');
}

function fault(field: string, what: string): EngineError {
  return new EngineError('invalid_input', `${field} ${what}.`, { field });
}

/** The value as the schema gives it back; an EngineError names the first thing that is wrong and where. */
export async function parseWith<Output>(
  // oxlint-disable-next-line no-explicit-any -- what goes in is what is being checked
  schema: Schema<any, Output> | undefined,
  value: unknown,
  what: { field: string; of: string },
): Promise<Output> {
  if (schema === undefined) return value as Output;
  const result = await schema['~standard'].validate(value);
  if (result.issues === undefined) return result.value;
  const [first] = result.issues;
  const field = [what.field, ...(first?.path ?? []).map(pathPart)].join('.');
  const more = result.issues.length > 1 ? ` (and ${result.issues.length - 1} more)` : '';
  throw new EngineError('invalid_input', `${what.of}: ${field}: ${first?.message ?? 'refused'}${more}.`, {
    field,
  });
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

function pathPart(part: PropertyKey | { readonly key: PropertyKey }): string {
  return String(typeof part === 'object' ? part.key : part);
}
