/**
 * Where a trace goes on: the submitter's span, kept in two reserved tags of the execution in the form of W3C Trace
 * Context. Text in, text out; who has spans, and what is made of them, is known elsewhere.
 */
import { LIMITS } from './limits.ts';

/** What names a span; OpenTelemetry's SpanContext has this shape. */
export interface SpanName {
  traceId: string;
  spanId: string;
  traceFlags: number;
  traceState?: { serialize(): string } | undefined;
}

/** Tags that differ from submit to submit and say nothing about the work. */
export const TRACE_TAGS: readonly string[] = ['traceparent', 'tracestate'];

const FORM = /^00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})$/;

/**
 * The tags with the span added. Tags that name one already, are no tags, or leave no room are left as they are: a trace
 * must not change whether a submit is accepted.
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
  const tracestate = span.traceState?.serialize() ?? '';
  const fits = tracestate !== '' && tracestate.length <= LIMITS.tagValueBytes && room >= 2;
  return { ...tags, traceparent, ...(fits ? { tracestate } : {}) };
}

/** The span in the tags, or undefined when there is none, or none that makes sense. */
export function traceOf(
  tags: Readonly<Record<string, string>>,
): { traceId: string; spanId: string; traceFlags: number; tracestate: string | undefined } | undefined {
  const [, traceId, spanId, flags] = FORM.exec(tags['traceparent'] ?? '') ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return undefined;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16), tracestate: tags['tracestate'] };
}
