/**
 * Opens FlowFabric in a process: the engine, and the reconcilers that repair what crashes leave behind.
 */
import { engineFields, openEngine, type EngineOptions } from '../engine/open.ts';
import { durationMs, type Duration } from '../contract/shape/duration.ts';
import { LIMITS } from '../contract/limits.ts';
import type { ExecutionPolicy } from '../contract/policy.ts';
import { setRetention } from '../engine/upkeep/retention-setting.ts';
import { startUpkeep } from '../engine/upkeep/upkeep.ts';
import type { Connection } from './connection.ts';
import { createFlowClient } from './flows.ts';
import { choice, parsed } from '../contract/shape/kinds.ts';
import { shape } from '../contract/shape/shape.ts';
import { createMessageClient } from './messages.ts';
import { createTaskClient } from './tasks.ts';
import { guarded } from './guarded.ts';
import { keepPort } from './port.ts';
import { nameDatabase } from '../worker/log/database-names.ts';

/** How to connect, and which defaults this process sets. */
export interface ConnectOptions extends EngineOptions {
  /** `off`: runs no reconcilers in this process; at least one other must run them. Default `on`. */
  reconcile?: 'on' | 'off';
  /**
   * The policy of executions submitted here; an execution's own policy replaces it key by key. Default: three retries,
   * so that a crashed worker does not cost the work. With an empty object the first failure or lost lease is final.
   */
  defaultPolicy?: ExecutionPolicy;
  /**
   * How long finished executions are kept with their history, unless their policy sets `retention`, and how long
   * events are kept. Stored in the database for all processes: the last one that sets it wins, and a process that
   * leaves it out changes nothing. 7 days until it is set.
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

/** Null means forever. */
function keptFor(keep: Duration | 'forever'): number | null {
  return keep === 'forever' ? null : durationMs(keep, 'retention', LIMITS.delayMs);
}

/** Connects to a migrated schema. Close the connection when done: it keeps database connections and timers open. */
export async function connect(options: ConnectOptions): Promise<Connection> {
  connectOptions.check(options, 'options', '');
  const { reconcile = 'on', defaultPolicy = DEFAULT_POLICY, retention: keep, ...engineOptions } = options;
  const retentionMs = keep === undefined ? undefined : keptFor(keep);
  const { engine, context, telemetry, completeFor, databaseName } = await openEngine(
    engineOptions,
    defaultPolicy,
  );
  if (retentionMs !== undefined) {
    await setRetention(context, retentionMs).catch(async (error: unknown) => {
      // The caller gets no connection to close.
      await engine.close();
      throw error;
    });
  }
  const runner = reconcile === 'off' ? undefined : startUpkeep(context);
  const activeSpan = () => telemetry?.activeSpan();
  const { close, signals, messages, topics, worker, upkeep, ...others } = engine;
  const groups = guardedGroups(others);
  const connection: Connection = {
    ...guarded({
      ...createTaskClient({ ...groups, messages: guarded(messages) }, activeSpan),
      ...createFlowClient(groups, activeSpan),
      signal: signals.deliver,
      ...createMessageClient(messages, activeSpan),
      publish: topics.publish,
      cancel: groups.executions.cancel,
      close,
    }),
    ...groups,
    upkeep: { ...upkeep, reports: () => runner?.report() ?? [] },
    [Symbol.asyncDispose]: () => close(),
  };
  const port = guarded(worker, ['transact']);
  // A worker completes what it claimed, and a result is read where every error becomes the engine's. A guard would be
  // one more promise for every execution.
  const ownPort = { ...guarded(worker, ['transact', 'complete']), completeFor };
  nameDatabase(port, databaseName);
  nameDatabase(ownPort, databaseName);
  keepPort(connection, {
    port,
    ownPort,
    outsideSpans: telemetry?.outsideSpans ?? ((work) => work()),
  });
  return connection;
}

function guardedGroups<Groups extends Record<string, object>>(groups: Groups): Groups {
  const entries = Object.entries(groups).map(([noun, verbs]) => [noun, guarded(verbs)] as const);
  return Object.fromEntries(entries) as Groups;
}
