/**
 * JSON Schemas of waitpoints: whether one can be used, and whether a payload matches it. Payloads are checked where
 * signals are delivered, possibly in a process without the task's code.
 */
import { createContext, Script } from 'node:vm';
import { Validator, type OutputUnit, type Schema } from '@cfworker/json-schema';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import type { Json } from '../../contract/json.ts';
import { LIMITS } from '../../contract/limits.ts';
import { refuse } from '../../contract/shape/shape.ts';
import { encodeJson } from '../../model/json.ts';

const DRAFT = '2020-12';
const MAX_FIELD_LENGTH = 120;

/** Returns the schema as JSON, or null for none. Throws `invalid_input` when payloads cannot be checked by it. */
export function checkPayloadSchema(schema: Json | undefined, field: string): string | null {
  if (schema === undefined) return null;
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema))
    refuse(field, 'must be a JSON Schema object');
  const text = encodeJson(schema, field, LIMITS.schemaBytes)!;
  try {
    withinLimit(() => {
      const validator = new Validator(JSON.parse(text) as Schema, DRAFT, true);
      for (const sample of [null, '', 0, [], {}]) validator.validate(sample);
    }, field);
  } catch (cause) {
    if (isEngineError(cause)) throw cause;
    throw new EngineError('invalid_input', `${field} is not a usable JSON Schema: ${reasonOf(cause)}.`, {
      field,
      cause,
    });
  }
  return text;
}

/** Keywords whose messages mention only the schema, nothing from the payload. */
const TELLING = ['required', 'type', 'enum', 'const', 'minItems', 'maxItems', 'minLength', 'maxLength'];

/** Refuses a payload that does not match, naming the place. The payload itself is not quoted. */
export function checkPayload(payload: string, schema: unknown, subject = 'payload'): void {
  const worst = firstFault(JSON.parse(payload), schema as Schema);
  if (worst === undefined) return;
  const known = namesIn(schema);
  const path = worst.instanceLocation.split('/').slice(1);
  const field = [subject, ...path.map((part) => (known.has(part) || /^[0-9]{1,6}$/.test(part) ? part : '*'))]
    .join('.')
    .slice(0, MAX_FIELD_LENGTH);
  const why = TELLING.includes(worst.keyword)
    ? worst.error.replace(/\.$/, '').slice(0, MAX_FIELD_LENGTH)
    : worst.keyword;
  const hint = payload === 'null' ? '; a signal without a payload has the payload null' : '';
  refuse(field, `does not match the waitpoint's schema: ${why}${hint}`);
}

/** The property names in a schema. Other names come from the payload and are not repeated. */
function namesIn(schema: unknown): Set<string> {
  if (typeof schema !== 'object' || schema === null) return new Set();
  const { properties } = schema as { properties?: unknown };
  const own = typeof properties === 'object' && properties !== null ? Object.keys(properties) : [];
  return new Set([...own, ...Object.values(schema).flatMap((part) => [...namesIn(part)])]);
}

/** The innermost error: it names the place. */
function firstFault(value: unknown, schema: Schema): OutputUnit | undefined {
  try {
    return withinLimit(() => new Validator(schema, DRAFT, true).validate(value).errors.at(-1), 'payload');
  } catch (cause) {
    if (isEngineError(cause)) throw cause;
    throw new EngineError('invalid_input', `The waitpoint's schema cannot be used: ${reasonOf(cause)}.`, {
      field: 'schema',
      cause,
    });
  }
}

const CHECK = new Script('check()');
let room: { check: () => unknown } | undefined;

/**
 * Runs a check with a time limit, because a stranger's payload can make a `pattern` run practically forever. A script
 * with a timeout is interrupted anywhere, even inside a regular expression.
 */
function withinLimit<Value>(check: () => Value, field: string): Value {
  // One context for all: creating it takes longer than most checks.
  room ??= createContext({ check }) as { check: () => unknown };
  room.check = check;
  try {
    return CHECK.runInContext(room, { timeout: LIMITS.schemaCheckMs }) as Value;
  } catch (error) {
    if ((error as { code?: unknown } | null)?.code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error;
    throw new EngineError(
      'invalid_input',
      `${field} took longer than ${LIMITS.schemaCheckMs} ms to check against the waitpoint's schema; simplify its patterns.`,
      { field },
    );
  }
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message.split('\n')[0]!.replace(/\.$/, '') : 'it could not be read';
}
