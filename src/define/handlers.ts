/**
 * Combines a task's contract with the code that runs it. A worker finds handlers by the task's name.
 */
import { parsed } from '../contract/shape/kinds.ts';
import { refuse, shape } from '../contract/shape/shape.ts';
import type { TaskContext } from './task-context.ts';
import type { StreamWriters } from './output.ts';
import type { NoStreams, StreamKinds } from './streams.ts';
import type { AnyTask, Task } from './task.ts';

/** Runs a task; what it returns is the result. */
export type HandlerFunction<Parsed, Made, Streams extends StreamKinds = NoStreams, In = unknown> = (
  input: Parsed,
  ctx: TaskContext<In> & { readonly streams: StreamWriters<Streams> },
) => Made | Promise<Made>;

/** Options of a handler on one worker. */
export interface HandlerOptions {
  /** Most executions of this task that one worker runs concurrently. Default: the worker's own limit. */
  concurrency?: number;
}

/** The worker checks the number against its own limit. */
const handlerOptions = shape<HandlerOptions>({ concurrency: parsed.optional() });

/** A task and its handler, for `startWorker`. */
export interface TaskHandler {
  readonly task: AnyTask;
  readonly run: HandlerFunction<unknown, unknown>;
  readonly concurrency: number | undefined;
}

/** Wraps every run of a worker, for timing, tracing or set-up. It must call `next` once. */
export type Middleware = (ctx: TaskContext, next: () => Promise<unknown>) => Promise<unknown>;

/** Combines a task with its handler: `handle(charge, async (input, ctx) => …)`. */
export function handle<In, Parsed, Made, Out, Streams extends StreamKinds = NoStreams>(
  task: Task<In, Parsed, Made, Out, Streams>,
  run: HandlerFunction<Parsed, Made, Streams, In>,
  options: HandlerOptions = {},
): TaskHandler {
  if (typeof task?.name !== 'string') refuse('task', 'must come from task()');
  handlerOptions.check(options, 'options');
  if (typeof run !== 'function') refuse('run', `of task ${task.name} must be a function`);
  return { task, run: run as HandlerFunction<unknown, unknown>, concurrency: options.concurrency };
}
