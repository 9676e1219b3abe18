/**
 * The last line before the caller: a verb throws EngineErrors, also when reading what it was given throws something else, such as a getter or a
 * proxy of the caller's. What the caller's own work throws, and the reason of a signal, stay as they are.
 */
import { EngineError, isEngineError } from '../contract/errors.ts';

type Verb = (...args: unknown[]) => unknown;

/** The same verbs, but for those that run work of the caller's. */
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
      const answer = verb(...args);
      if (answer instanceof Promise) return answer.catch((error: unknown) => rethrow(error, blamed));
      return isGenerator(answer) ? guardedSteps(answer, blamed) : answer;
    } catch (error) {
      return rethrow(error, blamed);
    }
  };
}

/** What is answered item by item reads what it was given with the first. */
function guardedSteps(answer: AsyncGenerator, args: readonly unknown[]): AsyncGenerator {
  return Object.assign(answer, { next: guard(answer.next.bind(answer) as Verb, args) });
}

function isGenerator(answer: unknown): answer is AsyncGenerator {
  return Object.prototype.toString.call(answer) === '[object AsyncGenerator]';
}

function rethrow(error: unknown, args: readonly unknown[]): never {
  if (isOurs(error) || args.some((arg) => reasonOf(arg) === error)) throw error;
  throw new EngineError('invalid_input', 'arguments could not be read: reading one of them threw.', {
    field: 'arguments',
    cause: error,
  });
}

/** What is thrown may be anything, and looking at it may throw. */
function isOurs(error: unknown): boolean {
  try {
    return isEngineError(error);
  } catch {
    return false;
  }
}

/** Why the signal of a call was aborted; the call rejects with it. */
function reasonOf(arg: unknown): unknown {
  try {
    return (arg as { signal?: { reason?: unknown } } | undefined)?.signal?.reason;
  } catch {
    return undefined;
  }
}
