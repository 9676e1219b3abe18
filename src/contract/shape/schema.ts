/**
 * Schemas of any library that implements Standard Schema: the part of it that is used here, and checking values.
 */
import { EngineError } from '../errors.ts';
import { fault, Kind, refuse, type Opaque } from './shape.ts';

/** The part of Standard Schema (version 1) that is used here. */
export interface Schema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown) => SchemaResult<Output> | Promise<SchemaResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
  };
}

/** The value a schema produced, or what is wrong with the input. */
export type SchemaResult<Output> =
  { readonly value: Output; readonly issues?: undefined } | { readonly issues: readonly SchemaIssue[] };

/** One problem with a value. */
export interface SchemaIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

const NO_SCHEMA = fault('must be a Standard Schema, such as one of zod, valibot or arktype');

/** A schema or undefined. */
export const schemaKind = new Kind<Opaque>((value) => {
  const standard = (value as Partial<Schema> | null | undefined)?.['~standard'];
  return standard?.version === 1 && typeof standard.validate === 'function' ? undefined : NO_SCHEMA;
}).optional();

/** Returns the value the schema produces; throws an EngineError that names the first issue and where it is. */
export async function parseWith<Output>(
  // oxlint-disable-next-line no-explicit-any -- what goes in is what is being checked
  schema: Schema<any, Output> | undefined,
  value: unknown,
  what: Checked,
): Promise<Output> {
  if (schema === undefined) return value as Output;
  return accepted(await schema['~standard'].validate(value), what);
}

/** The same, synchronously, for values whose order must be kept: an asynchronous schema is refused. */
export function parseAtOnce<Output>(
  // oxlint-disable-next-line no-explicit-any -- what goes in is what is being checked
  schema: Schema<any, Output> | undefined,
  value: unknown,
  what: Checked,
): Output {
  if (schema === undefined) return value as Output;
  const result = schema['~standard'].validate(value);
  if (!('then' in result)) return accepted(result, what);
  result.catch(() => undefined);
  refuse(what.field, 'has an asynchronous schema; use a synchronous one');
}

interface Checked {
  field: string;
  of: string;
}

function accepted<Output>(result: SchemaResult<Output>, what: Checked): Output {
  if (result.issues === undefined) return result.value;
  const [first] = result.issues;
  const field = [what.field, ...(first?.path ?? []).map(pathPart)].join('.');
  const more = result.issues.length > 1 ? ` (and ${result.issues.length - 1} more)` : '';
  throw new EngineError('invalid_input', `${what.of}: ${field}: ${first?.message ?? 'refused'}${more}.`, {
    field,
  });
}

function pathPart(part: PropertyKey | { readonly key: PropertyKey }): string {
  return String(typeof part === 'object' ? part.key : part);
}
