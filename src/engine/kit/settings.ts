/**
 * Refuses what nobody would read: a misspelled setting that is accepted is believed in. Also completes the name of a
 * field that was refused from the inside.
 */
import { EngineError, isEngineError } from '../../contract/errors.ts';

export { checkChoice, checkMembers } from '../../model/arguments.ts';

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
