/**
 * JSON Schemas of waitpoints: whether one can be used, and whether a payload fits it. They are checked where signals are
 * delivered, which may be in a process that knows nothing of the task.
 */
import { createContext, Script } from 'node:vm';
import { Validator, type OutputUnit, type Schema } from '@cfworker/json-schema';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import type { Json } from '../../contract/json.ts';
import { LIMITS } from '../../contract/limits.ts';
import { refuse } from '../../contract/shape.ts';
import { encodeJson } from '../../model/json.ts';

const DRAFT = '2020-12';
const MAX_FIELD_LENGTH = 120;

/** The schema as JSON text, if payloads can be checked by it. */
export function checkPayloadSchema(schema: Json | undefined, field: string): string | null {
  if (schema === undefined) return null;
  if (typeof schema !== 'object' || schema === null || Array.isArray(schema))
    refuse(field, 'must be a JSON Schema, an object');
  const text = encodeJson(schema, field, LIMITS.schemaBytes)!;
  try {
    withinLimit(() => {
      const validator = new Validator(JSON.parse(text) as Schema, DRAFT, true);
      for (const sample of [null, '', 0, [], {}]) validator.validate(sample);
    }, field);
  } catch (cause) {
    if (isEngineError(cause)) throw cause;
    throw new EngineError(
      'invalid_input',
      `${field} is not a JSON Schema that can be used: ${reasonOf(cause)}.`,
      {
        field,
        cause,
      },
    );
  }
  return text;
}

/** These sentences speak of the schema, and of nothing the payload holds. */
const TELLING = ['required', 'type', 'enum', 'const', 'minItems', 'maxItems', 'minLength', 'maxLength'];

/** Refuses a payload that does not fit, and says where. The payload itself is not quoted. */
export function checkPayload(payload: string, schema: unknown): void {
  const worst = firstFault(JSON.parse(payload), schema as Schema);
  if (worst === undefined) return;
  const known = namesIn(schema);
  const path = worst.instanceLocation.split('/').slice(1);
  const field = [
    'payload',
    ...path.map((part) => (known.has(part) || /^[0-9]{1,6}$/.test(part) ? part : '*')),
  ]
    .join('.')
    .slice(0, MAX_FIELD_LENGTH);
  const why = TELLING.includes(worst.keyword)
    ? worst.error.replace(/\.$/, '').slice(0, MAX_FIELD_LENGTH)
    : worst.keyword;
  refuse(field, `does not fit the waitpoint's schema: ${why}`);
}

/** The names a schema speaks of; others are the payload's own, and not told. */
function namesIn(schema: unknown): Set<string> {
  if (typeof schema !== 'object' || schema === null) return new Set();
  const { properties } = schema as { properties?: unknown };
  const own = typeof properties === 'object' && properties !== null ? Object.keys(properties) : [];
  return new Set([...own, ...Object.values(schema).flatMap((part) => [...namesIn(part)])]);
}

/** The innermost: it names the place. */
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
 * Runs a check that strangers may make as slow as they like: a `pattern` tried on a text it almost fits takes longer than anybody waits. A
 * script with a time limit is interrupted wherever it is, inside a regular expression too.
 */
function withinLimit<Value>(check: () => Value, field: string): Value {
  // One for all: making it takes longer than most checks.
  room ??= createContext({ check }) as { check: () => unknown };
  room.check = check;
  try {
    return CHECK.runInContext(room, { timeout: LIMITS.schemaCheckMs }) as Value;
  } catch (error) {
    if ((error as { code?: unknown } | null)?.code !== 'ERR_SCRIPT_EXECUTION_TIMEOUT') throw error;
    throw new EngineError(
      'invalid_input',
      `${field} took longer than ${LIMITS.schemaCheckMs} ms to check by the waitpoint's schema: look at its patterns.`,
      { field },
    );
  }
}

function reasonOf(cause: unknown): string {
  return cause instanceof Error ? cause.message.split('\n')[0]!.replace(/\.$/, '') : 'it could not be read';
}
