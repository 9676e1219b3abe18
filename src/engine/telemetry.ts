/**
 * Reports operations to OpenTelemetry: a counter, and a span around each if a tracer provider is registered. The API is
 * an optional peer dependency; without it nothing is wrapped, and with it but without a provider an operation costs two
 * lookups. Only names and codes are reported: no arguments, results or messages.
 */
import type * as Otel from '@opentelemetry/api';
import { isEngineError } from '../contract/errors.ts';
import type { SpanName } from '../contract/trace-context.ts';

const SCOPE = 'flowfabric';
const DESCRIPTION = { description: 'Operations of the engine, by name and outcome.' };

/** What a worker does on its own belongs to no request: the span that was active at its start has long ended. */
const OF_THE_WORKER: ReadonlySet<string> = new Set([
  'worker.claim',
  'worker.renew',
  'worker.fireTimers',
  'worker.registerWorker',
  'worker.forgetWorker',
]);

/** An operation with its arguments bound. */
type Call<Answer> = () => Promise<Answer>;

export interface Telemetry {
  /** The span that is active where this is called. */
  activeSpan(): SpanName | undefined;
  /** Runs an operation, counted and in a span. */
  observe<Answer>(operation: string, call: Call<Answer>): Promise<Answer>;
  /** Counts an operation whose result is read item by item. */
  count(operation: string, error?: unknown): void;
}

/** Undefined if the API is not installed. */
export async function loadTelemetry(): Promise<Telemetry | undefined> {
  const otel = await import('@opentelemetry/api').catch(() => undefined);
  return otel === undefined ? undefined : telemetryOf(otel);
}

function telemetryOf(otel: typeof Otel): Telemetry {
  const counter = counterOf(otel);
  return {
    activeSpan: () => otel.trace.getActiveSpan()?.spanContext(),
    count(operation, error) {
      counter()?.add(1, attributesOf(operation, error));
    },
    observe(operation, call) {
      const tracer = tracerOf(otel);
      const counted = counter();
      if (tracer === undefined && counted === undefined) return call();
      const traced = tracer === undefined ? call() : inSpan(otel, tracer, operation, call);
      if (counted === undefined) return traced;
      return traced.then(
        (answer) => {
          counted.add(1, attributesOf(operation));
          return answer;
        },
        (error: unknown) => {
          counted.add(1, attributesOf(operation, error));
          throw error;
        },
      );
    },
  };
}

/** Undefined while no provider is registered: a span that goes nowhere would still cost something. */
function tracerOf(otel: typeof Otel): Otel.Tracer | undefined {
  const provider = otel.trace.getTracerProvider();
  if (!('getDelegateTracer' in provider)) return provider.getTracer(SCOPE);
  return (provider as Otel.ProxyTracerProvider).getDelegateTracer(SCOPE);
}

/** Created once per provider: one may be registered after the engine was opened. */
function counterOf(otel: typeof Otel): () => Otel.Counter | undefined {
  const noop = otel.createNoopMeter();
  let known: Otel.MeterProvider | undefined;
  let counter: Otel.Counter | undefined;
  return () => {
    const provider = otel.metrics.getMeterProvider();
    if (provider !== known) {
      known = provider;
      const meter = provider.getMeter(SCOPE);
      counter = meter === noop ? undefined : meter.createCounter('flowfabric.operations', DESCRIPTION);
    }
    return counter;
  };
}

function inSpan<Answer>(
  otel: typeof Otel,
  tracer: Otel.Tracer,
  operation: string,
  call: Call<Answer>,
): Promise<Answer> {
  const options = { kind: otel.SpanKind.CLIENT, attributes: { 'flowfabric.operation': operation } };
  const parent = OF_THE_WORKER.has(operation) ? otel.ROOT_CONTEXT : otel.context.active();
  return tracer.startActiveSpan(`flowfabric ${operation}`, options, parent, async (span) => {
    try {
      const answer = await call();
      span.setAttribute('flowfabric.outcome', 'ok');
      return answer;
    } catch (error) {
      const code = codeOf(error);
      span.setAttribute('flowfabric.outcome', code);
      span.setStatus({ code: otel.SpanStatusCode.ERROR, message: code });
      throw error;
    } finally {
      span.end();
    }
  });
}

function attributesOf(operation: string, error?: unknown): Otel.Attributes {
  return {
    'flowfabric.operation': operation,
    'flowfabric.outcome': error === undefined ? 'ok' : codeOf(error),
  };
}

/** Errors of the caller, such as the reason of its `AbortSignal`, have no code. */
function codeOf(error: unknown): string {
  return isEngineError(error) ? error.code : 'error';
}
