/**
 * Opens FlowFabric in a process: the engine and, beside it, the reconcilers that repair what crashes leave behind.
 */
import type { Engine } from '../contract/engine.ts';
import { openEngine, type EngineOptions } from '../engine/open.ts';
import { dueTimers } from '../reconcilers/due-timers.ts';
import { expiredLeases } from '../reconcilers/expired-leases.ts';
import type { Reconciler } from '../reconcilers/reconciler.ts';
import { startReconcilers, type ReconcilerReport } from '../reconcilers/runner.ts';

export interface ConnectOptions extends EngineOptions {
  /** `off`: this process repairs nothing; at least one other must. Default on. */
  reconcile?: 'on' | 'off';
}

export interface Connection extends Engine {
  /** What the reconcilers of this process have done so far. */
  reconcilerReports(): ReconcilerReport[];
  [Symbol.asyncDispose](): Promise<void>;
}

const RECONCILERS: readonly Reconciler[] = [expiredLeases, dueTimers];

/** Connects to a migrated schema. Close it when done: it holds connections and timers. */
export async function connect(options: ConnectOptions): Promise<Connection> {
  const { engine, context } = await openEngine(options);
  const runner = options.reconcile === 'off' ? undefined : startReconcilers(context, RECONCILERS);
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
