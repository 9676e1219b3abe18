/**
 * Guards the public calls so that they throw only EngineErrors, even when reading an argument throws, as a getter or a
 * proxy may. Errors of the caller's own functions and the reason of an aborted signal pass through unchanged.
 */
import { EngineError, isEngineError } from '../contract/errors.ts';

type Verb = (...args: unknown[]) => unknown;

/** Returns the same verbs, guarded, except those that run the caller's functions. */
export function guarded<Verbs extends object>(verbs: Verbs, except: readonly (keyof Verbs)[] = []): Verbs {
  const entries = Object.entries(verbs).map(([name, verb]) => {
    const isGuarded = typeof verb === 'function' && !except.includes(name as keyof Verbs);
    return [name, isGuarded ? guard(verb as Verb) : verb] as const;
  });
  return { ...verbs, ...Object.fromEntries(entries) };
}

function guard(verb: Verb, given?: readonly unknown[]): Verb {
  return (...args) => {
    const blamed = given ?? args;
    try {
      const returned = verb(...args);
      if (returned instanceof Promise) return returned.catch((error: unknown) => rethrow(error, blamed));
      return isGenerator(returned) ? guardedSteps(returned, blamed) : returned;
    } catch (error) {
      return rethrow(error, blamed);
    }
  };
}

/** A generator reads its arguments with the first `next()`. */
function guardedSteps(generator: AsyncGenerator, args: readonly unknown[]): AsyncGenerator {
  return Object.assign(generator, { next: guard(generator.next.bind(generator) as Verb, args) });
}

function isGenerator(value: unknown): value is AsyncGenerator {
  return Object.prototype.toString.call(value) === '[object AsyncGenerator]';
}

function rethrow(error: unknown, args: readonly unknown[]): never {
  if (isOurs(error) || args.some((arg) => reasonOf(arg) === error)) throw error;
  throw new EngineError(
    'invalid_input',
    'arguments could not be read: a getter or proxy in one of them threw.',
    {
      field: 'arguments',
      cause: error,
    },
  );
}

/** Anything may be thrown, and inspecting it may throw as well. */
function isOurs(error: unknown): boolean {
  try {
    return isEngineError(error);
  } catch {
    return false;
  }
}

/** The abort reason of an argument's signal: the call rejects with it. */
function reasonOf(arg: unknown): unknown {
  try {
    return (arg as { signal?: { reason?: unknown } } | undefined)?.signal?.reason;
  } catch {
    return undefined;
  }
}
