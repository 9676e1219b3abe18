/**
 * Follows the output of an execution. What a tail yields is in tail-items.ts, cursors are in cursor.ts, waiting in
 * hub.ts. A thousand tails may follow one stream, so a frame passes each of them without a generator: the hub hands over
 * the read, and the promise of whoever reads is resolved with its first frame at once.
 */
import type { StreamItem } from '../../contract/streams.ts';
import { whenAborted } from '../../model/aborting.ts';
import type { ExecutionKey } from '../executions/executions.sql.ts';
import type { StreamHub } from './hub.ts';
import type { Group, Waiter } from './hub-group.ts';
import type { ReaderPlace } from './reader-place.ts';
import type { StreamRead } from './source.ts';
import type { TailHistory } from './tail-history.ts';
import { TailItems, type TailOptions } from './tail-items.ts';

type Answer = IteratorResult<StreamItem, undefined>;

/** A call of `next` that has no answer yet. */
interface Asked {
  resolve(answer: Answer): void;
  reject(error: unknown): void;
}

const OVER: Answer = { done: true, value: undefined };

/** One tail of an execution or an attempt. It can be left while it waits; an abort leaves it. */
export class StreamTail implements AsyncIterableIterator<StreamItem>, Waiter {
  readonly #hub: StreamHub;
  readonly #signal: AbortSignal | undefined;
  readonly #items: TailItems;
  /** Ends what it reads by itself. */
  readonly #own = new AbortController();
  /** To be undone when it is left. Set by the first `next`: a tail that is never read leaves nothing behind. */
  #undo: (() => void)[] | undefined;
  /** Where it waits. */
  #group: Group | undefined;
  /** In the order of the calls; only the first is being answered. */
  readonly #asked: Asked[] = [];
  #isLeft = false;

  constructor(hub: StreamHub, history: TailHistory, key: ExecutionKey, options: TailOptions) {
    this.#hub = hub;
    this.#signal = options.signal;
    this.#items = new TailItems(history, key, options, this.#own.signal);
  }

  next(): Promise<Answer> {
    if (this.#isLeft) return Promise.resolve(OVER);
    const item = this.#asked.length === 0 ? this.#items.ready() : undefined;
    if (item !== undefined) return Promise.resolve({ done: false, value: item });
    return new Promise((resolve, reject) => {
      if (this.#asked.push({ resolve, reject }) === 1) this.#proceed();
    });
  }

  async return(): Promise<Answer> {
    this.#leave();
    return OVER;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#leave();
  }

  /** Called by the hub, with news. */
  resolve(read: StreamRead | undefined, calm: ReaderPlace | undefined): void {
    this.#group = undefined;
    try {
      this.#items.accept(read, calm);
    } catch (error) {
      return this.#fail(error);
    }
    this.#answer();
  }

  /** Called by the hub. */
  reject(error: unknown): void {
    this.#group = undefined;
    this.#fail(error);
  }

  /** Answers the calls, as far as there are items. */
  #answer(): void {
    while (this.#asked.length > 0) {
      const item = this.#items.ready();
      if (item === undefined) return this.#proceed();
      this.#asked.shift()!.resolve({ done: false, value: item });
    }
  }

  /** Nothing is ready for the first call: does what must come before. */
  #proceed(): void {
    if (this.#undo === undefined || this.#items.hasReport()) return void this.#prepare();
    if (this.#items.isOver) return this.#leave();
    try {
      this.#group = this.#hub.join(this.#items.place, this);
    } catch (error) {
      this.#fail(error);
    }
  }

  async #prepare(): Promise<void> {
    try {
      if (this.#undo === undefined) await this.#start();
      else await this.#items.report();
    } catch (error) {
      return this.#fail(error);
    }
    this.#answer();
  }

  async #start(): Promise<void> {
    this.#undo = [];
    this.#undo.push(this.#hub.admit());
    this.#undo.push(whenAborted(this.#signal, () => this.#leave()));
    if (!this.#isLeft) await this.#items.start();
  }

  #fail(error: unknown): void {
    this.#asked.shift()?.reject(error);
    this.#leave();
  }

  /** Calls that are not answered yet learn that it is over. */
  #leave(): void {
    if (this.#isLeft) return;
    this.#isLeft = true;
    if (this.#group !== undefined) this.#hub.leave(this.#group, this);
    for (const undo of this.#undo ?? []) undo();
    this.#own.abort();
    for (const { resolve } of this.#asked.splice(0)) resolve(OVER);
  }
}
