/**
 * The arguments that a handler passes to the methods of its context: parsed and checked before anything is done; an
 * error names the call.
 */
import type { Duration } from '../../contract/duration.ts';
import type { Claim } from '../../contract/protocol.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { string } from '../../contract/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { Kind } from '../../contract/shape.ts';
import { subjectOf } from '../task.ts';

export interface Named {
  name: string;
  key: string;
  what: unknown;
  options: unknown;
}

export const stepName = string(LIMITS.stepNameBytes);
const stepKey = string(LIMITS.stepKeyBytes, 0);
export const waitpointName = string(LIMITS.waitpointNameBytes);

function isDurationLike(value: unknown): value is Duration {
  return typeof value === 'string' || (typeof value === 'object' && value !== null);
}

export class CallArguments {
  readonly #claim: Claim;

  constructor(claim: Claim) {
    this.#claim = claim;
  }

  /**
   * `(name, what, options?)` or `(name, key, what, options?)`: a string that is followed by another argument is a key.
   */
  named(method: string, args: unknown[]): Named {
    const [, second, third] = args;
    const name = this.nameOf(method, args[0], stepName);
    const keyed = typeof third === 'function' || (typeof second === 'string' && isDurationLike(third));
    if (keyed && typeof second !== 'string') {
      throw this.misused(method, `needs a text as its key of "${name}": String(…)`);
    }
    const key = keyed ? (second as string) : '';
    this.keyOf(method, key);
    return keyed ? { name, key, what: third, options: args[3] } : { name, key, what: second, options: third };
  }

  /** Checked before anything is done: a step that cannot be stored would run again and again. */
  nameOf(method: string, name: unknown, kind: Kind<string>): string {
    if (typeof name !== 'string' || name === '') throw this.misused(method, 'needs a name first');
    return this.#is(kind, method, 'name', name);
  }

  keyOf(method: string, key: unknown): string {
    return this.#is(stepKey, method, 'key', key);
  }

  #is(kind: Kind<string>, method: string, what: string, given: unknown): string {
    const found = kind.faultOf(given);
    if (found !== undefined) throw this.misused(`${method}:`, `${what} ${found.what}`);
    return given as string;
  }

  /** What follows the name and key: options, or nothing. */
  optionsOf(method: string, name: string, [options = {}, ...more]: unknown[]): object {
    if (typeof options === 'object' && options !== null && more.length === 0) return options;
    throw this.misused(method, `takes options of "${name}" as an object, and a key as a text: String(…)`);
  }

  misused(method: string, what: string): EngineError {
    return new EngineError('invalid_step', `${subjectOf(this.#claim)}: ctx.${method} ${what}.`);
  }

  /** Adds the call to the error of an invalid argument. */
  checked<Value>(call: string, check: () => Value): Value {
    try {
      return check();
    } catch (error) {
      if (!isEngineError(error)) throw error;
      const { code, field = 'options', message } = error;
      throw new EngineError(code, `${subjectOf(this.#claim)}: ctx.${call}: ${message}`, { field });
    }
  }
}
