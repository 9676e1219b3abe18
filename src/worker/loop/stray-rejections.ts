/**
 * A handler that starts two things and awaits only one leaves the other's promise behind when it is aborted or paused.
 * Node would end the process for that unhandled rejection: while a worker runs, rejections with `TaskAborted` are
 * ignored. All others are treated as they would be without this listener.
 */
import { TaskAborted } from '../task.ts';

let workers = 0;

function onUnhandled(reason: unknown): void {
  if (reason instanceof TaskAborted) return;
  // With other listeners, the decision is theirs; alone, this one must not keep the process alive.
  if (process.listenerCount('unhandledRejection') === 1) throw reason;
}

/** Call the returned function when the worker has stopped. */
export function ignoreStrayRejections(): () => void {
  workers += 1;
  if (workers === 1) process.on('unhandledRejection', onUnhandled);
  let released = false;
  return () => {
    if (released) return;
    released = true;
    workers -= 1;
    if (workers === 0) process.off('unhandledRejection', onUnhandled);
  };
}
