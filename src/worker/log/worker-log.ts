/**
 * What a worker says about itself: that it started, attempts that failed, leases it lost, executions that finished
 * without success while they ran here, trouble of the database and stalls of the event loop. Nothing is said, and nothing
 * is done, for a run that completes.
 */
import { isEngineError } from '../../contract/errors.ts';
import type { DatabaseName } from '../../contract/database-name.ts';
import type { Claim, FailOutcome, Failure, WorkerPort, WorkerRegistration } from '../../contract/protocol.ts';
import { shortDuration } from '../../contract/shape/duration.ts';
import type { Logger } from '../../define/task-context.ts';
import { shownNames, shownText } from './cut.ts';
import { databaseOf } from './database-names.ts';
import type { EntrySink } from './entry.ts';
import { LOG_LIMITS } from './limits.ts';
import { LoggerSink } from './logger-sink.ts';
import { explainLoss, type Loss } from './loss.ts';
import { shortId } from './short-id.ts';
import { hiddenError, shownError } from './shown-error.ts';
import { StderrLog } from './stderr.ts';

/** A logger that discards everything. */
const SILENT: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};

/** An attempt that failed: what was thrown, and what was reported of it. */
export interface FailedAttempt {
  readonly claim: Claim;
  readonly thrown: unknown;
  readonly failure: Failure;
  readonly step: string | undefined;
}

interface LostLease {
  readonly claim: Claim;
  readonly loss: Loss | undefined;
}

export class WorkerLog {
  /** What handlers write to. */
  readonly logger: Logger;
  readonly #sink: EntrySink | undefined;
  #stallReportedAt = -Infinity;

  /** Without a logger, stderr. */
  constructor(log: Logger | 'silent' | undefined) {
    if (log === 'silent') {
      this.logger = SILENT;
    } else if (log === undefined) {
      const own = new StderrLog();
      this.logger = own;
      this.#sink = own;
    } else {
      this.logger = log;
      this.#sink = new LoggerSink(log);
    }
  }

  close(): void {
    this.#sink?.close();
  }

  started(worker: WorkerRegistration, port: WorkerPort): void {
    if (this.#sink === undefined) return;
    const database = databaseOf(port);
    const { workerInstanceId, workerId, version, concurrency: slots } = worker;
    const tasks = shownNames(worker.kinds);
    const lanes = worker.lanes === undefined ? null : shownNames(worker.lanes);
    const of = version === undefined ? workerId : `${workerId} ${version}`;
    const where = database === undefined ? '' : `; database ${shownDatabase(database)}`;
    this.#sink.write({
      level: 'info',
      msg: 'Worker started.',
      fields: { workerId, workerInstanceId, version, tasks, lanes, slots, database },
      text: `${shownText(of)} started: ${listed('task', tasks)}; ${
        lanes === null ? 'every lane' : listed('lane', lanes)
      }; ${slots} ${slots === 1 ? 'slot' : 'slots'}${where}`,
    });
  }

  /** `answer`: undefined when the failure could not be reported. */
  attemptFailed({ claim, thrown, failure, step }: FailedAttempt, answer: FailOutcome | undefined): void {
    if (this.#sink === undefined) return;
    const error = claim.redacted ? hiddenError(thrown) : { ...shownError(thrown, failure.message), thrown };
    const { isFinal, fields, text } = whatFollows(claim, failure, answer);
    const { kind } = claim;
    const outcome = answer?.outcome ?? 'not_reported';
    this.#sink.write({
      level: isFinal ? 'error' : 'warn',
      msg: isFinal ? 'The attempt failed, and is not retried.' : 'The attempt failed.',
      fields: { ...subject(claim), ...fields, outcome, step, category: failure.category },
      error,
      text: `${kind} ${shortId(claim.executionId)} failed, ${text}: ${error.text}`,
      sameAs: JSON.stringify([kind, outcome, error.name, error.at, error.message.replaceAll(/\d+/g, '#')]),
    });
  }

  /** `longestDelayMs`: of the event loop, in the last seconds. What was handed back is not lost. */
  lost({ claim, loss }: LostLease, longestDelayMs: () => number): void {
    if (this.#sink === undefined || loss?.code === 'shutdown') return;
    const write = (): void => this.#writeLost(claim, loss, longestDelayMs());
    // A stall that has just ended is measured at the next turns of the event loop.
    if (loss !== undefined && loss.refusal === undefined) setTimeout(write, LOG_LIMITS.measureMs);
    else write();
  }

  #writeLost(claim: Claim, loss: Loss | undefined, stalledMs: number): void {
    const { outcome, why } = explainLoss(loss, claim.leaseMs, stalledMs);
    const isEnded = outcome !== undefined && outcome !== 'success';
    const what = isEnded ? `ended as ${outcome} while it ran here` : 'lost its lease';
    this.#sink?.write({
      level: 'warn',
      msg: isEnded ? 'The execution finished without success while it ran here.' : 'The lease was lost.',
      fields: { ...subject(claim), outcome: outcome ?? 'lost', why },
      text: `${claim.kind} ${shortId(claim.executionId)} ${what}: ${why}`,
      sameAs: JSON.stringify([claim.kind, 'lost', outcome, why.replaceAll(/\d+/g, '#')]),
    });
  }

  /** A claim, renewal or registration that failed. */
  trouble(thrown: unknown): void {
    if (this.#sink === undefined) return;
    const error = { ...shownError(thrown), thrown };
    const code = isEngineError(thrown) ? thrown.code : undefined;
    this.#sink.write({
      level: 'warn',
      msg: 'A call to the database failed; the worker tries again.',
      fields: { code },
      error,
      text: `a call to the database failed, and is tried again: ${error.text}`,
      sameAs: JSON.stringify(['trouble', error.name]),
      most: 1,
    });
  }

  /** `delayMs`: the longest delay of the event loop since the last call, or a little longer ago. */
  eventLoop(delayMs: number, leaseMs: number): void {
    if (this.#sink === undefined || delayMs < LOG_LIMITS.stallMs) return;
    const now = performance.now();
    if (now - this.#stallReportedAt < LOG_LIMITS.stallEveryMs) return;
    this.#stallReportedAt = now;
    const advice =
      `No lease is renewed meanwhile, and a stall of nearly the lease time (${shortDuration(leaseMs)}) loses them all. ` +
      "Move CPU work to a worker thread, or raise the worker's lease.";
    this.#sink.write({
      level: 'warn',
      msg: 'The event loop was blocked.',
      fields: { delayMs: Math.round(delayMs), leaseMs, advice },
      text: `the event loop was blocked for ${shortDuration(delayMs)}. ${advice}`,
    });
  }
}

function listed(noun: string, names: readonly string[]): string {
  return `${noun}${names.length === 1 ? '' : 's'} ${names.join(', ')}`;
}

function subject({ executionId, kind, attemptIndex }: Claim): Record<string, unknown> {
  return { executionId, kind, attemptIndex };
}

/** A socket's directory is a host too. */
function shownDatabase({ host, port, database, user }: DatabaseName): string {
  return shownText(`${user}@${host}:${port}/${database}`);
}

interface Following {
  isFinal: boolean;
  fields: Record<string, unknown>;
  text: string;
}

/** Attempts are counted since the submit or the last replay, because that is what the policy limits. */
function whatFollows(claim: Claim, failure: Failure, answer: FailOutcome | undefined): Following {
  const attempt = claim.retryCount + 1;
  const isDecided = answer?.outcome === 'retry_scheduled' || answer?.outcome === 'failed';
  const maxAttempts = isDecided && answer.maxRetries !== undefined ? answer.maxRetries + 1 : undefined;
  const count = maxAttempts === undefined ? `attempt ${attempt}` : `attempt ${attempt} of ${maxAttempts}`;
  if (answer?.outcome === 'retry_scheduled') {
    const { retryInMs } = answer;
    const text = `${count}, next in ${shortDuration(retryInMs)}`;
    return { isFinal: false, fields: { attempt, maxAttempts, retryInMs }, text };
  }
  const reason = isDecided
    ? `not retried (${whyFinal(failure, attempt, maxAttempts)})`
    : 'not reported: the lease was lost';
  return { isFinal: isDecided, fields: { attempt, maxAttempts }, text: `${count}, ${reason}` };
}

function whyFinal({ retry, category }: Failure, attempt: number, maxAttempts: number | undefined): string {
  if (retry === 'never') return 'the failure rules it out';
  if (maxAttempts === undefined || attempt >= maxAttempts) return 'no attempt is left';
  return `its policy does not retry ${shownText(category ?? 'transient')}`;
}
