/**
 * How a definition is refused: where it is written, with the name of what is wrong.
 */
import { EngineError } from '../contract/errors.ts';

export function fault(field: string, what: string): EngineError {
  return new EngineError('invalid_input', `${field} ${what}.`, { field });
}
