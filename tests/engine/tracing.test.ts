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
  type Meter,
  type MeterProvider,
} from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';
import { task } from '../../src/define/task.ts';
import type { ExecutionId } from '../../src/index.ts';
import { claimRequest, newKind, useBench, WAIT } from '../conformance/open.ts';

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

  it('what a worker calls all the time is only counted, and calls about a run are children of the run', async () => {
    const kind = newKind();
    await bench.submit({ kind });
    exporter.reset();
    counted.length = 0;
    await trace.getTracer('test').startActiveSpan('run', async (span) => {
      const { claims } = await bench.port.claim({ ...claimRequest(), kinds: [kind] });
      for (const claim of claims) await bench.port.complete(claim);
      span.end();
    });
    const [complete, run, ...others] = exporter.getFinishedSpans();
    expect(complete!.name).toBe('flowfabric worker.complete');
    expect(complete!.parentSpanContext?.spanId).toBe(run!.spanContext().spanId);
    expect(others).toEqual([]);
    expect(counted.map((attributes) => attributes['flowfabric.operation'])).toEqual([
      'worker.claim',
      'worker.complete',
    ]);
  });

  it('what a consumer does belongs neither to the call that started it nor to the span around that', async () => {
    const { engine } = bench;
    const submitted: ExecutionId[] = [];
    const consumer = await trace.getTracer('test').startActiveSpan('start', async (span) => {
      const consuming = await engine.events.consume(newKind(), async () => {
        submitted.push((await engine.submit(task<null>(newKind()), null)).executionId);
      });
      span.end();
      return consuming;
    });
    await bench.submit();
    await expect.poll(() => submitted.length, WAIT).toBeGreaterThan(0);
    await consumer.stop();
    expect((await bench.snapshot(submitted[0]!)).tags).toEqual({});
    const spans = new Map(exporter.getFinishedSpans().map((span) => [span.name, span]));
    expect(spans.get('flowfabric events.consume')!.parentSpanContext?.spanId).toBe(
      spans.get('start')!.spanContext().spanId,
    );
  });
});

class BrokenManager extends AsyncLocalStorageContextManager {
  override active(): never {
    throw new Error('telemetry is broken');
  }
  override with(): never {
    throw new Error('telemetry is broken');
  }
}

describe('telemetry that throws changes nothing for the caller', () => {
  const broken = (): never => {
    throw new Error('telemetry is broken');
  };
  const quiet = { onStart() {}, onEnd() {}, forceFlush: async () => {}, shutdown: async () => {} };
  const processing = (processor: Partial<SpanProcessor>): (() => void) => {
    const spanProcessors = [{ ...quiet, ...processor }];
    return () => trace.setGlobalTracerProvider(new BasicTracerProvider({ spanProcessors }));
  };
  const counting = (counter: () => Counter): (() => void) => {
    const meter = Object.assign(Object.create(createNoopMeter()) as Meter, { createCounter: counter });
    return () => metrics.setGlobalMeterProvider({ getMeter: () => meter });
  };
  afterEach(unregister);

  it.each<[string, () => void]>([
    ['a span that cannot be started', processing({ onStart: broken })],
    ['a span that cannot be ended', processing({ onEnd: broken })],
    ['a tracer provider', () => trace.setGlobalTracerProvider({ getTracer: broken })],
    ['a meter provider', () => metrics.setGlobalMeterProvider({ getMeter: broken })],
    ['a counter that cannot be created', counting(broken)],
    ['a counter', counting(() => ({ add: broken }))],
    ['a context manager', () => context.setGlobalContextManager(new BrokenManager())],
  ])('%s', async (_, setUp) => {
    setUp();
    const reason = new Error('mine');
    const id = await bench.submit();
    expect(await bench.engine.executions.describe(id)).toMatchObject({ executionId: id });
    const waiting = bench.engine.executions.wait(id, { signal: AbortSignal.abort(reason) });
    await expect(waiting).rejects.toBe(reason);
    expect(() => bench.engine.streams.tail('{fp:1}:no-uuid')).toThrow(
      expect.objectContaining({ code: 'invalid_id' }),
    );
    const { executionId } = await bench.engine.submit(task<null>(newKind()), null);
    expect((await bench.engine.cancel(executionId, { reason: 'over' })).outcome).toBe('cancelled');
    const events = await bench.engine.events.subscribe({ from: 'beginning' });
    await events.close();
  });

  it('an API without what is asked of it', async () => {
    vi.doMock('@opentelemetry/api', () => ({ trace: {} }));
    vi.resetModules();
    try {
      const { loadTelemetry } = await import('../../src/telemetry/operations.ts');
      const telemetry = (await loadTelemetry())!;
      expect(telemetry.activeSpan()).toBeUndefined();
      expect(telemetry.outsideSpans(() => 'started')).toBe('started');
      telemetry.count('some.verb', { result: 'ok' });
      const call = vi.fn(async () => 'answer');
      expect(await telemetry.observe('some.verb', call)).toBe('answer');
      expect(await telemetry.observe('some.verb', call, 'lasting')).toBe('answer');
      expect(call).toHaveBeenCalledTimes(2);
    } finally {
      vi.doUnmock('@opentelemetry/api');
      vi.resetModules();
    }
  });
});
