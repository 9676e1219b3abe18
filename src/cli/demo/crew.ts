/**
 * The worker processes of the demo, in the parent: start them, receive their messages, kill one, stop the rest. Every
 * process started here is ended here; when the parent dies first, they notice and exit.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { DemoWorkerSetting, News, WorkerMessage } from './worker.ts';

/** The program as it is installed: compiled, beside this file. */
const PROGRAM = fileURLToPath(new URL('../main.js', import.meta.url));
const READY_LIMIT_MS = 20_000;
/** Longer than a stopping worker gives its handlers. */
const STOP_LIMIT_MS = 5_000;
/** Of what a worker wrote to stderr, the last part is kept to explain its exit. */
const COMPLAINT_CHARACTERS = 600;

export interface CrewOptions {
  names: readonly string[];
  setting: Omit<DemoWorkerSetting, 'FLOWFABRIC_DEMO_WORKER'>;
  onNews(worker: DemoProcess, news: News): void;
  /** A worker exited although it was neither killed nor stopped. */
  onDeath(worker: DemoProcess, reason: string): void;
}

export class DemoProcess {
  readonly name: string;
  readonly child: ChildProcess;
  /** Its name in the engine; empty until it is ready. */
  workerInstanceId = '';
  /** `ending`: stopped or killed, so that its exit is expected. */
  state: 'working' | 'ending' = 'working';
  complaint = '';

  constructor(name: string, child: ChildProcess) {
    this.name = name;
    this.child = child;
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  get alive(): boolean {
    return this.child.exitCode === null && this.child.signalCode === null;
  }

  /** Like a power cut: it cannot clean up. Resolves when the process is gone. */
  async kill(): Promise<void> {
    await this.#end('SIGKILL');
  }

  /** Lets it finish what it is running; kills it when that takes too long. */
  async stop(): Promise<void> {
    const timer = setTimeout(() => this.child.kill('SIGKILL'), STOP_LIMIT_MS);
    await this.#end('SIGTERM');
    clearTimeout(timer);
  }

  async #end(name: 'SIGKILL' | 'SIGTERM'): Promise<void> {
    this.state = 'ending';
    if (!this.alive || this.child.pid === undefined) return;
    const gone = once(this.child, 'exit');
    this.child.kill(name);
    await gone;
  }
}

/** Starts the processes; resolves when each of them is working. */
export async function startCrew(options: CrewOptions): Promise<DemoProcess[]> {
  const crew = options.names.map((name) => launch(name, options));
  try {
    await Promise.all(crew.map(({ ready }) => ready));
  } catch (error) {
    await stopCrew(crew.map(({ worker }) => worker));
    throw error;
  }
  return crew.map(({ worker }) => worker);
}

export async function stopCrew(crew: readonly DemoProcess[]): Promise<void> {
  await Promise.all(crew.map((worker) => worker.stop()));
}

function launch(name: string, options: CrewOptions): { worker: DemoProcess; ready: Promise<void> } {
  const setting: DemoWorkerSetting = { ...options.setting, FLOWFABRIC_DEMO_WORKER: name };
  const child = fork(PROGRAM, ['demo-worker'], {
    env: { ...process.env, ...setting },
    execArgv: [],
    stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
  });
  const worker = new DemoProcess(name, child);
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    worker.complaint = (worker.complaint + text).slice(-COMPLAINT_CHARACTERS);
  });
  const ready = new Promise<void>((resolve, reject) => {
    const limit = setTimeout(() => reject(new Error(`${name} did not start in time.`)), READY_LIMIT_MS);
    child.on('message', (message: WorkerMessage) => {
      if (message.type === 'news') options.onNews(worker, message);
      if (message.type === 'trouble') worker.complaint = message.message;
      if (message.type === 'ready') {
        clearTimeout(limit);
        worker.workerInstanceId = message.workerInstanceId;
        resolve();
      }
    });
    const ended = (how: string): void => {
      clearTimeout(limit);
      reject(new Error(`${name} could not start. ${worker.complaint.trim() || how}`));
      if (worker.state === 'working' && worker.workerInstanceId !== '')
        options.onDeath(worker, worker.complaint.trim() || how);
      worker.state = 'ending';
    };
    child.once('error', (error) => ended(error.message));
    child.once('exit', (code, killedBy) => ended(`It ended with ${killedBy ?? `exit code ${code}`}.`));
  });
  return { worker, ready };
}
