/**
 * Keeps the detail of a failure within its limit: a failure report must not fail because it is long.
 */
import type { FailureCause, FailureDetail } from '../contract/failure-detail.ts';
import { LIMITS } from '../contract/limits.ts';
import { bytesOf, cutText } from './cut-text.ts';

/** Class, causes and their messages are cut first, so that most of the room is left for the stack. */
export function boundedDetail({ name, stack, causes }: FailureDetail): FailureDetail {
  const shortName = cutText(name, LIMITS.failureNameBytes);
  const shortCauses = causes.slice(0, LIMITS.failureCauses).map(shortCause);
  const used = shortCauses.reduce((sum, cause) => sum + bytesOfCause(cause), bytesOf(shortName));
  return {
    name: shortName,
    stack: wholeLines(stack, LIMITS.failureDetailBytes - used),
    causes: shortCauses,
  };
}

function shortCause({ name, message, at }: FailureCause): FailureCause {
  return {
    name: cutText(name, LIMITS.failureNameBytes),
    message: cutText(message, LIMITS.failureCauseBytes),
    at: at === null ? null : cutText(at, LIMITS.failureNameBytes),
  };
}

function bytesOfCause({ name, message, at }: FailureCause): number {
  return bytesOf(name) + bytesOf(message) + bytesOf(at ?? '');
}

/** Half a frame would name a place that does not exist. */
function wholeLines(text: string, maxBytes: number): string {
  const kept = cutText(text, maxBytes);
  if (bytesOf(text) <= maxBytes) return kept;
  return kept.slice(0, Math.max(kept.lastIndexOf('\n'), 0));
}
