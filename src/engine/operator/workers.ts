/**
 * The registry of workers: who runs, what they run, and when they were last heard of. It decides nothing: work is
 * handed out by leases, whether a worker is registered or not.
 */
import type { WorkerSnapshot } from '../../contract/operations.ts';
import type { WorkerRegistration } from '../../contract/protocol.ts';
import { LIMITS } from '../../contract/limits.ts';
import {
  forgetWorker as removeRow,
  listWorkers as readRows,
  registerWorker as writeRow,
} from './workers.sql.ts';
import { checkText, checkWhole, refuse } from '../kit/checks.ts';
import type { EngineContext } from '../kit/context.ts';
import { checkDemand } from '../executions/claiming/demand.ts';

/** Workers answered by one list: the newest ones. */
const MAX_WORKERS_LISTED = 10_000;
const MAX_COUNT = 1_000_000;

export async function registerWorker(context: EngineContext, worker: WorkerRegistration): Promise<void> {
  if (typeof worker !== 'object' || worker === null) refuse('registration', 'must be an object');
  const { kinds, lanes, capabilities } = checkDemand(worker);
  const { version, stopping } = worker;
  if (typeof stopping !== 'boolean') refuse('stopping', 'must be true or false');
  await writeRow(context.database, {
    workerInstanceId: checkText(worker.workerInstanceId, 'workerInstanceId', LIMITS.workerNameBytes),
    workerId: checkText(worker.workerId, 'workerId', LIMITS.workerNameBytes),
    version: version === undefined ? null : checkText(version, 'version', LIMITS.workerNameBytes),
    kinds: [...kinds].toSorted(),
    lanes: lanes === undefined ? null : [...lanes].toSorted(),
    capabilities: [...capabilities],
    concurrency: checkWhole(worker.concurrency, 'concurrency', 1, MAX_COUNT),
    running: checkWhole(worker.running, 'running', 0, MAX_COUNT),
    uptimeMs: checkWhole(worker.uptimeMs, 'uptimeMs', 0, LIMITS.delayMs),
    stopping,
  });
}

export function listWorkers(context: EngineContext): Promise<WorkerSnapshot[]> {
  return readRows(context.database, MAX_WORKERS_LISTED);
}

export async function forgetWorker(context: EngineContext, workerInstanceId: string): Promise<void> {
  await removeRow(context.database, checkText(workerInstanceId, 'workerInstanceId', LIMITS.workerNameBytes));
}
