/**
 * OpenTelemetry as the rest of the code uses it: loaded if it is installed, and never in the way. Its API calls the
 * application's span processors, meters and context managers, which may throw; no such error may reach the work that is
 * reported. So the work runs exactly once, and everything else runs `quietly`. Published types must not lead here: the API
 * is an optional dependency, and its types may be missing.
 */
import type * as Otel from '@opentelemetry/api';
import type { SpanName } from '../contract/trace-context.ts';
import { quietly, reporting, type Ended } from './reporting.ts';

export type OpenTelemetry = typeof Otel;

/** The API is an optional peer dependency: undefined if it is not installed. */
export async function loadOpenTelemetry(): Promise<OpenTelemetry | undefined> {
  return import('@opentelemetry/api').catch(() => undefined);
}

/** The span that is active where this is called. */
export function activeSpan(otel: OpenTelemetry): SpanName | undefined {
  return quietly(() => {
    const span = otel.trace.getActiveSpan()?.spanContext();
    if (span === undefined) return undefined;
    const { traceId, spanId, traceFlags, traceState } = span;
    return { traceId, spanId, traceFlags, tracestate: quietly(() => traceState?.serialize()) };
  });
}

/** Runs something in no span: what outlives the call that starts it must not belong to the caller's span. */
export function outsideSpans<Value>(otel: OpenTelemetry, work: () => Value): Value {
  return within(otel, () => otel.ROOT_CONTEXT, work);
}

/** Runs something in a context, or in the current one if that is not possible; in any case once. */
function within<Value>(otel: OpenTelemetry, context: () => Otel.Context, work: () => Value): Value {
  let ran: (() => Value) | undefined;
  const run = (): (() => Value) => (ran ??= attempted(work));
  quietly(() => otel.context.with(context(), run));
  return run()();
}

/** Runs something now; the returned function returns or throws what it did. */
function attempted<Value>(work: () => Value): () => Value {
  try {
    const value = work();
    return () => value;
  } catch (error) {
    return () => {
      throw error;
    };
  }
}

export interface Spanned {
  /** Default: the active context. */
  parent?: () => Otel.Context;
  start: (parent: Otel.Context) => Otel.Span;
  /** Describes how the work ended; the span is ended after it. */
  describe: (span: Otel.Span, ended: Ended) => void;
}

/** Runs something in a span; without one, but in the same context, if it cannot be started. */
export function inSpan<Value>(
  otel: OpenTelemetry,
  { parent = () => otel.context.active(), start, describe }: Spanned,
  work: () => Value | Promise<Value>,
): Promise<Value> {
  const span = quietly(() => start(parent()));
  const context = () => (span === undefined ? parent() : otel.trace.setSpan(parent(), span));
  const working = within(otel, context, async () => work());
  if (span === undefined) return working;
  return reporting(working, (ended) => {
    quietly(() => describe(span, ended));
    span.end();
  });
}
