/**
 * Opens an engine on one database and schema: its parts, and the operations bound to them.
 */
import { EngineError } from '../contract/errors.ts';
import type { DatabaseName } from '../contract/database-name.ts';
import type { ExecutionPolicy } from '../contract/policy.ts';
import { promisedTo, type CompleteFor } from '../contract/protocol.ts';
import type { Closable } from '../contract/stopping.ts';
import { bindOperations } from './binding.ts';
import { closingOf } from './closing.ts';
import { choice, parsed, whole } from '../contract/shape/kinds.ts';
import { shape } from '../contract/shape/shape.ts';
import { databaseNameOf } from './database/database-name.ts';
import { connectionBudget } from './database/connection-budget.ts';
import { openDatabase, type PoolLike } from './database/database.ts';
import { DEFAULT_SCHEMA } from './database/migrations/migrate.ts';
import { validDatabaseUrl } from './database/names.ts';
import { checkSchema } from './database/migrations/schema-state.ts';
import { openTransactions } from './database/transactions.ts';
import { RouteCache } from './executions/claiming/route-cache.ts';
import { createEndings } from './executions/endings.ts';
import { encodePolicy, executionPolicy } from './executions/submitting/policy.ts';
import type { DefaultPolicy } from './executions/submitting/check-request.ts';
import { createSubmits } from './executions/submitting/submit.ts';
import { EndWatch } from './executions/waiting.ts';
import { DatabaseFeed } from './feed/database-feed.ts';
import { openFeed } from './feed/feed.ts';
import { FamilyWork } from './families/families.ts';
import { FlowWork, workOnFlows } from './flows/work.ts';
import type { EngineContext } from './kit/context.ts';
import { openDoorbell } from './kit/doorbell.ts';
import { operationsOf, type Groups } from './operations.ts';
import { secretsOf, Signing, signingSecret, type SigningSecret } from './signals/signing.ts';
import { createOrders } from './steps/end-order.ts';
import { createSteps } from './steps/steps.ts';
import { createMessageDeliveries } from './messages/sending.ts';
import { ReplyWatch } from './messages/replies.ts';
import { createSignalDeliveries } from './signals/signals.ts';
import { createAppends } from './streams/append.ts';
import { tellTopics } from './topics/telling.ts';
import { StreamHub } from './streams/hub.ts';
import { DatabaseStreams } from './streams/source.ts';
import { loadTelemetry, type Telemetry } from '../telemetry/operations.ts';

/** Which database, and how this process talks to it. */
export interface EngineOptions {
  /** Postgres to work on. Give this or `pool`. */
  databaseUrl?: string;
  /** The application's own pool; it is neither configured nor closed. Receiving hints then requires `listenUrl`. */
  pool?: PoolLike;
  /** Default `flowfabric`. Several engines may live in one database, each in a schema of its own. */
  schema?: string;
  /**
   * Connections for statements. Default 10. In addition, a process opens up to 4 for `ctx.tx`, 4 for handlers of
   * consumers (of each no more than `poolSize`) and one to listen: 19 in total, and 4 with `poolSize: 1`.
   */
  poolSize?: number;
  /** A direct connection for wake-ups, when databaseUrl goes through a pooler. Default: databaseUrl. */
  listenUrl?: string;
  /** `off`: no listening connection; work is found by polling. */
  listen?: 'on' | 'off';
  /**
   * `on`: small frames of streams travel in notifications, which saves a reader in another process a read. Every role of
   * the database can listen to them, and can forge them for processes that have this on. Default `off`.
   */
  carryFrames?: 'on' | 'off';
  /**
   * What tokens of waitpoints are signed with: a string of 32 bytes or more, the same in all processes. To change it,
   * give all processes the new one followed by the old one, then rotate the signing key.
   */
  signingSecret?: SigningSecret;
}

/** Also options of a connection, which has more. */
export const engineFields = {
  databaseUrl: parsed.optional(),
  pool: parsed.optional(),
  schema: parsed.optional(),
  poolSize: whole(1, 1_000).optional(),
  listenUrl: parsed.optional(),
  listen: choice(['on', 'off']).optional(),
  carryFrames: choice(['on', 'off']).optional(),
  signingSecret: signingSecret.optional(),
};
const engineOptions = shape<EngineOptions>(engineFields);

/** All operations on one database and schema. */
export interface Engine extends Groups, Closable {}

export interface OpenedEngine {
  engine: Engine;
  context: EngineContext;
  telemetry: Telemetry | undefined;
  /** For the worker of this process. */
  completeFor: CompleteFor;
  databaseName: DatabaseName | undefined;
}

/**
 * Opens an engine on a migrated schema. Requests without a policy get `defaultPolicy`, which is empty by default. The
 * returned context is for the reconcilers that run beside the engine.
 */
export async function openEngine(
  options: EngineOptions,
  defaultPolicy: ExecutionPolicy = {},
): Promise<OpenedEngine> {
  engineOptions.check(options, 'options', '');
  if (options.listenUrl !== undefined) validDatabaseUrl(options.listenUrl, 'listenUrl');
  executionPolicy.check(defaultPolicy, 'defaultPolicy');
  const policy = { policy: defaultPolicy, stored: encodePolicy(defaultPolicy) };
  const database = openDatabase({ ...options, schema: options.schema ?? DEFAULT_SCHEMA });
  try {
    await checkSchema(database);
  } catch (error) {
    await database.close();
    throw error;
  }
  const listenUrl = options.listen === 'off' ? undefined : (options.listenUrl ?? options.databaseUrl);
  const doorbell = openDoorbell({ database, listenUrl, carryFrames: options.carryFrames });
  const context: EngineContext = {
    database,
    doorbell,
    ...openTransactions(
      options,
      database.prefix,
      connectionBudget(options.poolSize, listenUrl === undefined ? 'off' : 'on'),
    ),
    ends: new EndWatch(database, doorbell),
    replies: new ReplyWatch(database, doorbell),
    feed: new DatabaseFeed(database, (watcher) => doorbell.watchFeed(watcher)),
    streams: new StreamHub(new DatabaseStreams(database), doorbell),
    flowWork: new FlowWork((signal) => workOnFlows(context, signal)),
    families: new FamilyWork(() => context),
    topicWork: new FlowWork((signal) => tellTopics(context, signal)),
    routes: new RouteCache(database),
    signing: new Signing(secretsOf(options.signingSecret), database.schema),
    demands: new Map(),
    doubtful: [],
    counters: { dequeued: 0 },
    companions: [],
  };
  const telemetry = await loadTelemetry();
  const databaseName = databaseNameOf(options);
  return { ...bindEngine(context, policy, telemetry), context, telemetry, databaseName };
}

function bindEngine(
  context: EngineContext,
  defaultPolicy: DefaultPolicy,
  telemetry: Telemetry | undefined,
): Pick<OpenedEngine, 'engine' | 'completeFor'> {
  const parts = {
    endings: createEndings(context),
    submits: createSubmits(context, defaultPolicy),
    steps: createSteps(context),
    orders: createOrders(context),
    appends: createAppends(context),
    deliveries: createSignalDeliveries(context.database),
    messages: createMessageDeliveries(context.database),
    feed: openFeed(context),
    defaultPolicy,
  };
  const { endings, submits, steps, orders, appends, deliveries, messages, feed } = parts;
  let closed = false;
  const open = (): EngineContext => {
    if (closed) throw new EngineError('closed', 'The engine was closed.');
    return context;
  };
  const close = closingOf(
    context,
    [feed, endings, submits, steps, orders, appends, deliveries, messages],
    async (deadlineMs) => {
      // Handlers of consumers may use the engine until their batch is done.
      await feed.close(deadlineMs);
      closed = true;
    },
  );
  const engine = { ...bindOperations(operationsOf(parts), open, telemetry), close };
  const completeFor: CompleteFor = (lease, result, waiter) => {
    open();
    if (telemetry === undefined || telemetry.isIdle()) endings.completeFor(lease, result, waiter);
    else promisedTo(waiter, engine.worker.complete(lease, result));
  };
  return { engine, completeFor };
}
