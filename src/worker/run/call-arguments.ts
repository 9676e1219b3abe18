/**
 * The arguments that a handler passes to the methods of its context. Their types are not checked in JavaScript, so they
 * are checked before anything is done; an error names the call.
 */
import type { Claim } from '../../contract/protocol.ts';
import { EngineError, isEngineError } from '../../contract/errors.ts';
import { string } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { Kind } from '../../contract/shape/shape.ts';
import { subjectOf } from '../task.ts';

/** What follows the name in a call: with or without a key before it. */
export type Keyed<Rest extends unknown[]> = Rest | [key: string, ...rest: Rest];

/** A call whose arguments were checked. */
interface KeyedCall<What, Options> {
  key: string;
  what: What;
  options: Options | undefined;
}

export const stepName = string(LIMITS.stepNameBytes);
const stepKey = string(LIMITS.stepKeyBytes, 0);
export const mailboxName = string(LIMITS.mailboxBytes);
export const waitpointName = string(LIMITS.waitpointNameBytes);

/** A string that is followed by a function, a duration or a date is a key. */
function hasKey<What, Options>(
  call: Keyed<[what: What, options?: Options | undefined]>,
): call is [key: string, what: What, options?: Options | undefined] {
  const [first, second] = call as unknown[];
  if (typeof second === 'function') return true;
  const isDurationLike =
    typeof second === 'string' ||
    typeof second === 'number' ||
    (typeof second === 'object' && second !== null);
  return typeof first === 'string' && isDurationLike;
}

function hasStringFirst<Rest extends unknown[]>(call: Keyed<Rest>): call is [key: string, ...rest: Rest] {
  return typeof call[0] === 'string';
}

export class CallArguments {
  readonly #claim: Claim;

  constructor(claim: Claim) {
    this.#claim = claim;
  }

  /** `(name, what, options?)` or `(name, key, what, options?)`. */
  keyed<What, Options>(
    method: string,
    name: string,
    call: Keyed<[what: What, options?: Options | undefined]>,
  ): KeyedCall<What, Options> {
    this.nameOf(method, name, stepName);
    if (!hasKey(call)) return { key: '', what: call[0], options: call[1] };
    const [key, what, options] = call;
    if (typeof key !== 'string') {
      throw this.misused(method, `needs a string as the key of "${name}": use String(…)`);
    }
    return { key: this.keyOf(method, key), what, options };
  }

  /** Checked before anything is done: a step that cannot be stored would run again and again. */
  nameOf(method: string, name: string, kind: Kind<string>): string {
    if (typeof name !== 'string' || name === '') throw this.misused(method, 'needs a name first');
    return this.#is(kind, method, 'name', name);
  }

  keyOf(method: string, key: string): string {
    return this.#is(stepKey, method, 'key', key);
  }

  #is(kind: Kind<string>, method: string, what: string, given: string): string {
    const found = kind.faultOf(given);
    if (found !== undefined) throw this.misused(`${method}:`, `${what} ${found.what}`);
    return given;
  }

  /** `(name, options?)` or `(name, key, options?)`. */
  keyedOptions<Options extends object>(
    method: string,
    name: string,
    call: Keyed<[options?: Options | undefined]>,
  ): { key: string; options: Options | undefined } {
    const [key, ...rest] = hasStringFirst(call) ? call : (['', ...call] as const);
    this.keyOf(method, key);
    return { key, options: this.optionsOf(method, name, rest) };
  }

  /** What follows the name and key: options, or nothing. */
  optionsOf<Options extends object>(
    method: string,
    name: string,
    [options, ...more]: [options?: Options | undefined],
  ): Options | undefined {
    const isObject = options === undefined || (typeof options === 'object' && options !== null);
    if (isObject && more.length === 0) return options;
    throw this.misused(
      method,
      `takes the options of "${name}" as an object and a key as a string: use String(…)`,
    );
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
