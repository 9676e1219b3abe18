/**
 * One worker process of the demo, started only by `flowfabric demo`. It is an ordinary worker; its engine also reports to
 * the parent what was claimed and how it ended. It stops on SIGTERM, and exits at once when the parent is gone.
 */
import { connect } from '../../connect/connect.ts';
import { workerPort } from '../../connect/port.ts';
import type { Claim, LeaseRef, WorkerPort } from '../../contract/protocol.ts';
import { isEngineError } from '../../contract/errors.ts';
import { runWorker } from '../../worker/worker.ts';
import { demoHandlers, type DemoPayload } from './tasks.ts';

/** Short, so that the takeover is visible. */
const LEASE_MS = 2_000;
export const DEMO_CONCURRENCY = 6;
const POOL_SIZE = 4;
const STOP_DEADLINE_MS = 2_000;

/** What the parent passes to a worker process in its environment. */
export interface DemoWorkerSetting {
  DATABASE_URL: string;
  FLOWFABRIC_DEMO_SCHEMA: string;
  FLOWFABRIC_DEMO_NAMESPACE: string;
  FLOWFABRIC_DEMO_WORKER: string;
}

/** Since the last news: executions by their numbers, the rest as counts. */
export interface News {
  type: 'news';
  /** Numbers of the executions this worker holds a lease on now. */
  held: number[];
  completed: number[];
  retried: { number: number; message: string; retryInMs: number }[];
  /** Claimed after another worker had lost its lease. */
  takenOver: number[];
  failed: number[];
  /** Completed here, but submitted by another run. */
  foreign: number;
}

export type WorkerMessage =
  { type: 'ready'; workerInstanceId: string } | { type: 'trouble'; message: string } | News;

type Send = (message: WorkerMessage) => void;

/** Runs until it is stopped; returns the exit code. */
export async function runDemoWorker(): Promise<number> {
  if (process.send === undefined) {
    console.error('demo-worker is started by `flowfabric demo`; run that instead.');
    return 2;
  }
  const send: Send = (message) => {
    if (process.connected) process.send?.(message);
  };
  // Without the parent nothing would stop this process. What it held is taken over, as after any crash.
  const onOrphaned = (): never => process.exit(1);
  process.on('disconnect', onOrphaned);
  // Ctrl-C reaches the whole process group; the parent decides what it means.
  process.on('SIGINT', () => undefined);
  const stopped = new Promise<void>((resolve) => {
    process.once('SIGTERM', resolve);
  });
  try {
    await work(process.env as unknown as DemoWorkerSetting, send, stopped);
    return 0;
  } catch (error) {
    send({
      type: 'trouble',
      message: isEngineError(error) ? `${error.code}: ${error.message}` : String(error),
    });
    return 1;
  } finally {
    // The open channel would keep the process alive.
    process.off('disconnect', onOrphaned);
    if (process.connected) process.disconnect();
  }
}

async function work(setting: DemoWorkerSetting, send: Send, stopped: Promise<void>): Promise<void> {
  const connection = await connect({
    databaseUrl: setting.DATABASE_URL,
    schema: setting.FLOWFABRIC_DEMO_SCHEMA,
    poolSize: POOL_SIZE,
  });
  try {
    const port = reporting(workerPort(connection), new Reporter(setting.FLOWFABRIC_DEMO_NAMESPACE, send));
    const worker = runWorker(port, {
      handlers: demoHandlers,
      concurrency: DEMO_CONCURRENCY,
      lease: LEASE_MS,
      workerId: setting.FLOWFABRIC_DEMO_WORKER,
      // The parent draws what happens; it keeps stderr for what ends the process.
      log: 'silent',
    });
    send({ type: 'ready', workerInstanceId: worker.workerInstanceId });
    await stopped;
    await worker.stop({ deadline: STOP_DEADLINE_MS });
  } finally {
    await connection.close();
  }
}

/** Collects what happens and sends it once per turn of the event loop. */
class Reporter {
  readonly #namespace: string;
  readonly #send: Send;
  readonly #held = new Map<string, number>();
  #news: News | undefined;

  constructor(namespace: string, send: Send) {
    this.#namespace = namespace;
    this.#send = send;
  }

  claimed(claims: readonly Claim[]): void {
    for (const claim of claims.filter(({ namespace }) => namespace === this.#namespace)) {
      const { number } = claim.payload as unknown as DemoPayload;
      this.#held.set(claim.executionId, number);
      if (claim.reclaimed) this.#open().takenOver.push(number);
    }
    if (claims.length > 0) this.#open();
  }

  /** The execution is no longer held; its number, or undefined when it belongs to another run. */
  ended(lease: LeaseRef): number | undefined {
    const number = this.#held.get(lease.executionId);
    this.#held.delete(lease.executionId);
    this.#open();
    return number;
  }

  completed(lease: LeaseRef): void {
    const number = this.ended(lease);
    if (number === undefined) this.#open().foreign += 1;
    else this.#open().completed.push(number);
  }

  failed(lease: LeaseRef): void {
    const number = this.ended(lease);
    if (number !== undefined) this.#open().failed.push(number);
  }

  retried(lease: LeaseRef, message: string, retryInMs: number): void {
    const number = this.ended(lease);
    if (number !== undefined) this.#open().retried.push({ number, message, retryInMs });
  }

  #open(): News {
    if (this.#news === undefined) {
      this.#news = {
        type: 'news',
        held: [],
        completed: [],
        retried: [],
        takenOver: [],
        failed: [],
        foreign: 0,
      };
      setImmediate(() => this.#flush());
    }
    return this.#news;
  }

  #flush(): void {
    const news = this.#news;
    this.#news = undefined;
    if (news !== undefined) this.#send({ ...news, held: [...this.#held.values()] });
  }
}

/** The same port, with every claim and outcome reported. */
function reporting(port: WorkerPort, reporter: Reporter): WorkerPort {
  return {
    ...port,
    async claim(request) {
      const answer = await port.claim(request);
      reporter.claimed(answer.claims);
      return answer;
    },
    async complete(lease, result) {
      const answer = await port.complete(lease, result);
      if (answer.outcome === 'completed') reporter.completed(lease);
      else reporter.ended(lease);
      return answer;
    },
    async fail(lease, failure) {
      const answer = await port.fail(lease, failure);
      if (answer.outcome === 'retry_scheduled') reporter.retried(lease, failure.message, answer.retryInMs);
      else if (answer.outcome === 'failed') reporter.failed(lease);
      else reporter.ended(lease);
      return answer;
    },
    async release(lease) {
      const answer = await port.release(lease);
      reporter.ended(lease);
      return answer;
    },
  };
}
