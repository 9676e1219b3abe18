/**
 * Iterators that can be left while they wait. A generator that is asked to return first finishes what it awaits, which
 * for a tail may be never; so that wait is aborted.
 */
import { whenAborted } from '../../model/aborting.ts';

const OVER: IteratorReturnResult<undefined> = { done: true, value: undefined };

/** The items of a generator that stops when its `AbortSignal` fires: by the caller's, or by `return`. Both end it quietly. */
export function cancelling<Item>(
  signal: AbortSignal | undefined,
  begin: (signal: AbortSignal) => AsyncGenerator<Item, void, undefined>,
): AsyncIterableIterator<Item> {
  return new Cancelling(signal, begin);
}

class Cancelling<Item> implements AsyncIterableIterator<Item> {
  readonly #signal: AbortSignal | undefined;
  readonly #own = new AbortController();
  readonly #items: AsyncGenerator<Item, void, undefined>;
  /** Linked at the first read, so that an iterator that is never read leaves nothing behind. */
  #unlink: (() => void) | undefined;
  #isLeft = false;

  constructor(
    signal: AbortSignal | undefined,
    begin: (signal: AbortSignal) => AsyncGenerator<Item, void, undefined>,
  ) {
    this.#signal = signal;
    this.#items = begin(this.#own.signal);
  }

  async next(): Promise<IteratorResult<Item, undefined>> {
    if (this.#isLeft) return OVER;
    this.#unlink ??= whenAborted(this.#signal, () => this.#leave());
    try {
      const item = await this.#items.next();
      if (item.done !== true && !this.#isLeft) return item;
    } catch (error) {
      if (!this.#isLeft) {
        this.#leave();
        throw error;
      }
    }
    this.#leave();
    return OVER;
  }

  async return(): Promise<IteratorResult<Item, undefined>> {
    this.#leave();
    return OVER;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#leave();
  }

  #leave(): void {
    if (this.#isLeft) return;
    this.#isLeft = true;
    this.#unlink?.();
    this.#own.abort();
    // It finishes by itself; nobody is left to see what it throws.
    this.#items.return().catch(() => undefined);
  }
}
