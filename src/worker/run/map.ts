/**
 * `ctx.map`: a handler's function over many items, some at a time. A place is taken by the next item as soon as one is
 * done, so that a slow item holds up nothing but itself. Which item that is follows from the order in which the run
 * receives outcomes, which is stored: a later run begins the same items in the same order.
 */
import { TaskAborted } from '../task.ts';

/** Runs `fn` for each item; resolves with how each of them went, in the order of the items. */
export async function mapItems<Item, Value>(
  items: readonly Item[],
  fn: (item: Item, index: number) => Value | Promise<Value>,
  concurrency: number,
): Promise<PromiseSettledResult<Value>[]> {
  const results: PromiseSettledResult<Value>[] = [];
  let next = 0;
  /** The run is over: no item has failed by itself, and none is begun any more. */
  let isAborted = false;
  const place = async (): Promise<void> => {
    while (next < items.length && !isAborted) {
      const index = next;
      next += 1;
      try {
        results[index] = { status: 'fulfilled', value: await fn(items[index]!, index) };
      } catch (reason) {
        if (reason instanceof TaskAborted) {
          isAborted = true;
          throw reason;
        }
        results[index] = { status: 'rejected', reason };
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(concurrency, items.length) }, place));
  return results;
}
