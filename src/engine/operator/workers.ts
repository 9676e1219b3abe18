/**
 * The registry of workers: which ones run, what they run, and their last heartbeat. It decides nothing: work is granted
 * by leases, whether a worker is registered or not.
 */
import type { WorkerSnapshot } from '../../contract/operations.ts';
import type { WorkerRegistration } from '../../contract/protocol.ts';
import { flag, whole } from '../../contract/shape/kinds.ts';
import { LIMITS } from '../../contract/limits.ts';
import { shape } from '../../contract/shape/shape.ts';
import {
  forgetWorker as removeRow,
  listWorkers as readRows,
  registerWorker as writeRow,
} from './workers.sql.ts';
import type { EngineContext } from '../kit/context.ts';
import { workerName } from '../kit/kinds.ts';
import { demandOf, interestFields } from '../executions/claiming/demand.ts';

/** Workers returned by one list: the newest ones. */
const MAX_WORKERS_LISTED = 10_000;
const MAX_COUNT = 1_000_000;

const workerRegistration = shape<WorkerRegistration>({
  ...interestFields,
  workerInstanceId: workerName,
  workerId: workerName,
  version: workerName.optional(),
  concurrency: whole(1, MAX_COUNT),
  running: whole(0, MAX_COUNT),
  uptimeMs: whole(0, LIMITS.delayMs),
  stopping: flag,
});

export async function registerWorker(context: EngineContext, worker: WorkerRegistration): Promise<void> {
  workerRegistration.check(worker, 'registration', '');
  const { kinds, lanes, capabilities } = demandOf(worker);
  const { workerInstanceId, workerId, version = null, concurrency, running, uptimeMs, stopping } = worker;
  await writeRow(context.database, {
    workerInstanceId,
    workerId,
    version,
    kinds: [...kinds].toSorted(),
    lanes: lanes === undefined ? null : [...lanes].toSorted(),
    capabilities: [...capabilities],
    concurrency,
    running,
    uptimeMs,
    stopping,
  });
}

export function listWorkers(context: EngineContext): Promise<WorkerSnapshot[]> {
  return readRows(context.database, MAX_WORKERS_LISTED);
}

export async function forgetWorker(context: EngineContext, workerInstanceId: string): Promise<void> {
  await removeRow(context.database, workerName.check(workerInstanceId, 'workerInstanceId'));
}
