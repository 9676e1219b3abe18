/**
 * Opens FlowFabric in a process: the engine and, beside it, the reconcilers that repair what crashes leave behind.
 */
import { engineFields, openEngine, type EngineOptions } from '../engine/open.ts';
import { durationMs, type Duration } from '../contract/duration.ts';
import { LIMITS } from '../contract/limits.ts';
import type { ExecutionPolicy } from '../contract/policy.ts';
import { setRetention } from '../engine/upkeep/retention-setting.ts';
import { startUpkeep } from '../engine/upkeep/upkeep.ts';
import type { Connection } from './connection.ts';
import { createFlowClient } from './flows.ts';
import { choice, parsed } from '../contract/kinds.ts';
import { shape } from '../contract/shape.ts';
import { createTaskClient } from './tasks.ts';
import { guarded } from './guarded.ts';
import { keepPort } from './port.ts';

/** How to connect, and what this process does besides. */
export interface ConnectOptions extends EngineOptions {
  /** `off`: this process repairs nothing; at least one other must. Default on. */
  reconcile?: 'on' | 'off';
  /**
   * For executions submitted here without a policy of their own. Default: three retries, so that a crashed worker does
   * not cost the work. An empty object means none: then a failure or a lost lease is the end. A policy of an execution's
   * own goes before this one, member by member.
   */
  defaultPolicy?: ExecutionPolicy;
  /**
   * How long executions are kept after their end, with their history, unless their policy says otherwise; and how long
   * events are kept. It is kept in the database and holds for all processes: the last one that says it wins, and a process that
   * says nothing changes nothing. 7 days until somebody says something else.
   */
  retention?: Duration | 'forever';
}

const connectOptions = shape<ConnectOptions>({
  ...engineFields,
  reconcile: choice(['on', 'off']).optional(),
  defaultPolicy: parsed.optional(),
  retention: parsed.optional(),
});

const DEFAULT_POLICY: ExecutionPolicy = { retry: { maxRetries: 3 } };

/** Null is for ever. */
function keptFor(keep: Duration | 'forever'): number | null {
  return keep === 'forever' ? null : durationMs(keep, 'retention', LIMITS.delayMs);
}

/** Connects to a migrated schema. Close it when done: it holds connections and timers. */
export async function connect(options: ConnectOptions): Promise<Connection> {
  connectOptions.check(options, 'options', '');
  const { reconcile = 'on', defaultPolicy = DEFAULT_POLICY, retention: keep, ...engineOptions } = options;
  const retentionMs = keep === undefined ? undefined : keptFor(keep);
  const { engine, context, telemetry } = await openEngine(engineOptions, defaultPolicy);
  if (retentionMs !== undefined) {
    await setRetention(context, retentionMs).catch(async (error: unknown) => {
      // Nobody else would close what was opened.
      await engine.close();
      throw error;
    });
  }
  const runner = reconcile === 'off' ? undefined : startUpkeep(context);
  const activeSpan = () => telemetry?.activeSpan();
  const { close, signals, worker, upkeep, ...groups } = engine;
  const connection: Connection = {
    ...guarded({
      ...createTaskClient(engine, activeSpan),
      ...createFlowClient(engine, activeSpan),
      signal: signals.deliver,
      cancel: groups.executions.cancel,
      close,
    }),
    ...guardedGroups(groups),
    upkeep: { ...upkeep, reports: () => runner?.report() ?? [] },
    [Symbol.asyncDispose]: () => close(),
  };
  keepPort(connection, guarded(worker, ['transact']));
  return connection;
}

function guardedGroups<Groups extends Record<string, object>>(groups: Groups): Groups {
  const entries = Object.entries(groups).map(([noun, verbs]) => [noun, guarded(verbs)] as const);
  return Object.fromEntries(entries) as Groups;
}
