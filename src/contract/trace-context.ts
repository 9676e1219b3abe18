/**
 * Trace context across a submit: the submitter's span is stored in two reserved tags of the execution, in the W3C Trace
 * Context format. This file only converts; spans are created elsewhere.
 */
import { LIMITS } from './limits.ts';

/** Identifies a span. */
export interface SpanName {
  traceId: string;
  spanId: string;
  traceFlags: number;
  /** What vendors added, as it is sent. */
  tracestate?: string | undefined;
}

/** Tags that differ with every submit and do not describe the work. */
export const TRACE_TAGS: readonly string[] = ['traceparent', 'tracestate'];

const FORM = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/;

/**
 * Adds the span to the tags. Tags that already have one, are not an object, or leave no room are returned unchanged: a
 * trace must not decide whether a submit is accepted.
 */
export function withTrace<Tags extends Record<string, string> | undefined>(
  tags: Tags,
  span: SpanName | undefined,
): Tags | Record<string, string> {
  if (span === undefined) return tags;
  const own: unknown = tags === undefined ? {} : tags;
  if (typeof own !== 'object' || own === null || Array.isArray(own) || 'traceparent' in own) return tags;
  const flags = (span.traceFlags & 0xff).toString(16).padStart(2, '0');
  const traceparent = `00-${span.traceId}-${span.spanId}-${flags}`;
  const room = LIMITS.tags - Object.keys(own).length;
  if (room < 1 || !FORM.test(traceparent)) return tags;
  const { tracestate = '' } = span;
  const fits = tracestate !== '' && tracestate.length <= LIMITS.tagValueBytes && room >= 2;
  return { ...tags, traceparent, ...(fits ? { tracestate } : {}) };
}

/** Returns the span stored in the tags, or undefined when there is none or it is malformed. */
export function traceOf(tags: Readonly<Record<string, string>>): SpanName | undefined {
  const [, traceId, spanId, flags] = FORM.exec(tags['traceparent'] ?? '') ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), tracestate: tags['tracestate'] };
}
