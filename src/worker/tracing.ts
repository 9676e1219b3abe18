/**
 * OpenTelemetry spans for handlers and their steps, as a middleware: whoever does not use it pays nothing, and without
 * `@opentelemetry/api` installed it does nothing. It only observes; whatever happens to a span, the handler continues.
 *
 * The submitter's span is kept in the tags `traceparent` and `tracestate`, in the format of W3C Trace Context.
 */
import type * as Otel from '@opentelemetry/api';
import { REDACTED } from '../contract/redaction.ts';
import { traceOf, withTrace } from '../contract/trace-context.ts';
import type { SpawnOptions, StepFunction, TaskContext } from '../define/task-context.ts';
import type { Middleware } from '../define/handlers.ts';
import { activeSpan, inSpan, loadOpenTelemetry, type OpenTelemetry } from '../telemetry/open-telemetry.ts';
import { quietly } from '../telemetry/reporting.ts';
import { TaskAborted } from './task.ts';

const SCOPE = 'flowfabric';

/** Options of tracing. */
export interface TracingOptions {
  /**
   * How a run relates to the span it was submitted in. `link` (the default): a trace of its own with a link, because a
   * run may start days later and more than once. `parent`: a child span in the same trace.
   */
  submitter?: 'link' | 'parent';
}

/** The middleware for `startWorker({ middleware: [await openTelemetry()] })`. */
export async function openTelemetry(options: TracingOptions = {}): Promise<Middleware> {
  const otel = await loadOpenTelemetry();
  if (otel === undefined) return (_, next) => next();
  const relation = options.submitter ?? 'link';
  return (ctx, next) => traced(otel, relation, ctx, next);
}

function submitterOf(otel: OpenTelemetry, tags: TaskContext['tags']): Otel.SpanContext | undefined {
  const found = traceOf(tags);
  if (found === undefined) return undefined;
  const { tracestate, ...ids } = found;
  const traceState = tracestate === undefined ? {} : { traceState: otel.createTraceState(tracestate) };
  return { ...ids, ...traceState, isRemote: true };
}

function traced(
  otel: OpenTelemetry,
  relation: 'link' | 'parent',
  ctx: TaskContext,
  next: () => Promise<unknown>,
): Promise<unknown> {
  const submitter = quietly(() => submitterOf(otel, ctx.tags));
  // Not the active context, which belongs to whatever started the worker long ago.
  const isChild = submitter !== undefined && relation === 'parent';
  const parent = (): Otel.Context =>
    isChild ? otel.trace.setSpanContext(otel.ROOT_CONTEXT, submitter) : otel.ROOT_CONTEXT;
  traceSteps(otel, ctx);
  traceSpawns(otel, ctx);
  return inSpan(
    otel,
    {
      parent,
      start: (context) =>
        otel.trace.getTracer(SCOPE).startSpan(
          `task ${ctx.kind}`,
          {
            kind: otel.SpanKind.CONSUMER,
            attributes: attributesOf(ctx),
            links: submitter === undefined || isChild ? [] : [{ context: submitter }],
          },
          context,
        ),
      describe(span, ended) {
        if (ended.result === 'error') recordFailure(otel, span, ended.error, ctx);
        else span.setAttribute('flowfabric.outcome', abortOf(ctx) ?? 'completed');
      },
    },
    next,
  );
}

function attributesOf(ctx: TaskContext): Otel.Attributes {
  return {
    'messaging.system': 'flowfabric',
    'messaging.operation.type': 'process',
    'messaging.operation.name': 'run',
    'messaging.destination.name': ctx.lane,
    'messaging.message.id': ctx.executionId,
    'flowfabric.execution_id': ctx.executionId,
    'flowfabric.task': ctx.kind,
    'flowfabric.namespace': ctx.namespace,
    'flowfabric.attempt': ctx.attemptIndex,
    'flowfabric.resumed': ctx.resumed,
  };
}

/** Why the execution was taken away from the handler, if it was. */
function abortOf({ signal }: TaskContext): string | undefined {
  if (!signal.aborted) return undefined;
  return signal.reason instanceof TaskAborted ? signal.reason.code : 'lease_lost';
}

/** A pause is how a run waits, not an error. */
function recordFailure(otel: OpenTelemetry, span: Otel.Span, error: unknown, ctx: TaskContext): void {
  const outcome = abortOf(ctx) ?? 'failed';
  span.setAttribute('flowfabric.outcome', outcome);
  if (outcome === 'paused') return;
  if (ctx.redacted) {
    span.recordException({ name: error instanceof Error ? error.name : typeof error, message: REDACTED });
    span.setStatus({ code: otel.SpanStatusCode.ERROR, message: REDACTED });
    return;
  }
  span.recordException(error instanceof Error ? error : String(error));
  span.setStatus({ code: otel.SpanStatusCode.ERROR, message: error instanceof Error ? error.message : '' });
}

/**
 * Each try of a step's function gets a span; a step whose value was stored did not run and has none. The context belongs
 * to this one run, so its methods may be replaced.
 */
function traceSteps(otel: OpenTelemetry, ctx: TaskContext): void {
  const inStepSpan =
    (name: string, work: StepFunction<unknown>): StepFunction<unknown> =>
    (...given) =>
      inSpan(
        otel,
        {
          start: (parent) => otel.trace.getTracer(SCOPE).startSpan(`step ${name}`, {}, parent),
          describe(span, ended) {
            if (ended.result === 'error') recordFailure(otel, span, ended.error, ctx);
          },
        },
        () => work(...given),
      );
  const withSpan = (args: unknown[]): unknown[] =>
    args.map((arg) =>
      typeof arg === 'function' ? inStepSpan(String(args[0]), arg as StepFunction<unknown>) : arg,
    );
  const { step, tx } = ctx as unknown as Record<'step' | 'tx', (...args: unknown[]) => Promise<never>>;
  ctx.step = (...args: unknown[]) => step(...withSpan(args));
  ctx.tx = (...args: unknown[]) => tx(...withSpan(args));
}

/** Children are submitted in the span that is active when they are spawned. */
function traceSpawns(otel: OpenTelemetry, ctx: TaskContext): void {
  const { spawn } = ctx;
  ctx.spawn = (task, input, options: SpawnOptions = {}) => {
    const tags = withTrace(options.tags, activeSpan(otel));
    return spawn(task, input, { ...options, ...(tags === undefined ? {} : { tags }) });
  };
}
