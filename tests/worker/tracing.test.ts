/**
 * Traces through the queue: a submit stores the active span, a run is linked to it, and steps and children are below
 * the run; none of it affects the work. With the real OpenTelemetry API and spans kept in memory.
 */
import { context, SpanKind, SpanStatusCode, trace, type Span } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type ReadableSpan,
} from '@opentelemetry/sdk-trace-base';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import type { Connection } from '../../src/connect/connection.ts';
import { task } from '../../src/define/task.ts';
import { handle, type Middleware, type TaskHandler } from '../../src/define/handlers.ts';
import { TaskFailed } from '../../src/worker/task.ts';
import { openTelemetry, type TracingOptions } from '../../src/worker/tracing.ts';
import { AGAIN, newKind, SOON, useCrew } from './crew.ts';
import { workerPort } from '../../src/connect/port.ts';
import { startWorker } from '../../src/connect/worker.ts';

const crew = useCrew();
const exporter = new InMemorySpanExporter();
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });

beforeAll(() => {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(provider);
});
afterEach(() => exporter.reset());
afterAll(async () => {
  await provider.shutdown();
  trace.disable();
  context.disable();
});

/** Runs inside a span created by the test. */
function inSpan<Value>(work: (span: Span) => Promise<Value>): Promise<Value> {
  return trace.getTracer('test').startActiveSpan('request', async (span) => {
    try {
      return await work(span);
    } finally {
      span.end();
    }
  });
}

async function spansNamed(name: string, count = 1): Promise<ReadableSpan[]> {
  const named = () => exporter.getFinishedSpans().filter((span) => span.name === name);
  await expect.poll(() => named().length, SOON).toBe(count);
  return named();
}

async function workTraced(handlers: TaskHandler[], options?: TracingOptions): Promise<Connection> {
  const engine = await crew.connect();
  crew.work(engine, { handlers, middleware: [await openTelemetry(options)] });
  return engine;
}

describe('a submit', () => {
  test('in a span stores it with the execution, beside the tags it was given', async () => {
    const engine = await crew.connect();
    const greet = task<string>(newKind());
    const [one, ...more] = await inSpan(async (span) => {
      const { traceId, spanId } = span.spanContext();
      const traceparent = `00-${traceId}-${spanId}-01`;
      const first = await engine.submit(greet, 'a', { tags: { team: 'shop' } });
      const rest = await engine.submitMany(greet, [{ input: 'b' }, { input: 'c' }]);
      return [{ ...first, traceparent }, ...rest.map((each) => ({ ...each, traceparent }))];
    });
    const tagsOf = async (id: string) => (await engine.executions.describe(id))!.tags;
    expect(await tagsOf(one!.executionId)).toEqual({ team: 'shop', traceparent: one!.traceparent });
    for (const each of more)
      expect(await tagsOf(each.executionId)).toEqual({ traceparent: each.traceparent });
  });

  test('without a span adds nothing', async () => {
    const engine = await crew.connect();
    const { executionId } = await engine.submit(task<string>(newKind()), 'a');
    expect((await engine.executions.describe(executionId))!.tags).toEqual({});
  });

  test('keeps a trace it was given, and adds none when the tags leave no room', async () => {
    const engine = await crew.connect();
    const greet = task<string>(newKind());
    const full = Object.fromEntries(Array.from({ length: 64 }, (_, n) => [`tag-${n}`, 'x']));
    const given = { traceparent: 'mine' };
    await inSpan(async () => {
      for (const tags of [full, given]) {
        const { executionId } = await engine.submit(greet, 'a', { tags });
        expect((await engine.executions.describe(executionId))!.tags).toEqual(tags);
      }
    });
  });

  test('that would be refused is refused in a span too', async () => {
    const engine = await crew.connect();
    const greet = task<string>(newKind());
    await inSpan(async () => {
      for (const tags of [null, 'text', ['list']] as never[]) {
        await expect(engine.submit(greet, 'a', { tags })).rejects.toMatchObject({ code: 'invalid_input' });
      }
    });
  });

  test('stores the trace state of vendors, and a run adopts it', async () => {
    const greet = task<string>(newKind());
    const engine = await workTraced([handle(greet, () => null)]);
    const parent = {
      traceId: '0af7651916cd43dd8448eb211c80319c',
      spanId: 'b7ad6b7169203331',
      traceFlags: 0,
      traceState: { serialize: () => 'vendor=1' } as never,
    };
    const { executionId } = await context.with(trace.setSpanContext(context.active(), parent), () =>
      engine.submit(greet, 'a'),
    );
    expect((await engine.executions.describe(executionId))!.tags).toEqual({
      traceparent: '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00',
      tracestate: 'vendor=1',
    });
    const [run] = await spansNamed(`task ${greet.name}`);
    expect(run!.links[0]!.context.traceState?.get('vendor')).toBe('1');
  });
});

describe('a run', () => {
  test('has a span in a trace of its own, linked to the span it was submitted in', async () => {
    const greet = task<string>(newKind());
    const engine = await workTraced([handle(greet, () => 'hello')]);
    const { executionId, submitter } = await inSpan(async (span) => ({
      ...(await engine.submit(greet, 'a', { lane: 'fast' })),
      submitter: span.spanContext(),
    }));
    const [run] = await spansNamed(`task ${greet.name}`);
    expect(run!.kind).toBe(SpanKind.CONSUMER);
    expect(run!.parentSpanContext).toBeUndefined();
    expect(run!.links).toHaveLength(1);
    expect(run!.links[0]!.context).toMatchObject({ traceId: submitter.traceId, spanId: submitter.spanId });
    expect(run!.spanContext().traceId).not.toBe(submitter.traceId);
    expect(run!.attributes).toMatchObject({
      'messaging.system': 'flowfabric',
      'messaging.operation.type': 'process',
      'messaging.destination.name': 'fast',
      'messaging.message.id': executionId,
      'flowfabric.execution_id': executionId,
      'flowfabric.attempt': 0,
      'flowfabric.outcome': 'completed',
    });
  });

  test('is a child of that span if configured', async () => {
    const greet = task<string>(newKind());
    const engine = await workTraced([handle(greet, () => 'hello')], { submitter: 'parent' });
    const submitter = await inSpan(async (span) => {
      await engine.submit(greet, 'a');
      return span.spanContext();
    });
    const [run] = await spansNamed(`task ${greet.name}`);
    expect(run!.links).toEqual([]);
    expect(run!.parentSpanContext).toMatchObject({ spanId: submitter.spanId, isRemote: true });
    expect(run!.spanContext().traceId).toBe(submitter.traceId);
  });

  test('belongs to no span that was active when the worker was started', async () => {
    const greet = task<string>(newKind());
    const engine = await inSpan(() => workTraced([handle(greet, () => 'hello')]));
    await engine.executions.submit({ kind: greet.name, tags: { traceparent: 'nonsense' } });
    const [run] = await spansNamed(`task ${greet.name}`);
    expect(run!.parentSpanContext).toBeUndefined();
    expect(run!.links).toEqual([]);
  });

  test('that fails has a span for each attempt, with its error', async () => {
    const greet = task<string>(newKind());
    const engine = await workTraced([
      handle(greet, (_, ctx) => {
        throw ctx.attemptIndex === 0 ? new Error('not yet') : new TaskFailed('never', { retry: 'never' });
      }),
    ]);
    await engine.submit(greet, 'a', { policy: AGAIN });
    const runs = await spansNamed(`task ${greet.name}`, 2);
    expect(runs.map((run) => run.attributes['flowfabric.attempt'])).toEqual([0, 1]);
    expect(runs.map((run) => run.attributes['flowfabric.outcome'])).toEqual(['failed', 'failed']);
    expect(runs.map((run) => run.status)).toEqual([
      { code: SpanStatusCode.ERROR, message: 'not yet' },
      { code: SpanStatusCode.ERROR, message: 'never' },
    ]);
    expect(runs[0]!.events[0]).toMatchObject({ name: 'exception' });
  });
});

describe('below a run', () => {
  test('each step that ran has a span; a replayed one has none, and a pause is not an error', async () => {
    const steps = task<null>(newKind());
    const engine = await workTraced([
      handle(steps, async (_, ctx) => {
        const first = await ctx.step('first', () => trace.getActiveSpan()!.spanContext().spanId);
        await ctx.sleep('while', '1h');
        await ctx.step('second', 'key', () => 2);
        return first;
      }),
    ]);
    const submitted = await engine.submit(steps, null);
    const [paused] = await spansNamed(`task ${steps.name}`);
    expect(paused!.attributes['flowfabric.outcome']).toBe('paused');
    expect(paused!.status.code).toBe(SpanStatusCode.UNSET);
    await crew.database.moveClock(3_600_001);
    await workerPort(engine).fireTimers();
    await submitted.result();
    const runs = await spansNamed(`task ${steps.name}`, 2);
    const [first] = await spansNamed('step first');
    const [second] = await spansNamed('step second');
    expect(first!.parentSpanContext!.spanId).toBe(runs[0]!.spanContext().spanId);
    expect(second!.parentSpanContext!.spanId).toBe(runs[1]!.spanContext().spanId);
    expect(await submitted.result()).toBe(first!.spanContext().spanId);
  });

  test('a failing step shows its error, and a transaction is a step as well', async () => {
    const steps = task<null>(newKind());
    const engine = await workTraced([
      handle(steps, async (_, ctx) => {
        await ctx.tx('write', async (tx) => (await tx.query('SELECT 1 AS one')).rows);
        await ctx.step('break', () => Promise.reject(new Error('broken')));
      }),
    ]);
    const submitted = await engine.submit(steps, null, { policy: { retry: { maxRetries: 0 } } });
    await submitted.wait();
    expect((await spansNamed('step write'))[0]!.status.code).toBe(SpanStatusCode.UNSET);
    expect((await spansNamed('step break'))[0]!.status).toEqual({
      code: SpanStatusCode.ERROR,
      message: 'broken',
    });
  });

  test('a child is linked to the run that spawned it', async () => {
    const [parent, child] = [task<null>(newKind()), task<null>(newKind())];
    const engine = await workTraced([
      handle(parent, async (_, ctx) => void (await ctx.spawn(child, null, { tags: { a: 'b' } }))),
      handle(child, (_, ctx) => ctx.tags['a']),
    ]);
    await engine.submit(parent, null);
    const [run] = await spansNamed(`task ${parent.name}`);
    const [childRun] = await spansNamed(`task ${child.name}`);
    expect(childRun!.links[0]!.context).toMatchObject({ spanId: run!.spanContext().spanId });
  });
});

test('what a worker calls on its own belongs to no span that was active when it was started', async () => {
  const greet = task<string>(newKind());
  const engine = await crew.connect();
  // Workers of earlier tests have finished by now.
  exporter.reset();
  const worker = await inSpan(async () =>
    startWorker(engine, { log: 'silent', handlers: [handle(greet, () => 'hello')] }),
  );
  await (await engine.submit(greet, 'a')).result();
  await worker.stop();
  const [complete] = await spansNamed('flowfabric worker.complete');
  expect(complete!.parentSpanContext).toBeUndefined();
});

test.each(['onStart', 'onEnd'] as const)(
  'a span processor that throws in %s changes no run',
  async (method) => {
    const breaks = vi.spyOn(SimpleSpanProcessor.prototype, method).mockImplementation(() => {
      throw new Error('telemetry is broken');
    });
    try {
      const [parent, child] = [task<null, unknown>(newKind()), task<null, unknown>(newKind())];
      const engine = await workTraced([
        handle(parent, async (_, ctx) => {
          const one = await ctx.step('one', () => 1);
          const rows = await ctx.tx('two', async (tx) => (await tx.query('SELECT 2 AS two')).rows);
          await ctx.spawn(child, null);
          return { one, rows };
        }),
        handle(child, () => Promise.reject(new TaskFailed('never', { retry: 'never' }))),
      ]);
      const submitted = await engine.submit(parent, null);
      expect(await submitted.result()).toEqual({ one: 1, rows: [{ two: 2 }] });
      expect(breaks).toHaveBeenCalled();
    } finally {
      breaks.mockRestore();
    }
  },
);

test('without OpenTelemetry the middleware only calls the next one', async () => {
  vi.doMock('@opentelemetry/api', () => {
    throw new Error('Cannot find package');
  });
  vi.resetModules();
  try {
    const fresh = await import('../../src/worker/tracing.ts');
    const middleware: Middleware = await fresh.openTelemetry();
    expect(await middleware({} as never, async () => 'called')).toBe('called');
  } finally {
    vi.doUnmock('@opentelemetry/api');
    vi.resetModules();
  }
});
