/**
 * The handlers of one worker, by the names of their tasks.
 */
import { refuse } from '../contract/shape/shape.ts';
import type { TaskHandler } from '../define/handlers.ts';

/** By task name. A second handler for the same task is refused. */
export function handlersByName(handlers: readonly TaskHandler[]): Map<string, TaskHandler> {
  if (!Array.isArray(handlers) || handlers.length === 0) {
    refuse('handlers', 'must be a list of at least one handle(task, function)');
  }
  const byName = new Map<string, TaskHandler>();
  handlers.forEach((handler: TaskHandler, index) => {
    const name = handler?.task?.name;
    if (typeof name !== 'string' || typeof handler.run !== 'function') {
      refuse(`handlers[${index}]`, 'must come from handle(task, function)');
    }
    if (byName.has(name)) refuse(`handlers[${index}]`, `is a second handler for task ${name}`);
    byName.set(name, handler);
  });
  return byName;
}
