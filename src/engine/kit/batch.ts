/**
 * Joins calls that are made at about the same time into one statement. The first call goes out at once; what arrives
 * while it is under way forms the next batch. So an idle process has no added latency and a busy one has large
 * batches, without a timer. A call still resolves only after its commit.
 */

export interface BatchOptions<Item, Answer> {
  /**
   * Runs one batch; returns the answers in the order of the items. An answer that takes longer than the others may be a
   * promise, so that they need not wait for it.
   */
  run(items: Item[]): Promise<(Answer | Promise<Answer>)[]>;
  /** Two items with the same key never share a batch: one statement cannot act twice on one execution. */
  keyOf(item: Item): string;
  /** Items of one line are sent in order: none of them while another batch has one that is not yet answered. */
  lineOf?(item: Item): string;
  maxItems: number;
  /** Characters an item sends; the total of a batch is limited, so that large items do not block the process. */
  sizeOf(item: Item): number;
  /** Whether one item may have caused the error: then the batch is halved, so that the others get their answers. */
  isItemFault(error: unknown): boolean;
  /** Whether an item may travel in the statement of something else. Default: every one. */
  mayLend?(item: Item): boolean;
  /** Statements under way at the same time; more than a few only add contention. */
  maxFlights: number;
}

/** A larger item is sent alone. */
const MAX_BATCH_SIZE = 4_194_304;

/** Whoever waits for the answer to an item. Exactly one of the two is called, once; neither may throw. */
export interface Waiter<Answer> {
  resolve(answer: Answer): void;
  reject(error: unknown): void;
}

/** Items and who waits for each, side by side: an object for every pair would be one more for every execution. */
interface Together<Item, Answer> {
  items: Item[];
  waiters: Waiter<Answer>[];
}

/** Items that another statement carries. Exactly one of the two is called, once. */
export interface Lent<Item, Answer> {
  readonly items: Item[];
  /** In the order of the items. */
  answer(answers: readonly Answer[]): void;
  /** The other statement failed, or it is unknown whether it happened. */
  sendAlone(): void;
}

export class Batch<Item, Answer> {
  readonly #options: BatchOptions<Item, Answer>;
  #waiting: Together<Item, Answer> = { items: [], waiters: [] };
  /** The lines with unanswered items, and how many. */
  readonly #lines = new Map<string, number>();
  #flights = 0;
  #scheduled = false;
  #whenIdle: (() => void)[] = [];

  constructor(options: BatchOptions<Item, Answer>) {
    this.#options = options;
  }

  add(item: Item): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.enter(item, { resolve, reject });
    });
  }

  /** The same for a waiter that needs no promise. It is not called before this returns. */
  enter(item: Item, waiter: Waiter<Answer>): void {
    this.#waiting.items.push(item);
    this.#waiting.waiters.push(waiter);
    this.#schedule();
  }

  /**
   * Hands over whatever waits to a statement that leaves now anyway, if it is at most `most`. It counts as a flight
   * until it is answered or sent alone.
   */
  lend(most: number): Lent<Item, Answer> | undefined {
    const { maxFlights, mayLend } = this.#options;
    const count = this.#count;
    if (count === 0 || count > most || this.#flights >= maxFlights) return;
    if (mayLend !== undefined && !this.#waiting.items.every(mayLend)) return;
    const batch = this.#take();
    if (batch.items.length === 0) return;
    this.#flights += 1;
    return {
      items: batch.items,
      answer: (answers) => {
        this.#answer(batch, answers);
        this.#landed();
      },
      sendAlone: () => {
        void this.#run(batch).finally(() => this.#landed());
      },
    };
  }

  /** Resolves when every call made so far has its answer. */
  async settled(): Promise<void> {
    while (this.#count > 0 || this.#flights > 0) {
      await new Promise<void>((resolve) => {
        this.#whenIdle.push(resolve);
      });
    }
  }

  get #count(): number {
    return this.#waiting.items.length;
  }

  /** Waits one turn of the event loop, so that calls made together leave together. */
  #schedule(): void {
    if (this.#scheduled || this.#flights >= this.#options.maxFlights) return;
    this.#scheduled = true;
    setImmediate(() => {
      this.#scheduled = false;
      this.#fly();
    });
  }

  #fly(): void {
    if (this.#count === 0 || this.#flights >= this.#options.maxFlights) return;
    const batch = this.#take();
    // Whatever waits is behind in its line: the answer it waits for schedules again.
    if (batch.items.length === 0) return;
    this.#flights += 1;
    void this.#run(batch).finally(() => this.#landed());
    if (this.#count > 0) this.#schedule();
  }

  #landed(): void {
    this.#flights -= 1;
    if (this.#count > 0) this.#schedule();
    else for (const resolve of this.#whenIdle.splice(0)) resolve();
  }

  async #run(batch: Together<Item, Answer>): Promise<void> {
    const { items, waiters } = batch;
    let answers: readonly (Answer | Promise<Answer>)[];
    try {
      answers = await this.#options.run(items);
    } catch (error) {
      if (items.length === 1 || !this.#options.isItemFault(error)) {
        waiters.forEach((waiter, index) => {
          waiter.reject(error);
          this.#leaveLine(items[index]!);
        });
        return;
      }
      const middle = Math.ceil(items.length / 2);
      await this.#run({ items: items.slice(0, middle), waiters: waiters.slice(0, middle) });
      await this.#run({ items: items.slice(middle), waiters: waiters.slice(middle) });
      return;
    }
    this.#answer(batch, answers);
  }

  #answer({ items, waiters }: Together<Item, Answer>, answers: readonly (Answer | Promise<Answer>)[]): void {
    waiters.forEach((waiter, index) => {
      const answer = answers[index]!;
      if (answer instanceof Promise)
        void answer.then(
          (late) => waiter.resolve(late),
          (error: unknown) => waiter.reject(error),
        );
      else waiter.resolve(answer);
      this.#leaveLine(items[index]!, answer);
    });
  }

  #take(): Together<Item, Answer> {
    const { lineOf, keyOf, sizeOf, maxItems } = this.#options;
    const { items, waiters } = this.#waiting;
    const keys = new Set<string>();
    const passed = new Set<string>();
    const taken: Together<Item, Answer> = { items: [], waiters: [] };
    const left: Together<Item, Answer> = { items: [], waiters: [] };
    let size = 0;
    for (let index = 0; index < items.length; index += 1) {
      const item = items[index]!;
      const key = keyOf(item);
      const grown = size + sizeOf(item);
      const count = taken.items.length;
      const full = count >= maxItems || (count > 0 && grown > MAX_BATCH_SIZE);
      const line = lineOf?.(item);
      const isBehind = line !== undefined && (this.#lines.has(line) || passed.has(line));
      const isLeft = full || isBehind || keys.has(key);
      const chosen = isLeft ? left : taken;
      chosen.items.push(item);
      chosen.waiters.push(waiters[index]!);
      if (isLeft) {
        if (line !== undefined) passed.add(line);
        continue;
      }
      keys.add(key);
      size = grown;
    }
    this.#waiting = left;
    if (lineOf !== undefined) for (const item of taken.items) this.#enterLine(lineOf(item));
    return taken;
  }

  #enterLine(line: string): void {
    this.#lines.set(line, (this.#lines.get(line) ?? 0) + 1);
  }

  #leaveLine(item: Item, answer?: unknown): void {
    const line = this.#options.lineOf?.(item);
    if (line === undefined) return;
    if (answer instanceof Promise) {
      const left = (): void => this.#leaveLine(item);
      answer.then(left, left);
      return;
    }
    const others = this.#lines.get(line)! - 1;
    if (others > 0) this.#lines.set(line, others);
    else this.#lines.delete(line);
    if (this.#count > 0) this.#schedule();
  }
}
