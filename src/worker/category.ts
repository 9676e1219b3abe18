/**
 * The category of a failure whose handler gave none. Errors that the same code will throw again for the same input are
 * `permanent`; nothing is known of all others, so they are `transient`. A category decides nothing by itself: whether
 * the attempt is retried is up to the policy.
 */
import { ExecutionFailed } from '../contract/errors.ts';

/** Errors that a program throws because of its own code. By name, because they may come from another realm. */
const PROGRAMMING_ERRORS: ReadonlySet<unknown> = new Set([
  'TypeError',
  'ReferenceError',
  'SyntaxError',
  'RangeError',
  'URIError',
  'EvalError',
  'AssertionError',
]);

/** Causes that are followed: a chain may be long, or closed to a circle. */
const MAX_CAUSES = 8;

/** Undefined leaves the default. Never throws: reading a strange error might. */
export function categoryOf(thrown: unknown): 'permanent' | undefined {
  try {
    return isPermanent(thrown) ? 'permanent' : undefined;
  } catch {
    return undefined;
  }
}

function isPermanent(thrown: unknown): boolean {
  let error = thrown;
  for (let causes = 0; error instanceof Error && causes <= MAX_CAUSES; causes += 1) {
    if (error instanceof ExecutionFailed || hasIssues(error)) return true;
    if (!PROGRAMMING_ERRORS.has(error.name)) return false;
    // A failed request is a TypeError too; what caused it tells which it is. The runtime's own errors have no cause.
    if (error.cause === undefined) return true;
    error = error.cause;
  }
  return false;
}

/** A validation error of zod, valibot or another Standard Schema library. */
function hasIssues(error: Error): boolean {
  return Array.isArray((error as { issues?: unknown }).issues);
}
