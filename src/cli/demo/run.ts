/**
 * A demo while it runs: hears the workers, keeps the screen current, kills one worker in the middle, and knows when
 * it is over. It only watches and waits; the work is done by the worker processes.
 */
import { setTimeout as pause } from 'node:timers/promises';
import type { Engine } from '../../contract/engine.ts';
import type { ExecutionId } from '../../contract/ids.ts';
import { endedAmong } from './audit.ts';
import type { DemoProcess } from './crew.ts';
import { numbersTo, Progress } from './progress.ts';
import { event, type Screen } from './screen.ts';
import type { Line } from '../look.ts';
import { demoKind, demoRequest } from './tasks.ts';
import { DEMO_CONCURRENCY, type News } from './worker.ts';

/** The share that is done when one worker is killed. */
const KILL_AT_SHARE = 0.4;
const KILL_ANYWAY_AT_SHARE = 0.5;
const LOOK_EVERY_MS = 50;
/**
 * Executions submitted and not ended, at most. Work that comes back after a failure or a crash queues behind what
 * waits; with everything submitted at once it would come back at the very end, and nobody would see why.
 */
const OPEN_AT_ONCE = 80;
/** Submitted in one call, at least, as long as there are that many. */
const SUBMIT_BATCH = 20;
/** Nothing heard for this long: perhaps the missing news died with a worker, so the database is asked. */
const QUIET_MS = 300;
/** Executions asked about at once when it is quiet. */
const QUIET_LOOK_LIMIT = 500;
/** Nothing ended for this long: something is wrong, and waiting does not help. */
const STALL_LIMIT_MS = 30_000;
/** The first few are shown; a screen full of the same would hide the rest. */
const RETRIES_SHOWN = 3;
const TAKEOVERS_SHOWN = 12;

export interface DemoRunOptions {
  engine: Engine;
  screen: Screen;
  namespace: string;
  names: readonly string[];
  victim: string;
  total: number;
}

export class DemoRun {
  readonly progress: Progress;
  /** The execution with number n is at n - 1. */
  readonly ids: ExecutionId[] = [];
  readonly #options: DemoRunOptions;
  #ticker: NodeJS.Timeout | undefined;
  #startedAt = 0;
  #lastEndAt = 0;
  #lastNewsAt = 0;
  #retriesSeen = 0;
  #takeoversSeen = 0;
  #killing: Promise<void> | undefined;

  constructor(options: DemoRunOptions) {
    this.#options = options;
    this.progress = new Progress(options.total, options.names);
  }

  /** Numbers that were submitted and of whose end nobody has heard. */
  unreported(): number[] {
    return numbersTo(this.ids.length).filter((number) => !this.progress.hasEnded(number));
  }

  /** From the first submit to the last end. */
  get durationMs(): number {
    return this.#lastEndAt - this.#startedAt;
  }

  hear(worker: DemoProcess, news: News): void {
    const before = this.progress.ended;
    this.progress.hear(worker.name, news);
    this.#heard(before);
    for (const retry of news.retried) this.#sayRetry(worker, retry);
    for (const number of news.takenOver) this.#sayTakeover(worker, number);
    if (!this.#isTimeToKill(worker, news)) return;
    this.#killing = this.#kill(worker, news.held);
    // What goes wrong is heard of by who awaits it at the end; until then it must not end the process.
    this.#killing.catch(() => undefined);
  }

  died(worker: DemoProcess, reason: string): void {
    this.progress.gone(worker.name, 'ended');
    this.#say([[`${worker.name} ended unexpectedly. ${reason}`, 'bad']]);
  }

  /** Submits, and watches until everything has ended or nothing moves any more. Throws when interrupted. */
  async untilDone(crew: readonly DemoProcess[], signal: AbortSignal): Promise<void> {
    this.#startedAt = performance.now();
    this.#lastEndAt = this.#startedAt;
    this.#lastNewsAt = this.#startedAt;
    this.#ticker = setInterval(() => this.#show(), this.#options.screen.everyMs);
    while (!this.#isOver(crew)) {
      await this.#submitSome();
      await pause(LOOK_EVERY_MS, undefined, { signal });
      if (performance.now() - this.#lastNewsAt > QUIET_MS) await this.#lookForUnreported();
    }
    await this.#killing;
  }

  /** Draws the last state and leaves it on the screen. */
  close(): void {
    if (this.#ticker === undefined) return;
    clearInterval(this.#ticker);
    this.#ticker = undefined;
    this.#show();
    this.#options.screen.settle();
  }

  async #submitSome(): Promise<void> {
    const { total, ended } = this.progress;
    const from = this.ids.length;
    const to = Math.min(total, ended + OPEN_AT_ONCE);
    if (to - from < Math.min(SUBMIT_BATCH, total - from) || from === total) return;
    const numbers = numbersTo(to).slice(from);
    const results = await this.#options.engine.submit(
      numbers.map((number) => demoRequest(number, this.#options.namespace)),
    );
    this.ids.push(...results.map(({ executionId }) => executionId));
  }

  #isOver(crew: readonly DemoProcess[]): boolean {
    if (this.progress.ended === this.progress.total) return true;
    if (!crew.some(({ alive }) => alive)) return true;
    return performance.now() - this.#lastEndAt > STALL_LIMIT_MS;
  }

  #heard(endedBefore: number): void {
    this.#lastNewsAt = performance.now();
    if (this.progress.ended > endedBefore) this.#lastEndAt = this.#lastNewsAt;
  }

  async #lookForUnreported(): Promise<void> {
    const before = this.progress.ended;
    const missing = this.unreported().slice(0, QUIET_LOOK_LIMIT);
    const ended = await endedAmong(this.#options.engine, this.ids, missing);
    for (const number of ended) this.progress.found(number);
    this.#heard(before);
  }

  /**
   * With no room for another claim and a slow execution in hand, it surely still holds leases when the signal
   * arrives. Should that never be the case, holding a slow one must do.
   */
  #isTimeToKill(worker: DemoProcess, news: News): boolean {
    if (this.#killing !== undefined || worker.name !== this.#options.victim) return false;
    const share = this.progress.ended / this.progress.total;
    const isBusy = news.held.length === DEMO_CONCURRENCY || share >= KILL_ANYWAY_AT_SHARE;
    return share >= KILL_AT_SHARE && isBusy && news.held.some((number) => demoKind(number) === 'summarise');
  }

  async #kill(worker: DemoProcess, held: readonly number[]): Promise<void> {
    await worker.kill();
    this.progress.gone(worker.name, 'killed');
    const leases = await this.#leasesLeftBy(worker, held);
    this.#say([
      [`killed ${worker.name} (SIGKILL)`, 'bad'],
      [` holding ${leases} leases; nothing replaces it`],
    ]);
  }

  /** How many leases the dead worker has, according to the database. */
  async #leasesLeftBy(worker: DemoProcess, held: readonly number[]): Promise<number> {
    const known = held.filter((number) => number <= this.ids.length);
    const snapshots = await Promise.all(
      known.map((number) => this.#options.engine.describe(this.ids[number - 1]!)),
    );
    // It may have completed some between its last words and its death.
    known
      .filter((_, index) => typeof snapshots[index]?.endedAtMs === 'number')
      .forEach((number) => this.progress.found(number));
    return snapshots.filter((snapshot) => snapshot?.lease?.workerInstanceId === worker.workerInstanceId)
      .length;
  }

  #sayRetry(worker: DemoProcess, retry: News['retried'][number]): void {
    this.#retriesSeen += 1;
    if (this.#retriesSeen > RETRIES_SHOWN + 1) return;
    if (this.#retriesSeen > RETRIES_SHOWN) {
      this.#say([['further retries are only counted', 'dim']]);
      return;
    }
    this.#say([
      [`${worker.name}: ${demoKind(retry.number)} ${retry.number} failed`, 'warn'],
      [` (${retry.message}), next try in ${retry.retryInMs} ms`],
    ]);
  }

  #sayTakeover(worker: DemoProcess, number: number): void {
    this.#takeoversSeen += 1;
    if (this.#takeoversSeen > TAKEOVERS_SHOWN) return;
    const from = this.#killing === undefined ? '; its lease had run out' : ` from ${this.#options.victim}`;
    this.#say([[`${worker.name} took over`, 'good'], [` ${demoKind(number)} ${number}${from}`]]);
  }

  #say(what: Line): void {
    this.#options.screen.say(event(performance.now() - this.#startedAt, what));
  }

  #show(): void {
    const isAllDone = this.progress.ended === this.progress.total;
    const elapsed = isAllDone ? this.durationMs : performance.now() - this.#startedAt;
    this.#options.screen.show(this.progress, elapsed);
  }
}
