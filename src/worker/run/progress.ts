/**
 * Sends the progress a handler reports: the latest report, at intervals. Nothing depends on it, so a report that fails
 * is dropped.
 */
import type { WorkerPort } from '../../contract/protocol.ts';
import type { Progress } from '../../contract/steps.ts';
import { number } from '../../contract/shape/kinds.ts';
import type { HeldLease } from '../loop/lease-watch.ts';

const INTERVAL_MS = 250;
const percentage = number(0, 100).optional();

export class ProgressReports {
  readonly #port: WorkerPort;
  readonly #lease: HeldLease;
  #latest: Progress | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(port: WorkerPort, lease: HeldLease) {
    this.#port = port;
    this.#lease = lease;
  }

  report(progress: Progress): void {
    percentage.check(progress.percent, 'progress.percent');
    this.#latest = { ...progress };
    if (this.#timer === undefined) this.#send();
  }

  close(): void {
    clearTimeout(this.#timer);
    if (this.#latest !== undefined) this.#send();
    clearTimeout(this.#timer);
  }

  #send(): void {
    const progress = this.#latest;
    this.#latest = undefined;
    this.#timer = undefined;
    if (progress === undefined || !this.#lease.isTrusted()) return;
    this.#timer = setTimeout(() => this.#send(), INTERVAL_MS);
    this.#port.reportProgress(this.#lease.claim, progress).catch(() => undefined);
  }
}
