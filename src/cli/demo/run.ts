/**
 * A demo while it runs: receives the workers' messages, keeps the screen current, kills one worker in the middle, and
 * knows when everything is done. The work itself is done by the worker processes.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Connection } from '../../connect/connection.ts';
import type { ExecutionId } from '../../contract/ids.ts';
import { endedAmong } from './audit.ts';
import type { DemoProcess } from './crew.ts';
import { numbersTo, Progress } from './progress.ts';
import { event, type Screen } from './screen.ts';
import type { Line } from '../style.ts';
import { demoKind, demoRequest } from './tasks.ts';
import { DEMO_CONCURRENCY, type News } from './worker.ts';

/** One worker is killed when this share is done. */
const KILL_AT_SHARE = 0.4;
const KILL_ANYWAY_AT_SHARE = 0.5;
const POLL_EVERY_MS = 50;
/**
 * Executions submitted and not ended, at most. Work that is retried or taken over queues behind what waits; if everything
 * were submitted at once, it would run at the very end, and the cause would be out of sight.
 */
const OPEN_AT_ONCE = 80;
/** Submitted in one call, at least, while that many are left. */
const SUBMIT_BATCH = 20;
/** Without a message for this long, the database is asked: the missing news may have died with a worker. */
const QUIET_MS = 300;
/** Executions read at once then. */
const UNREPORTED_AT_ONCE = 500;
/** When nothing ends for this long, something is wrong, and the demo stops waiting. */
const STALL_LIMIT_MS = 30_000;
/** Only the first few are shown; a screen full of them would hide the rest. */
const RETRIES_SHOWN = 3;
const TAKEOVERS_SHOWN = 12;

export interface DemoRunOptions {
  engine: Connection;
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

  /** The numbers that were submitted and are not known to have ended. */
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
    // `untilDone` awaits it later; until then a rejection must not end the process.
    this.#killing.catch(() => undefined);
  }

  died(worker: DemoProcess, reason: string): void {
    this.progress.gone(worker.name, 'ended');
    this.#say([[`${worker.name} ended unexpectedly. ${reason}`, 'bad']]);
  }

  /** Submits, and waits until everything has ended or nothing progresses any more. Throws when interrupted. */
  async untilDone(crew: readonly DemoProcess[], interrupted: AbortSignal): Promise<void> {
    this.#startedAt = performance.now();
    this.#lastEndAt = this.#startedAt;
    this.#lastNewsAt = this.#startedAt;
    this.#ticker = setInterval(() => this.#show(), this.#options.screen.everyMs);
    while (!this.#isOver(crew)) {
      await this.#submitSome();
      await delay(POLL_EVERY_MS, undefined, { signal: interrupted });
      if (performance.now() - this.#lastNewsAt > QUIET_MS) await this.#findUnreported();
    }
    await this.#killing;
  }

  /** Draws the last frame and leaves it on the screen. */
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
    const results = await this.#options.engine.executions.submit(
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

  async #findUnreported(): Promise<void> {
    const before = this.progress.ended;
    const missing = this.unreported().slice(0, UNREPORTED_AT_ONCE);
    const ended = await endedAmong(this.#options.engine, this.ids, missing);
    for (const number of ended) this.progress.found(number);
    this.#heard(before);
  }

  /**
   * A worker with no free slot and a slow execution still holds leases when SIGKILL arrives. When that never happens, a
   * slow execution must do.
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
      known.map((number) => this.#options.engine.executions.describe(this.ids[number - 1]!)),
    );
    // It may have completed some after its last message.
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
