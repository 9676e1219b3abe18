/**
 * Opens FlowFabric in a process: the engine and, beside it, the reconcilers that repair what crashes leave behind.
 */
import { durationMs, type Duration } from '../contract/duration.ts';
import type { Engine, ExecutionPolicy } from '../contract/engine.ts';
import { LIMITS } from '../contract/limits.ts';
import { checkChoice, checkMembers } from '../engine/kit/settings.ts';
import { setRetention } from '../engine/upkeep/retention-setting.ts';
import { ENGINE_OPTIONS, openEngine, type EngineOptions } from '../engine/open.ts';
import { dueTimers } from '../engine/upkeep/due-timers.ts';
import { expiredLeases } from '../engine/upkeep/expired-leases.ts';
import type { Reconciler } from '../engine/upkeep/reconciler.ts';
import { eventPositions, oldEvents } from '../engine/upkeep/event-log.ts';
import { flowSiblings, flowWork, lostEnds } from '../engine/upkeep/flow-work.ts';
import { oldKeys } from '../engine/upkeep/old-keys.ts';
import { retention } from '../engine/upkeep/retention.ts';
import { stalePointers } from '../engine/upkeep/stale-pointers.ts';
import { unusedRoutes } from '../engine/upkeep/unused-routes.ts';
import { startReconcilers, type ReconcilerReport } from '../engine/upkeep/runner.ts';
import type { SpanName } from '../contract/trace-context.ts';
import { createFlowClient, isDefinition, type FlowClient } from './flows.ts';
import { createTaskClient, type TaskClient } from './tasks.ts';
import { guarded } from './guarded.ts';

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

/** The engine, and the same verbs for tasks with a contract. */
export interface Connection
  extends Omit<Engine, 'submit' | 'submitFlow'>, Pick<TaskClient, 'submitMany' | 'execution'> {
  submit: TaskClient['submit'] & Engine['submit'];
  submitFlow: FlowClient['submitFlow'] & Engine['submitFlow'];
  /** What the reconcilers of this process have done so far. */
  reconcilerReports(): ReconcilerReport[];
  [Symbol.asyncDispose](): Promise<void>;
}

const RECONCILERS: readonly Reconciler[] = [expiredLeases, dueTimers, retention];

const DEFAULT_POLICY: ExecutionPolicy = { retry: { maxRetries: 3 } };

function isTask(value: unknown): boolean {
  return typeof value === 'object' && value !== null && 'defaults' in value && 'name' in value;
}

/** Tells the active span of OpenTelemetry, where its API is installed; without it, or without a span, there is none. */
async function findActiveSpan(): Promise<() => SpanName | undefined> {
  const otel = await import('@opentelemetry/api').catch(() => undefined);
  return () => otel?.trace.getActiveSpan()?.spanContext();
}

/** Null is for ever. */
function keptFor(keep: Duration | 'forever'): number | null {
  return keep === 'forever' ? null : durationMs(keep, 'retention', LIMITS.delayMs);
}

/** Connects to a migrated schema. Close it when done: it holds connections and timers. */
export async function connect(options: ConnectOptions): Promise<Connection> {
  checkMembers(options, 'options', [...ENGINE_OPTIONS, 'reconcile', 'defaultPolicy', 'retention']);
  const { reconcile = 'on', defaultPolicy = DEFAULT_POLICY, retention: keep, ...engineOptions } = options;
  checkChoice(reconcile, 'reconcile', ['on', 'off']);
  const retentionMs = keep === undefined ? undefined : keptFor(keep);
  const { engine, context } = await openEngine(engineOptions, defaultPolicy);
  if (retentionMs !== undefined) {
    await setRetention(context, retentionMs).catch(async (error: unknown) => {
      // Nobody else would close what was opened.
      await engine.close();
      throw error;
    });
  }
  const chores = [
    eventPositions,
    oldEvents,
    oldKeys,
    stalePointers(),
    unusedRoutes(),
    flowWork,
    flowSiblings,
    lostEnds(),
  ];
  const runner = reconcile === 'off' ? undefined : startReconcilers(context, RECONCILERS, { chores });
  if (runner !== undefined) context.companions.push(runner);
  const activeSpan = await findActiveSpan();
  const tasks = createTaskClient(engine, activeSpan);
  const flows = createFlowClient(engine, activeSpan);
  function submit(first: unknown, ...rest: unknown[]): Promise<never> {
    const verb = (isTask(first) ? tasks.submit : engine.submit) as (...args: unknown[]) => Promise<never>;
    return verb(first, ...rest);
  }
  function submitFlow(first: unknown, ...rest: unknown[]): Promise<never> {
    const verb = (isDefinition(first) ? flows.submitFlow : engine.submitFlow) as (
      ...args: unknown[]
    ) => Promise<never>;
    return verb(first, ...rest);
  }
  const connection = {
    ...engine,
    ...tasks,
    submit,
    submitFlow,
    reconcilerReports: () => runner?.report() ?? [],
    [Symbol.asyncDispose]: () => engine.close(),
  };
  return guarded(connection, ['transact']);
}
