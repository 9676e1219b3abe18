/**
 * Opens FlowFabric in a process: the engine and, beside it, the reconcilers that repair what crashes leave behind.
 */
import type { Engine, ExecutionPolicy } from '../contract/engine.ts';
import { checkChoice } from '../engine/members.ts';
import { openEngine, type EngineOptions } from '../engine/open.ts';
import { dueTimers } from '../reconcilers/due-timers.ts';
import { expiredLeases } from '../reconcilers/expired-leases.ts';
import type { Reconciler } from '../reconcilers/reconciler.ts';
import { startReconcilers, type ReconcilerReport } from '../reconcilers/runner.ts';

export interface ConnectOptions extends EngineOptions {
  /** `off`: this process repairs nothing; at least one other must. Default on. */
  reconcile?: 'on' | 'off';
  /**
   * For executions submitted here without a policy of their own. Default: three retries, so that a crashed worker does
   * not cost the work. An empty object means none: then a failure or a lost lease is the end.
   */
  defaultPolicy?: ExecutionPolicy;
}

export interface Connection extends Engine {
  /** What the reconcilers of this process have done so far. */
  reconcilerReports(): ReconcilerReport[];
  [Symbol.asyncDispose](): Promise<void>;
}

const RECONCILERS: readonly Reconciler[] = [expiredLeases, dueTimers];

const DEFAULT_POLICY: ExecutionPolicy = { retry: { maxRetries: 3 } };

/** Connects to a migrated schema. Close it when done: it holds connections and timers. */
export async function connect(options: ConnectOptions): Promise<Connection> {
  const { reconcile = 'on', defaultPolicy = DEFAULT_POLICY, ...engineOptions } = options;
  checkChoice(reconcile, 'reconcile', ['on', 'off']);
  const { engine, context } = await openEngine(engineOptions, defaultPolicy);
  const runner = reconcile === 'off' ? undefined : startReconcilers(context, RECONCILERS);
  const close = async (): Promise<void> => {
    await runner?.close();
    await engine.close();
  };
  return {
    ...engine,
    close,
    reconcilerReports: () => runner?.report() ?? [],
    [Symbol.asyncDispose]: close,
  };
}
