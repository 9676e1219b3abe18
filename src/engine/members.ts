/**
 * Refuses what nobody would read: a misspelled setting that is accepted is believed in. Also completes the name of a
 * field that was refused from the inside.
 */
import { EngineError, isEngineError } from '../contract/errors.ts';
import { refuse } from './checks.ts';

/** An object that has no members but the known ones. An empty field name means that the members stand for themselves. */
export function checkMembers(value: unknown, field: string, known: readonly string[]): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) refuse(field, 'must be an object');
  for (const key of Object.keys(value)) {
    if (known.includes(key)) continue;
    refuse(field === '' ? key : `${field}.${key}`, `is not a known setting (known: ${known.join(', ')})`);
  }
}

/** One of a few words; absent is fine. */
export function checkChoice(value: unknown, field: string, choices: readonly string[]): void {
  if (value === undefined || (typeof value === 'string' && choices.includes(value))) return;
  refuse(field, `must be one of ${choices.join(', ')}`);
}

/** Runs checks that name their fields from the inside, and completes the name of the one that is refused. */
export function checkedAs<Value>(field: () => string, check: () => Value): Value {
  try {
    return check();
  } catch (error) {
    if (!isEngineError(error) || error.field === undefined) throw error;
    const outer = field();
    throw new EngineError(error.code, `${outer}.${error.message}`, {
      field: `${outer}.${error.field}`,
      ...(error.cause === undefined ? {} : { cause: error.cause }),
    });
  }
}
