/**
 * What is reported to OpenTelemetry: a span and a count for each operation, with names and codes and none of its
 * arguments. Uses the real API, spans kept in memory, and a meter that fills a list.
 */
import {
  context,
  createNoopMeter,
  metrics,
  SpanKind,
  SpanStatusCode,
  trace,
  type Attributes,
  type Counter,
  type MeterProvider,
} from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { claimRequest, newKind, useBench } from '../conformance/open.ts';

const bench = useBench();
const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
const counted: Attributes[] = [];

/** Counts into a list; everything else a meter can do is not implemented. */
function listing(): MeterProvider {
  const counter: Counter = { add: (_, attributes = {}) => void counted.push(attributes) };
  const meter = Object.assign(Object.create(createNoopMeter()) as ReturnType<typeof createNoopMeter>, {
    createCounter: (name: string) => {
      expect(name).toBe('flowfabric.operations');
      return counter;
    },
  });
  return { getMeter: () => meter };
}

function register(): void {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(provider);
  metrics.setGlobalMeterProvider(listing());
}

function unregister(): void {
  trace.disable();
  metrics.disable();
  context.disable();
}

afterEach(() => {
  exporter.reset();
  counted.length = 0;
});
afterAll(() => provider.shutdown());

const SECRET = 'nobody else is to know';

it('nothing is reported while no provider is registered, and one registered later is used', async () => {
  await bench.submit();
  expect([exporter.getFinishedSpans(), counted]).toEqual([[], []]);
  register();
  await bench.submit();
  expect(exporter.getFinishedSpans().map(({ name }) => name)).toEqual(['flowfabric executions.submit']);
  expect(counted).toEqual([{ 'flowfabric.operation': 'executions.submit', 'flowfabric.outcome': 'ok' }]);
  unregister();
  await bench.submit();
  expect(exporter.getFinishedSpans()).toHaveLength(1);
});

describe('with providers', () => {
  beforeAll(register);
  afterAll(unregister);

  it('a span is a child of the active one, and has only the names of operation and outcome', async () => {
    await trace.getTracer('test').startActiveSpan('request', async (span) => {
      await bench.engine.executions.submit({ kind: newKind(), payload: SECRET, tags: { secret: SECRET } });
      span.end();
    });
    const [submit, request] = exporter.getFinishedSpans();
    expect(submit).toMatchObject({
      name: 'flowfabric executions.submit',
      kind: SpanKind.CLIENT,
      attributes: { 'flowfabric.operation': 'executions.submit', 'flowfabric.outcome': 'ok' },
    });
    expect(submit!.parentSpanContext?.spanId).toBe(request!.spanContext().spanId);
    const { attributes, events, status, links } = submit!;
    expect(JSON.stringify({ attributes, events, status, links })).not.toContain(SECRET);
  });

  it('a refusal is reported by its code, without its message', async () => {
    const refused = bench.engine.executions.submit({ kind: newKind(), lane: SECRET.repeat(50) });
    await expect(refused).rejects.toMatchObject({ code: 'invalid_input' });
    const [span] = exporter.getFinishedSpans();
    expect(span).toMatchObject({
      attributes: { 'flowfabric.outcome': 'invalid_input' },
      status: { code: SpanStatusCode.ERROR, message: 'invalid_input' },
      events: [],
    });
    expect(counted).toEqual([
      { 'flowfabric.operation': 'executions.submit', 'flowfabric.outcome': 'invalid_input' },
    ]);
  });

  it('an error of the caller’s own has no code', async () => {
    const reason = new Error(SECRET);
    const id = await bench.submit();
    const waiting = bench.engine.executions.wait(id, { signal: AbortSignal.abort(reason) });
    await expect(waiting).rejects.toBe(reason);
    expect(counted.at(-1)).toEqual({
      'flowfabric.operation': 'executions.wait',
      'flowfabric.outcome': 'error',
    });
  });

  it('an iterable result is counted once per call, and has no span', async () => {
    const claim = await bench.running();
    await bench.port.complete(claim);
    exporter.reset();
    counted.length = 0;
    for await (const item of bench.engine.streams.tail(claim.executionId)) expect(item.type).toBe('closed');
    expect(() => bench.engine.streams.tail('{fp:1}:no-uuid')).toThrow();
    expect(exporter.getFinishedSpans()).toEqual([]);
    expect(counted).toEqual([
      { 'flowfabric.operation': 'streams.tail', 'flowfabric.outcome': 'ok' },
      { 'flowfabric.operation': 'streams.tail', 'flowfabric.outcome': 'invalid_id' },
    ]);
  });

  it('a claim of a worker has no parent span, and calls about a run are children of the run', async () => {
    const kind = newKind();
    await bench.submit({ kind });
    exporter.reset();
    await trace.getTracer('test').startActiveSpan('run', async (span) => {
      const { claims } = await bench.port.claim({ ...claimRequest(), kinds: [kind] });
      for (const claim of claims) await bench.port.complete(claim);
      span.end();
    });
    const spans = new Map(exporter.getFinishedSpans().map((span) => [span.name, span]));
    expect(spans.get('flowfabric worker.claim')).toMatchObject({ parentSpanContext: undefined });
    expect(spans.get('flowfabric worker.complete')!.parentSpanContext?.spanId).toBe(
      spans.get('run')!.spanContext().spanId,
    );
  });
});
