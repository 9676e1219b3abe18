/**
 * Puts the operations together into an Engine on one database and schema.
 */
import { EngineError } from '../contract/errors.ts';
import type { Engine, ExecutionPolicy, SubmitOptions, SubmitRequest } from '../contract/engine.ts';
import type { Flows } from '../contract/flows.ts';
import type { Operations } from '../contract/operations.ts';
import type { Signals } from '../contract/signals.ts';
import type { Streams } from '../contract/streams.ts';
import { connectionBudget } from './database/connection-budget.ts';
import { openDatabase, type PoolLike } from './database/database.ts';
import { DEFAULT_SCHEMA } from './database/migrate.ts';
import { validDatabaseUrl } from './database/names.ts';
import { checkSchema } from './database/schema-state.ts';
import { openTransactions } from './database/transactions.ts';
import { DatabaseFeed } from './feed/database-feed.ts';
import { StreamHub } from './streams/hub.ts';
import { DatabaseStreams } from './streams/source.ts';
import { createAppends, type Appends } from './streams/append.ts';
import { bulk } from './operator/bulk.ts';
import { cancel } from './executions/cancel.ts';
import { checkWhole } from './kit/checks.ts';
import { claim } from './executions/claiming/claim.ts';
import { closingOf } from './closing.ts';
import type { EngineContext } from './kit/context.ts';
import { openDoorbell } from './kit/doorbell.ts';
import { EndWatch } from './executions/waiting.ts';
import { createOrders, readOrder } from './steps/end-order.ts';
import { createEndings } from './executions/endings.ts';
import { explain } from './operator/explain.ts';
import { bindFeed } from './feed/feed.ts';
import { cancelFlow } from './flows/cancel.ts';
import { describeFlow, listFlows, waitForFlow } from './flows/reads.ts';
import { FlowWork, workOnFlows } from './flows/work.ts';
import * as flows from './flows/flows.ts';
import { listLanes, pauseLane, resumeLane } from './operator/lanes.ts';
import { renew, revokeLease } from './executions/leases.ts';
import { list, listAttempts } from './operator/lists.ts';
import { checkChoice, checkMembers } from './kit/settings.ts';
import { changePriority, replay, setTags } from './operator/verbs.ts';
import { encodePolicy } from './executions/submitting/policy.ts';
import { describe, result, serverTimeMs } from './executions/reads.ts';
import { RouteCache } from './executions/claiming/route-cache.ts';
import { checkSecrets, Signing, type SigningSecret } from './signals/signing.ts';
import { listSigningKeys, revokeSigningKey, rotateSigningKey } from './signals/signing-keys.ts';
import { approve, deliverSignal } from './signals/signals.ts';
import { createSteps, readSteps } from './steps/steps.ts';
import { createSubmits, type DefaultPolicy } from './executions/submitting/submit.ts';
import { readStream, readSummary, tailOnce, tailStream, watchSummary } from './streams/streams.ts';
import { suspend } from './signals/suspend.ts';
import { fireDueTimers } from './executions/timers.ts';
import { transact } from './executions/transact.ts';
import { createWaitpoint, issueToken, listWaitpoints, revokeTokens } from './signals/waitpoints.ts';
import { watch } from './executions/claiming/watch.ts';
import { forgetWorker, listWorkers, registerWorker } from './operator/workers.ts';

export interface EngineOptions {
  /** Postgres to work on. Give this or `pool`. */
  databaseUrl?: string;
  /** The application's own pool; it is neither configured nor closed. Then `listenUrl` is needed to be woken. */
  pool?: PoolLike;
  /** Default `flowfabric`. Several engines may live in one database, each in a schema of its own. */
  schema?: string;
  /**
   * Connections for statements. Default 10. Besides them a process opens up to 4 for `ctx.tx`, 4 for handlers of consumers (not more of each than
   * `poolSize`) and one to listen: 19 in all, with `poolSize: 1` four.
   */
  poolSize?: number;
  /** A direct connection for wake-ups, when databaseUrl goes through a pooler. Default: databaseUrl. */
  listenUrl?: string;
  /** `off`: no listening connection; work is found by looking at intervals. */
  listen?: 'on' | 'off';
  /**
   * What tokens of waitpoints are signed with: a text of 32 bytes or more, the same for all processes. To change it, give
   * the new one first and the old one after it, everywhere, and then rotate the signing key.
   */
  signingSecret?: SigningSecret;
}

export interface OpenedEngine {
  engine: Engine;
  context: EngineContext;
}

/**
 * Opens an engine on a migrated schema. Requests without a policy get `defaultPolicy`, which here is none. The context
 * is for the reconcilers that run beside it.
 */
export async function openEngine(
  options: EngineOptions,
  defaultPolicy: ExecutionPolicy = {},
): Promise<OpenedEngine> {
  checkOptions(options);
  const secrets = checkSecrets(options.signingSecret);
  const policy = { policy: defaultPolicy, stored: encodePolicy(defaultPolicy, 'defaultPolicy') };
  const database = openDatabase({ ...options, schema: options.schema ?? DEFAULT_SCHEMA });
  try {
    await checkSchema(database);
  } catch (error) {
    await database.close();
    throw error;
  }
  const listenUrl = options.listen === 'off' ? undefined : (options.listenUrl ?? options.databaseUrl);
  const doorbell = openDoorbell({ database, listenUrl });
  const context: EngineContext = {
    database,
    doorbell,
    ...openTransactions(
      options,
      database.prefix,
      connectionBudget(options.poolSize, listenUrl === undefined ? 'off' : 'on'),
    ),
    ends: new EndWatch(database, doorbell),
    feed: new DatabaseFeed(database, doorbell.watchFeed),
    streams: new StreamHub(new DatabaseStreams(database), doorbell),
    flowWork: new FlowWork((signal) => workOnFlows(context, signal)),
    routes: new RouteCache(database),
    signing: new Signing(secrets, database.schema),
    demands: new Map(),
    doubtful: [],
    counters: { dequeued: 0 },
    companions: [],
  };
  return { engine: bindOperations(context, policy), context };
}

export const ENGINE_OPTIONS: readonly (keyof EngineOptions)[] = [
  'databaseUrl',
  'pool',
  'schema',
  'poolSize',
  'listenUrl',
  'listen',
  'signingSecret',
];
const MAX_POOL_SIZE = 1_000;

function checkOptions(options: EngineOptions): void {
  checkMembers(options, 'options', ENGINE_OPTIONS);
  checkChoice(options.listen, 'listen', ['on', 'off']);
  if (options.poolSize !== undefined) checkWhole(options.poolSize, 'poolSize', 1, MAX_POOL_SIZE);
  if (options.listenUrl !== undefined) validDatabaseUrl(options.listenUrl, 'listenUrl');
}

type Opened = () => EngineContext;
type ManyVerb<Request> = (
  context: EngineContext,
  ids: readonly string[],
  request: Request,
) => Promise<unknown[]>;

/** A verb on many is the verb on one, too. */
function oneOrMany<Request>(open: Opened, verb: ManyVerb<Request>) {
  return async (id: string | readonly string[], request: Request): Promise<never> => {
    if (Array.isArray(id)) return (await verb(open(), id, request)) as never;
    return (await verb(open(), [id as string], request))[0] as never;
  };
}

function bindOperator(open: Opened): Operations {
  return {
    replay: oneOrMany(open, replay),
    changePriority: oneOrMany(open, changePriority),
    setTags: async (id, request) => setTags(open(), id, request),
    list: async (request) => list(open(), request),
    listAttempts: async (id, request) => listAttempts(open(), id, request),
    explain: async (id) => explain(open(), id),
    listLanes: async (request) => listLanes(open(), request),
    pauseLane: async (lane, note) => pauseLane(open(), lane, note),
    resumeLane: async (lane) => resumeLane(open(), lane),
    bulk: (request) => bulk(open(), request),
    serverTimeMs: async () => serverTimeMs(open()),
  };
}

function bindSignals(open: Opened): Signals {
  return {
    createWaitpoint: async (lease, request) => createWaitpoint(open(), lease, request),
    suspend: async (lease, request) => suspend(open(), lease, request),
    issueToken: async (id, waitpoint, request) => issueToken(open(), id, waitpoint, request),
    revokeTokens: async (id, waitpoint) => revokeTokens(open(), id, waitpoint),
    deliverSignal: async (request) => deliverSignal(open(), request),
    approve: async (id, waitpoint, request) => approve(open(), id, waitpoint, request),
    listWaitpoints: async (request) => listWaitpoints(open(), request),
    listSigningKeys: async () => listSigningKeys(open()),
    rotateSigningKey: async (request) => rotateSigningKey(open(), request),
    revokeSigningKey: async (kid) => revokeSigningKey(open(), kid),
  };
}

function bindStreams(open: Opened, appends: Appends): Streams {
  return {
    appendFrames: async (lease, frames, options = {}) => {
      open();
      return appends.append(lease, frames, options);
    },
    readStream: async (id, request) => readStream(open(), id, request),
    tailStream: (id, request) => tailStream(open(), id, request),
    tailOnce: async (id, request) => tailOnce(open(), id, request),
    readSummary: async (id, request) => readSummary(open(), id, request),
    watchSummary: (id, request) => watchSummary(open(), id, request),
  };
}

function bindFlows(open: Opened, defaultPolicy: DefaultPolicy): Flows {
  return {
    submitFlow: async (request) => flows.submitFlow(open(), request, defaultPolicy),
    extendFlow: async (lease, members) => flows.extendFlow(open(), lease, members, defaultPolicy),
    createFlow: async (request) => flows.createFlow(open(), request),
    addMembers: async (id, members, options = {}) =>
      flows.addMembers(open(), id, members, options, defaultPolicy),
    setJoin: async (id, member, policy) => flows.setJoin(open(), id, member, policy),
    stageEdges: async (id, edges, options = {}) => flows.stageEdges(open(), id, edges, options),
    applyEdges: async (id, edgeIds) => flows.applyEdges(open(), id, edgeIds),
    unstageEdges: async (id, edgeIds) => flows.unstageEdges(open(), id, edgeIds),
    sealFlow: async (id, options = {}) => flows.sealFlow(open(), id, options),
    cancelFlow: async (id, request) => cancelFlow(open(), id, request),
    describeFlow: async (id) => describeFlow(open(), id),
    listFlows: async (request) => listFlows(open(), request),
    waitForFlow: async (id, options) => waitForFlow(open(), id, options),
  };
}

function bindOperations(context: EngineContext, defaultPolicy: DefaultPolicy): Engine {
  const endings = createEndings(context);
  const submits = createSubmits(context, defaultPolicy);
  const steps = createSteps(context);
  const orders = createOrders(context);
  const appends = createAppends(context);
  let closed = false;
  const open = (): EngineContext => {
    if (closed) throw new EngineError('closed', 'The engine was closed.');
    return context;
  };
  const bound = bindFeed(open);
  const close = closingOf(context, [bound, endings, submits, steps, orders, appends], async (deadlineMs) => {
    // Handlers of consumers may use the engine to the end of their batch.
    await bound.close(deadlineMs);
    closed = true;
  });
  const opened = <Part>(part: Part): Part => {
    open();
    return part;
  };
  async function submitOneOrMany(
    request: SubmitRequest | readonly SubmitRequest[],
    options?: SubmitOptions,
  ): Promise<never> {
    open();
    if (Array.isArray(request)) return (await submits.many(request, options ?? {})) as never;
    return (await submits.one(request as SubmitRequest, options ?? {})) as never;
  }
  return {
    submit: submitOneOrMany,
    cancel: oneOrMany(open, cancel),
    ...bindOperator(open),
    ...bindSignals(open),
    ...bindStreams(open, appends),
    ...bindFlows(open, defaultPolicy),
    ...bound.feed,
    claim: async (request) => claim(open(), request),
    renew: async (leases, leaseMs) => renew(open(), leases, leaseMs),
    complete: async (lease, value) => opened(endings).complete(lease, value),
    fail: async (lease, failure) => opened(endings).fail(lease, failure),
    release: async (lease) => opened(endings).release(lease),
    recordStep: async (lease, step, stepOptions = {}) => opened(steps).record(lease, step, stepOptions),
    readSteps: async (id) => readSteps(open(), id),
    recordOrder: async (lease, order) => opened(orders).record(lease, order),
    readOrder: async (id) => readOrder(open(), id),
    pause: async (lease, request) => opened(steps).pause(lease, request),
    spawn: async (lease, requests) => {
      open();
      return submits.spawn(lease, requests);
    },
    reportProgress: async (lease, progress) => opened(steps).progress(lease, progress),
    transact: async (work, transactOptions = {}) => transact(open(), work, transactOptions),
    revokeLease: async (id, request) => revokeLease(open(), id, request),
    describe: async (id) => describe(open(), id),
    result: async (id) => result(open(), id),
    waitForEnd: async (id, waitOptions = {}) => open().ends.wait(id, waitOptions),
    fireTimers: async (options) => fireDueTimers(open(), options),
    watch: (interest, watcher) => watch(open(), interest, watcher),
    registerWorker: async (worker) => registerWorker(open(), worker),
    listWorkers: async () => listWorkers(open()),
    forgetWorker: async (id) => forgetWorker(open(), id),
    close,
  };
}
