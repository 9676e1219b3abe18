/**
 * Joins calls that are made at about the same time into one statement. The first call goes out at once; what arrives
 * while it is under way forms the next batch. So an idle process has no added latency and a busy one has large
 * batches, without a timer. A call still resolves only after its commit.
 */

export interface BatchOptions<Item, Answer> {
  /** Runs one batch; returns the answers in the order of the items. */
  run(items: Item[]): Promise<Answer[]>;
  /** Two items with the same key never share a batch: one statement cannot act twice on one execution. */
  keyOf(item: Item): string;
  maxItems: number;
  /** Characters an item sends; the total of a batch is limited, so that large items do not block the process. */
  sizeOf(item: Item): number;
  /** Whether one item may have caused the error: then the batch is halved, so that the others get their answers. */
  isItemFault(error: unknown): boolean;
  /** Statements under way at the same time; more than a few only add contention. */
  maxFlights: number;
}

/** A larger item is sent alone. */
const MAX_BATCH_SIZE = 4_194_304;

interface Waiting<Item, Answer> {
  item: Item;
  resolve(answer: Answer): void;
  reject(error: unknown): void;
}

export class Batch<Item, Answer> {
  readonly #options: BatchOptions<Item, Answer>;
  #waiting: Waiting<Item, Answer>[] = [];
  #flights = 0;
  #scheduled = false;
  #whenIdle: (() => void)[] = [];

  constructor(options: BatchOptions<Item, Answer>) {
    this.#options = options;
  }

  add(item: Item): Promise<Answer> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ item, resolve, reject });
      this.#schedule();
    });
  }

  /** Resolves when every call made so far has its answer. */
  async settled(): Promise<void> {
    while (this.#waiting.length > 0 || this.#flights > 0) {
      await new Promise<void>((resolve) => {
        this.#whenIdle.push(resolve);
      });
    }
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
    if (this.#waiting.length === 0 || this.#flights >= this.#options.maxFlights) return;
    const batch = this.#take();
    this.#flights += 1;
    void this.#run(batch).finally(() => {
      this.#flights -= 1;
      if (this.#waiting.length > 0) this.#schedule();
      else for (const resolve of this.#whenIdle.splice(0)) resolve();
    });
    if (this.#waiting.length > 0) this.#schedule();
  }

  async #run(batch: Waiting<Item, Answer>[]): Promise<void> {
    try {
      const answers = await this.#options.run(batch.map((waiting) => waiting.item));
      batch.forEach((waiting, index) => waiting.resolve(answers[index] as Answer));
    } catch (error) {
      if (batch.length === 1 || !this.#options.isItemFault(error)) {
        batch.forEach((waiting) => waiting.reject(error));
        return;
      }
      const middle = Math.ceil(batch.length / 2);
      await this.#run(batch.slice(0, middle));
      await this.#run(batch.slice(middle));
    }
  }

  #take(): Waiting<Item, Answer>[] {
    const keys = new Set<string>();
    const taken: Waiting<Item, Answer>[] = [];
    const left: Waiting<Item, Answer>[] = [];
    let size = 0;
    for (const waiting of this.#waiting) {
      const key = this.#options.keyOf(waiting.item);
      const grown = size + this.#options.sizeOf(waiting.item);
      const full = taken.length >= this.#options.maxItems || (taken.length > 0 && grown > MAX_BATCH_SIZE);
      if (full || keys.has(key)) {
        left.push(waiting);
        continue;
      }
      keys.add(key);
      taken.push(waiting);
      size = grown;
    }
    this.#waiting = left;
    return taken;
  }
}
