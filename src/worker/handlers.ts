/**
 * Joins a task's contract with the code that does it. The worker looks handlers up by the task's name.
 */
import { EngineError } from '../contract/errors.ts';
import type { NoStreams, StreamKinds } from '../define/streams.ts';
import type { AnyTask, Task } from '../define/task.ts';
import type { StreamWriters, TaskContext } from './context.ts';
import { checkKnown } from './options.ts';

/** Does the work; what it returns is the result. */
export type HandlerFunction<Parsed, Made, Streams extends StreamKinds = NoStreams> = (
  input: Parsed,
  ctx: TaskContext & { readonly streams: StreamWriters<Streams> },
) => Made | Promise<Made>;

export interface HandlerOptions {
  /** Executions of this task run at the same time by one worker. Default: only the worker's own limit. */
  concurrency?: number;
}

export interface TaskHandler {
  readonly task: AnyTask;
  readonly run: HandlerFunction<unknown, unknown>;
  readonly concurrency: number | undefined;
}

/** Seen around every run of a worker: for timing, tracing, or setting something up. Call `next` once. */
export type Middleware = (ctx: TaskContext, next: () => Promise<unknown>) => Promise<unknown>;

export function handle<In, Parsed, Made, Out, Streams extends StreamKinds = NoStreams>(
  task: Task<In, Parsed, Made, Out, Streams>,
  run: HandlerFunction<Parsed, Made, Streams>,
  options: HandlerOptions = {},
): TaskHandler {
  if (typeof task?.name !== 'string') throw fault('task', 'must come from task()');
  checkKnown(options, 'options', ['concurrency']);
  if (typeof run !== 'function') throw fault('run', `of task ${task.name} must be a function`);
  return { task, run: run as HandlerFunction<unknown, unknown>, concurrency: options.concurrency };
}

/** By task name; two handlers for one task are a mistake of whoever registered them. */
export function handlersByName(handlers: readonly TaskHandler[]): Map<string, TaskHandler> {
  if (!Array.isArray(handlers) || handlers.length === 0) {
    throw fault('handlers', 'must be a list of at least one handle(task, function)');
  }
  const byName = new Map<string, TaskHandler>();
  handlers.forEach((handler: TaskHandler, index) => {
    const name = handler?.task?.name;
    if (typeof name !== 'string' || typeof handler.run !== 'function') {
      throw fault(`handlers[${index}]`, 'must come from handle(task, function)');
    }
    if (byName.has(name)) throw fault(`handlers[${index}]`, `is a second handler for task ${name}`);
    byName.set(name, handler);
  });
  return byName;
}

function fault(field: string, what: string): EngineError {
  return new EngineError('invalid_input', `${field} ${what}.`, { field });
}
