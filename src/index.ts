/**
 * FlowFabric: durable execution on plain Postgres. This is the whole public surface of the main entry.
 */
export { connect, type Connection, type ConnectOptions } from './client/connect.ts';
export type { EngineOptions } from './engine/open.ts';
export type { ReconcilerReport } from './reconcilers/runner.ts';
export type { PoolLike } from './store/database.ts';
export { migrate, type MigrateOptions, type MigrateReport } from './store/migrate.ts';
export {
  startWorker,
  type StopOptions,
  type Worker,
  type WorkerOptions,
  type WorkerStats,
} from './worker/worker.ts';
export { TaskAborted, TaskFailed, type AbortCode, type Handler, type Task } from './worker/task.ts';
export { EngineError, isEngineError, type EngineErrorDetail, type ErrorCode } from './contract/errors.ts';
export type * from './contract/engine.ts';
export type * from './contract/states.ts';
export type { ExecutionId } from './contract/ids.ts';
export { LIMITS } from './contract/limits.ts';
