/**
 * What is known about a running demo, kept up to date from the workers' messages. For the screen only: the numbers of the
 * closing table are read from the database. No clock and no screen in here.
 */
import type { News } from './worker.ts';

export interface WorkerView {
  name: string;
  state: 'working' | 'killed' | 'ended';
  running: number;
  completed: number;
  retried: number;
  takenOver: number;
}

export class Progress {
  readonly total: number;
  readonly workers: ReadonlyMap<string, WorkerView>;
  readonly #ended = new Set<number>();
  readonly #reported = new Set<number>();
  #foreign = 0;
  #reportedTwice = 0;

  constructor(total: number, names: readonly string[]) {
    this.total = total;
    this.workers = new Map(
      names.map((name) => [
        name,
        { name, state: 'working', running: 0, completed: 0, retried: 0, takenOver: 0 },
      ]),
    );
  }

  /** Executions known to have ended, with any outcome. */
  get ended(): number {
    return this.#ended.size;
  }

  get retried(): number {
    return sum(this.workers.values(), ({ retried }) => retried);
  }

  get running(): number {
    return sum(this.workers.values(), ({ running }) => running);
  }

  /** Executions of other runs that were completed along the way. */
  get foreign(): number {
    return this.#foreign;
  }

  /** How often a worker ended an execution that a worker had ended before: must stay 0. */
  get reportedTwice(): number {
    return this.#reportedTwice;
  }

  hasEnded(number: number): boolean {
    return this.#ended.has(number);
  }

  hear(name: string, news: News): void {
    const worker = this.workers.get(name)!;
    // The last words of a killed worker may arrive after its death.
    worker.running = worker.state === 'working' ? news.held.length : 0;
    worker.completed += news.completed.length;
    worker.retried += news.retried.length;
    worker.takenOver += news.takenOver.length;
    this.#foreign += news.foreign;
    for (const number of [...news.completed, ...news.failed]) this.#report(number);
  }

  /** Found ended in the database: the worker died between writing and reporting. */
  found(number: number): void {
    this.#ended.add(number);
  }

  gone(name: string, state: 'killed' | 'ended'): void {
    const worker = this.workers.get(name)!;
    worker.state = state;
    worker.running = 0;
  }

  #report(number: number): void {
    if (this.#reported.has(number)) this.#reportedTwice += 1;
    this.#reported.add(number);
    this.#ended.add(number);
  }
}

export function numbersTo(total: number): number[] {
  return Array.from({ length: total }, (_, index) => index + 1);
}

function sum<Item>(items: Iterable<Item>, value: (item: Item) => number): number {
  let total = 0;
  for (const item of items) total += value(item);
  return total;
}
