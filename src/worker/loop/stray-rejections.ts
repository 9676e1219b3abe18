/**
 * A handler that begins two things and awaits one of them leaves the other's promise behind when its work is taken away, be
 * it only by a pause. That must not end the process, as Node does with a rejection nobody handles: while a worker
 * runs, such rejections are let go. Every other one is treated as it would be without this.
 */
import { TaskAborted } from '../task.ts';

let workers = 0;

function onUnhandled(reason: unknown): void {
  if (reason instanceof TaskAborted) return;
  // With other listeners it is theirs to decide; alone, ours must not keep the process from ending.
  if (process.listenerCount('unhandledRejection') === 1) throw reason;
}

/** Call the returned function when the worker has stopped. */
export function letGoOfStrays(): () => void {
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
