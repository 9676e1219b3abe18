/**
 * What is kept of an error that failed an attempt, beside its message: its class, the frames of its stack and its
 * causes. Never the error's own fields, which may quote data.
 */
import { isEngineError } from '../contract/errors.ts';
import type { FailureCause, FailureDetail } from '../contract/failure-detail.ts';
import { LIMITS } from '../contract/limits.ts';
import { withoutSecrets } from '../contract/secrets.ts';
import { boundedDetail } from '../model/failure-detail.ts';
import { isOwnFrame, ownFrame } from './log/own-frame.ts';
import { classOf, messageOf } from './log/shown-error.ts';

/** Lines of a stack that are looked at, and characters of each. */
const STACK_LINES = 500;
const STACK_LINE = 500;
/** Characters of a cause's message that are searched for secrets, before it is cut. */
const MESSAGE = 4_000;

/** Undefined for what is not an Error. Never throws: a failure report must not fail. */
export function detailOf(thrown: unknown): FailureDetail | undefined {
  try {
    if (!(thrown instanceof Error)) return undefined;
    return boundedDetail({ name: classOf(thrown), stack: framesOf(thrown), causes: causesOf(thrown) });
  } catch {
    return undefined;
  }
}

/** Causes of the engine's own errors are left out: they may quote data. */
function causesOf(error: Error): FailureCause[] {
  const causes: FailureCause[] = [];
  let last: Error = error;
  // Counted, because the chain may be closed to a circle.
  while (causes.length < LIMITS.failureCauses && !isEngineError(last) && last.cause instanceof Error) {
    last = last.cause;
    const message = withoutSecrets(messageOf(last).slice(0, MESSAGE));
    causes.push({ name: classOf(last), message, at: ownFrame(last) ?? null });
  }
  return causes;
}

/** The stack begins with the message, which may have lines that look like frames. */
function framesOf(error: Error): string {
  const stack: unknown = error.stack;
  if (typeof stack !== 'string') return '';
  const message = messageOf(error);
  const from = message !== '' && stack.includes(message) ? stack.indexOf(message) + message.length : 0;
  const frames = stack
    .slice(from, from + STACK_LINES * STACK_LINE)
    .split('\n', STACK_LINES)
    .map((line) => line.trim().slice(0, STACK_LINE))
    .filter((line) => line.startsWith('at '));
  const own = frames.filter(isOwnFrame);
  const others = frames.filter((frame) => !isOwnFrame(frame));
  return withoutSecrets([...own, ...others].join('\n'));
}
