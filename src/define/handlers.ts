/**
 * Joins a task's contract with the code that does it. The worker looks handlers up by the task's name.
 */
import { parsed } from '../contract/kinds.ts';
import { refuse, shape } from '../contract/shape.ts';
import type { StreamWriters, TaskContext } from './task-context.ts';
import type { NoStreams, StreamKinds } from './streams.ts';
import type { AnyTask, Task } from './task.ts';

/** Does the work; what it returns is the result. */
export type HandlerFunction<Parsed, Made, Streams extends StreamKinds = NoStreams> = (
  input: Parsed,
  ctx: TaskContext & { readonly streams: StreamWriters<Streams> },
) => Made | Promise<Made>;

/** How one worker runs a handler. */
export interface HandlerOptions {
  /** Executions of this task run at the same time by one worker. Default: only the worker's own limit. */
  concurrency?: number;
}

/** The number is compared with the worker's own limit. */
const handlerOptions = shape<HandlerOptions>({ concurrency: parsed.optional() });

/** A task and the code that does it, for `startWorker`. */
export interface TaskHandler {
  readonly task: AnyTask;
  readonly run: HandlerFunction<unknown, unknown>;
  readonly concurrency: number | undefined;
}

/** Seen around every run of a worker: for timing, tracing, or setting something up. Call `next` once. */
export type Middleware = (ctx: TaskContext, next: () => Promise<unknown>) => Promise<unknown>;

/** Joins a task with its code: `handle(charge, async (input, ctx) => …)`. */
export function handle<In, Parsed, Made, Out, Streams extends StreamKinds = NoStreams>(
  task: Task<In, Parsed, Made, Out, Streams>,
  run: HandlerFunction<Parsed, Made, Streams>,
  options: HandlerOptions = {},
): TaskHandler {
  if (typeof task?.name !== 'string') refuse('task', 'must come from task()');
  handlerOptions.check(options, 'options');
  if (typeof run !== 'function') refuse('run', `of task ${task.name} must be a function`);
  return { task, run: run as HandlerFunction<unknown, unknown>, concurrency: options.concurrency };
}
