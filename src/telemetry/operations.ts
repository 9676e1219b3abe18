/**
 * Reports operations to OpenTelemetry: a counter, and a span around each if a tracer provider is registered. Without the
 * API nothing is wrapped, and with it but without a provider an operation costs two lookups, and nothing is created. Only names and codes are
 * reported: no arguments, results or messages.
 */
import type * as Otel from '@opentelemetry/api';
import { isEngineError } from '../contract/errors.ts';
import type { SpanName } from '../contract/trace-context.ts';
import { activeSpan, inSpan, loadOpenTelemetry, outsideSpans, type OpenTelemetry } from './open-telemetry.ts';
import { quietly, reporting, type Ended } from './reporting.ts';

const SCOPE = 'flowfabric';
const DESCRIPTION = { description: 'Operations of the engine, by name and outcome.' };

/** An operation with its arguments bound. It never throws: it rejects. */
type Call<Answer> = () => Promise<Answer>;

export interface Telemetry {
  /** True while nothing would be reported: then an operation need not be observed. */
  isIdle(): boolean;
  /** The span that is active where this is called. */
  activeSpan(): SpanName | undefined;
  /** Runs something that outlives the call that starts it: in no span. */
  outsideSpans<Value>(work: () => Value): Value;
  /** Runs an operation in a span and counts it. What a `lasting` one starts does not belong to the span. */
  observe<Answer>(operation: string, call: Call<Answer>, kind?: 'lasting'): Promise<Answer>;
  /** Counts an operation. */
  count(operation: string, ended: Ended): void;
}

/** Undefined if the API is not installed. */
export async function loadTelemetry(): Promise<Telemetry | undefined> {
  const otel = await loadOpenTelemetry();
  return otel === undefined ? undefined : telemetryOf(otel);
}

function telemetryOf(otel: OpenTelemetry): Telemetry {
  const counter = counterOf(otel);
  return {
    isIdle() {
      try {
        return tracerOf(otel) === undefined && counter() === undefined;
      } catch {
        return false;
      }
    },
    activeSpan: () => activeSpan(otel),
    outsideSpans: (work) => outsideSpans(otel, work),
    count(operation, ended) {
      quietly(() => counter()?.add(1, attributesOf(operation, ended)));
    },
    observe(operation, call, kind) {
      const work: typeof call = kind === 'lasting' ? () => outsideSpans(otel, call) : call;
      const tracer = quietly(() => tracerOf(otel));
      const counted = quietly(counter);
      const traced = tracer === undefined ? work() : spanned(otel, tracer, operation, work);
      if (counted === undefined) return traced;
      return reporting(traced, (ended) => counted.add(1, attributesOf(operation, ended)));
    },
  };
}

/** Undefined while no provider is registered: a span that goes nowhere would still cost something. */
function tracerOf(otel: OpenTelemetry): Otel.Tracer | undefined {
  const provider = otel.trace.getTracerProvider();
  if (!('getDelegateTracer' in provider)) return provider.getTracer(SCOPE);
  return (provider as Otel.ProxyTracerProvider).getDelegateTracer(SCOPE);
}

/** Created once per provider: one may be registered after the engine was opened. */
function counterOf(otel: OpenTelemetry): () => Otel.Counter | undefined {
  let known: Otel.MeterProvider | undefined;
  let counter: Otel.Counter | undefined;
  return () => {
    const provider = otel.metrics.getMeterProvider();
    if (provider !== known) {
      known = provider;
      counter = undefined;
      const meter = provider.getMeter(SCOPE);
      if (meter !== otel.createNoopMeter())
        counter = meter.createCounter('flowfabric.operations', DESCRIPTION);
    }
    return counter;
  };
}

function spanned<Answer>(
  otel: OpenTelemetry,
  tracer: Otel.Tracer,
  operation: string,
  call: Call<Answer>,
): Promise<Answer> {
  return inSpan(
    otel,
    {
      start: (parent) =>
        tracer.startSpan(
          `flowfabric ${operation}`,
          { kind: otel.SpanKind.CLIENT, attributes: { 'flowfabric.operation': operation } },
          parent,
        ),
      describe(span, ended) {
        const outcome = outcomeOf(ended);
        span.setAttribute('flowfabric.outcome', outcome);
        if (ended.result === 'error') span.setStatus({ code: otel.SpanStatusCode.ERROR, message: outcome });
      },
    },
    call,
  );
}

function attributesOf(operation: string, ended: Ended): Otel.Attributes {
  return { 'flowfabric.operation': operation, 'flowfabric.outcome': outcomeOf(ended) };
}

/** Errors of the caller, such as the reason of its `AbortSignal`, have no code, and inspecting them may throw. */
function outcomeOf(ended: Ended): string {
  if (ended.result === 'ok') return 'ok';
  const { error } = ended;
  return quietly(() => (isEngineError(error) ? error.code : undefined)) ?? 'error';
}
