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
  /** Statements under way at the same time; more than a few only add contention. */
  maxFlights: number;
}

/** A larger item is sent alone. */
const MAX_BATCH_SIZE = 4_194_304;

interface Waiting<Item, Answer> {
  item: Item;
  resolve(answer: Answer | Promise<Answer>): void;
  reject(error: unknown): void;
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
  #waiting: Waiting<Item, Answer>[] = [];
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
      this.#waiting.push({ item, resolve, reject });
      this.#schedule();
    });
  }

  /**
   * Hands over whatever waits to a statement that leaves now anyway, if it is at most `most`. It counts as a flight
   * until it is answered or sent alone.
   */
  lend(most: number): Lent<Item, Answer> | undefined {
    const { maxFlights } = this.#options;
    if (this.#waiting.length === 0 || this.#waiting.length > most || this.#flights >= maxFlights) return;
    const batch = this.#take();
    if (batch.length === 0) return;
    this.#flights += 1;
    return {
      items: batch.map((waiting) => waiting.item),
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
    // Whatever waits is behind in its line: the answer it waits for schedules again.
    if (batch.length === 0) return;
    this.#flights += 1;
    void this.#run(batch).finally(() => this.#landed());
    if (this.#waiting.length > 0) this.#schedule();
  }

  #landed(): void {
    this.#flights -= 1;
    if (this.#waiting.length > 0) this.#schedule();
    else for (const resolve of this.#whenIdle.splice(0)) resolve();
  }

  async #run(batch: Waiting<Item, Answer>[]): Promise<void> {
    try {
      this.#answer(batch, await this.#options.run(batch.map((waiting) => waiting.item)));
    } catch (error) {
      if (batch.length === 1 || !this.#options.isItemFault(error)) {
        for (const waiting of batch) {
          waiting.reject(error);
          this.#leaveLine(waiting.item);
        }
        return;
      }
      const middle = Math.ceil(batch.length / 2);
      await this.#run(batch.slice(0, middle));
      await this.#run(batch.slice(middle));
    }
  }

  #answer(batch: Waiting<Item, Answer>[], answers: readonly (Answer | Promise<Answer>)[]): void {
    batch.forEach((waiting, index) => {
      const answer = answers[index]!;
      waiting.resolve(answer);
      this.#leaveLine(waiting.item, answer);
    });
  }

  #take(): Waiting<Item, Answer>[] {
    const { lineOf } = this.#options;
    const keys = new Set<string>();
    const passed = new Set<string>();
    const taken: Waiting<Item, Answer>[] = [];
    const left: Waiting<Item, Answer>[] = [];
    let size = 0;
    for (const waiting of this.#waiting) {
      const key = this.#options.keyOf(waiting.item);
      const grown = size + this.#options.sizeOf(waiting.item);
      const full = taken.length >= this.#options.maxItems || (taken.length > 0 && grown > MAX_BATCH_SIZE);
      const line = lineOf?.(waiting.item);
      const isBehind = line !== undefined && (this.#lines.has(line) || passed.has(line));
      if (full || isBehind || keys.has(key)) {
        left.push(waiting);
        if (line !== undefined) passed.add(line);
        continue;
      }
      keys.add(key);
      taken.push(waiting);
      size = grown;
    }
    this.#waiting = left;
    if (lineOf !== undefined) for (const { item } of taken) this.#enterLine(lineOf(item));
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
    if (this.#waiting.length > 0) this.#schedule();
  }
}
